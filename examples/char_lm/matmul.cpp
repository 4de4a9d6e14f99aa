// SPDX-License-Identifier: Apache-2.0
//
// A small blocked matrix product, vectorised by the compiler.
//
// Both operands are first copied into strips, so that the inner loop reads memory strictly forwards, whatever the
// strides were (this is also how a transposed operand costs nothing extra):
//
//   A, strips of MR rows               B, strips of NR columns            C, tiles of MR × NR
//     k→  0      1      2                k 0  b b b b … (NR)                 ┌────┬────┬──
//        [a a a][a a a][a a a] …         k 1  b b b b …                      │tile│tile│     one tile = one A strip
//         MR     MR     MR               k 2  b b b b …                      ├────┼────┼──       times one B strip
//
// The inner loop keeps a whole tile of C in registers over the full depth K. A step along k multiplies NR values of B
// (two vectors) by MR single values of A: 2·MR independent sums, enough to keep both multiply-add pipes busy.
//
//   isa       vector    MR × NR in f32   registers used of those there are
//   avx512    64 bytes  12 × 32          24 sums + 2 B + 1 A = 27 of 32
//   avx2      32 bytes   6 × 16          12 sums + 2 B + 1 A = 15 of 16
//   portable  16 bytes   4 × 8            8 sums + 2 B + 1 A = 11 of 16
//
// Blocks: a thread takes a panel of B strips that stays in the L2 cache and runs all A strips of its block past it.
// Every element of C is one sum in the order k = 0, 1, 2 …, made by one thread: the bits do not depend on the threads.
#include "matmul.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

namespace char_lm {
namespace {

/// Memory for packed strips, aligned to the longest vector. Grows, never shrinks; one per operand.
template <class Real>
class StripBuffer {
  public:
    StripBuffer() = default;
    StripBuffer(const StripBuffer&) = delete;
    StripBuffer& operator=(const StripBuffer&) = delete;
    ~StripBuffer() { release(); }

    Real* at_least(Index count) {
        if (count > capacity_) {
            release();
            data_ = static_cast<Real*>(::operator new(static_cast<std::size_t>(count) * sizeof(Real), alignment));
            capacity_ = count;
        }
        return data_;
    }

  private:
    static constexpr std::align_val_t alignment{64};
    void release() { ::operator delete(data_, alignment); }

    Real* data_ = nullptr;
    Index capacity_ = 0;
};

/// The rows of `matrix` in strips: packed[strip][k][row within the strip], rows past the end filled with zero.
template <class Real>
void pack_rows(const Matrix<Real>& matrix, Index strip_rows, Real* packed) {
    const Index depth = matrix.columns;
    parallel_for(ceil_div(matrix.rows, strip_rows), [&](Index strip) {
        Real* to = packed + strip * strip_rows * depth;
        const Index first = strip * strip_rows;
        const Index rows = std::min(strip_rows, matrix.rows - first);
        const Real* from = matrix.data + first * matrix.row_stride;
        if (rows < strip_rows) std::fill(to, to + strip_rows * depth, Real(0));
        if (matrix.row_stride == 1) {  // neighbours within a strip are neighbours in memory
            for (Index k = 0; k < depth; ++k) {
                for (Index row = 0; row < rows; ++row) to[k * strip_rows + row] = from[k * matrix.column_stride + row];
            }
        } else {
            for (Index row = 0; row < rows; ++row) {
                const Real* line = from + row * matrix.row_stride;
                for (Index k = 0; k < depth; ++k) to[k * strip_rows + row] = line[k * matrix.column_stride];
            }
        }
    });
}

/// One block of C: `rows × columns` at C, from packed strips of A and B of depth `depth`.
template <class Real>
struct Block {
    const Real* A;
    const Real* B;
    Real* C;
    Index rows, columns, depth, C_stride;
    Write write;
};

/// The tiles of one block. Inlined into a function per instruction set, which decides how it is compiled.
template <class Real, std::size_t vector_bytes, std::size_t MR>
[[gnu::always_inline]] inline void multiply_block(const Block<Real>& block) {
    typedef Real Vector __attribute__((vector_size(vector_bytes)));  // NOLINT: `using` takes no dependent vector_size
    constexpr std::size_t NR = 2 * vector_bytes / sizeof(Real);
    constexpr Index tile_rows = MR, tile_columns = NR;

    for (Index j = 0; j < block.columns; j += tile_columns) {
        for (Index i = 0; i < block.rows; i += tile_rows) {
            const Real* a = block.A + i * block.depth;
            const Real* b = block.B + j * block.depth;
            Vector sums[MR][2] = {};
            for (Index k = 0; k < block.depth; ++k, a += tile_rows, b += tile_columns) {
                Vector b0, b1;
                std::memcpy(&b0, b, sizeof(b0));
                std::memcpy(&b1, b + NR / 2, sizeof(b1));
#pragma GCC unroll 16
                for (std::size_t row = 0; row < MR; ++row) {
                    sums[row][0] += a[row] * b0;
                    sums[row][1] += a[row] * b1;
                }
            }
            // Through a plain array, so that a tile at the edge is no special case.
            Real tile[MR][NR];
            std::memcpy(tile, sums, sizeof(tile));
            const Index rows = std::min(tile_rows, block.rows - i);
            const Index columns = std::min(tile_columns, block.columns - j);
            for (Index row = 0; row < rows; ++row) {
                Real* c = block.C + (i + row) * block.C_stride + j;
                if (block.write == Write::add) {
                    for (Index column = 0; column < columns; ++column) c[column] += tile[row][column];
                } else {
                    for (Index column = 0; column < columns; ++column) c[column] = tile[row][column];
                }
            }
        }
    }
}

/// What the code above calls: the block function of one instruction set and its tile.
template <class Real>
struct Kernel {
    void (*multiply)(const Block<Real>&);
    Index MR, NR;
};

// One function per instruction set: the same source, compiled with that set switched on.
template <class Real>
void multiply_portable(const Block<Real>& block) {
    multiply_block<Real, 16, 4>(block);
}
#if defined(__x86_64__)
template <class Real>
[[gnu::target("avx2,fma")]] void multiply_avx2(const Block<Real>& block) {
    multiply_block<Real, 32, 6>(block);
}
template <class Real>
[[gnu::target("avx512f")]] void multiply_avx512(const Block<Real>& block) {
    multiply_block<Real, 64, 12>(block);
}
#endif

enum class Isa : std::uint8_t { portable, avx2, avx512 };

Isa detect_isa() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return Isa::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
    return Isa::portable;
}

template <class Real>
Kernel<Real> select_kernel() {
    constexpr auto lanes = [](Index vector_bytes) { return vector_bytes / static_cast<Index>(sizeof(Real)); };
    switch (detect_isa()) {
#if defined(__x86_64__)
        case Isa::avx512: return {multiply_avx512<Real>, 12, 2 * lanes(64)};
        case Isa::avx2: return {multiply_avx2<Real>, 6, 2 * lanes(32)};
#endif
        default: return {multiply_portable<Real>, 4, 2 * lanes(16)};
    }
}

}  // namespace

template <class Real>
void matmul(const Matrix<Real>& A, const Matrix<Real>& B, Real* C, Write write) {
    static const Kernel<Real> kernel = select_kernel<Real>();
    static thread_local StripBuffer<Real> A_buffer, B_buffer;

    const Index M = A.rows, N = B.columns, K = A.columns;
    const Index MR = kernel.MR, NR = kernel.NR;
    Real* A_strips = A_buffer.at_least(ceil_div(M, MR) * MR * K);
    Real* B_strips = B_buffer.at_least(ceil_div(N, NR) * NR * K);
    pack_rows(A, MR, A_strips);
    pack_rows(B.transposed(), NR, B_strips);  // the columns of B are the rows of Bᵀ

    // Blocks of about 96 × 128: enough of them for any thread count even in the narrow products of the gradients.
    const Index block_rows = MR * std::max<Index>(1, 96 / MR);
    const Index block_columns = NR * std::max<Index>(1, 128 / NR);
    const Index across = ceil_div(N, block_columns);
    parallel_for(ceil_div(M, block_rows) * across, [&](Index task) {
        const Index i = task / across * block_rows;
        const Index j = task % across * block_columns;
        kernel.multiply({A_strips + i * K, B_strips + j * K, C + i * N + j, std::min(block_rows, M - i),
                         std::min(block_columns, N - j), K, N, write});
    });
}

template void matmul<float>(const Matrix<float>&, const Matrix<float>&, float*, Write);
template void matmul<double>(const Matrix<double>&, const Matrix<double>&, double*, Write);

const char* matmul_isa() {
    switch (detect_isa()) {
        case Isa::avx512: return "avx512";
        case Isa::avx2: return "avx2";
        default: return "portable";
    }
}

}  // namespace char_lm
