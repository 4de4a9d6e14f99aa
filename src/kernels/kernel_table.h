// SPDX-License-Identifier: Apache-2.0
//
// The contract between the engine and the kernels: plain structs and function pointers, no vector type, no ISA macro,
// so that every translation unit, whatever its flags, sees the same layout. One KernelTable per instruction set; a
// table holds one ComputeKernels per arithmetic the products can run in.
//
// A *product* is C[m×n] (+)= A[m×k] · B[k×n]. Depth is cut in *steps*: one element (f32, f64) or a pair of elements
// (bf16, whose dot instruction multiplies pairs). A step of one row of A, or of one column of B, is a *word*: 4 bytes
// for f32 and bf16, 8 for f64. All operands are made of words:
//
//   A   word (row, step) at  a + row·a_row + step·a_step          any strides: rows form and pairs form are both A
//   B   panels of `width` columns; within a panel                 C   row-major, ldc elements, never read unless
//       word (step, column) at  b + panel·b_panel                     `accumulate` (it may hold NaN)
//                               + (step·b_step + column)·word
//
// The forms the packing kernels make, for a matrix X [rows][columns] of compute elements:
//
//   rows form     X as it is, row-major, leading dimension padded, pad zero      A of depth "columns"
//   by_columns    B whose depth runs over X's columns, columns over X's rows     the transpose: Kᵀ, Vᵀ
//   by_rows       B whose depth runs over X's rows (pairs of rows for bf16)      K, Q, dY, V
//
// Where a word is one element the rows form is the by_rows form as well: panels side by side, b_step its leading
// dimension.
//
// Everything is padded with zeros to whole steps and whole vectors, so kernels have no tail code in their inner loops.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fascore::kernels {

/// [begin, end), in whatever unit the field says.
struct Span {
    std::int32_t begin;
    std::int32_t end;
};

/// Source or destination element types the kernels convert from and to.
enum class Element : std::uint8_t { f64, f32, bf16, f16, f8e4m3, f8e5m2 };

/// Memory that will be wanted soon. A product asks for `quota` cache lines of it after each of its strips, so that they
/// come in beside the arithmetic and not in a burst of misses later.
struct Ahead {
    struct Rows {
        const char* first;
        std::int64_t pitch;  ///< bytes from one row to the next
        std::int32_t lines;  ///< of a row
        std::int32_t rows;
        bool written;  ///< it will be stored to
    };
    static constexpr std::int32_t most = 12;
    Rows list[most];
    std::int32_t count;
    std::int32_t quota;
    std::int32_t at;  ///< where it stands: entry, row, line
    std::int32_t row;
    std::int32_t line;
};

/// C (+)= A·B over m rows, n columns (a multiple of the vector length), k steps.
/// `column_span[row]`: columns of that row anyone will read (multiples of 16); others need not be written.
/// `depth_span[row]`: steps in which that row of A is not zero; others are not multiplied and not read.
/// A strip of rows takes the union over its rows; null means everything. Each element of C is one chain of
/// multiply-adds in ascending depth, whatever the tile's size or place, then one addition to C if `accumulate`.
struct ProductArgs {
    const void* a;
    std::int64_t a_row;   ///< bytes
    std::int64_t a_step;  ///< bytes
    const void* b;
    std::int64_t b_panel;  ///< bytes from one panel to the next
    std::int64_t b_step;   ///< words from one step to the next
    std::int32_t b_width;  ///< columns of a panel
    void* c;
    std::int64_t ldc;  ///< elements
    std::int32_t m;
    std::int32_t n;
    std::int32_t k;
    bool accumulate;
    const Span* column_span;
    const Span* depth_span;
    Ahead* ahead;  ///< null = nothing
};

/// Rows of a user tensor into the rows form: dst[r][c] = factor · row_factor[r] · src, zero beyond `columns` up to
/// `width`, zero rows beyond `rows` up to padded_rows.
struct LoadArgs {
    const void* src;
    Element element;
    std::int64_t row_stride;     ///< elements
    std::int64_t column_stride;  ///< elements
    std::int32_t rows;
    std::int32_t columns;
    std::int32_t padded_rows;
    double factor;            ///< 1 or −1 where the compute type is bf16
    const float* row_factor;  ///< null = 1; null where the compute type is bf16
    void* dst;
    std::int64_t ld;          ///< elements of the compute type
    std::int64_t width;       ///< columns written
    std::uint8_t* nonfinite;  ///< per row: 1 when an element is NaN or Inf; null = not asked
    bool merge;               ///< adds to what nonfinite says already
};

/// Rows form to a B form. `rows` is a multiple of 16; by_columns takes whole blocks of 16 words of each row (the pad
/// must be there), by_rows `columns` as they are.
struct PackArgs {
    const void* src;
    std::int64_t ld;         ///< elements
    std::int64_t src_bytes;  ///< bytes of an element of the compute type
    std::int32_t rows;
    std::int32_t columns;
    void* dst;
    std::int64_t panel;  ///< bytes from one panel to the next
    std::int32_t width;  ///< columns of a panel
};

/// What else a score passes through (operator.md 3): x = cap(scale·s) + bias, R = P·keep/keep_prob. All null or 0 in a
/// plain problem, which then runs passes that know nothing of it.
struct ScoreTerms {
    const void* bias;  ///< accumulate type, [rows][ldb]; null = none
    std::int64_t ldb;
    double softcap;             ///< 0 = none
    const std::uint16_t* keep;  ///< bits as `visible`, 1 = keep; null = no dropout
    double keep_factor;         ///< 1 / keep_prob
};

/// Forward softmax over one tile of scores; see body/softmax.h for the formulas.
struct SoftmaxForwardArgs {
    void* s;           ///< scores [rows][lds], accumulate type; overwritten by P where the compute type is the same
    std::int64_t lds;  ///< elements
    std::int32_t rows;
    std::int32_t columns;          ///< multiple of 16
    const std::uint16_t* visible;  ///< bits, row_words words a row; null = every pair
    std::int64_t row_words;
    const Span* column_span;  ///< columns of each row that are worth looking at; null = all
    double scale;             ///< ≥ 0: the sign is in the packed query
    void* row_max;            ///< running maximum, −inf before the first tile
    void* row_sum;            ///< running sum
    void* row_rescale;        ///< out: exp(old maximum − new maximum)
    void* p;                  ///< P in rows form; with dropout, 0 where not kept
    std::int64_t ldp;         ///< elements of the compute type
    ScoreTerms terms;
};

/// Backward pass between the products over one tile; see body/softmax.h.
struct SoftmaxBackwardArgs {
    void* s;
    void* dp;
    std::int64_t lds;  ///< elements, of both
    std::int32_t rows;
    std::int32_t columns;
    const std::uint16_t* visible;
    std::int64_t row_words;
    const Span* column_span;
    double scale;
    const void* row_max;
    const void* row_inverse;  ///< 1 / softmax_sum
    const void* row_delta;    ///< dy · attention_out
    void* p_depth;            ///< P with depth over rows: words [row / step][ldw]
    void* ds_depth;           ///< dS likewise
    std::int64_t ldw;         ///< words
    void* ds_rows;            ///< dS in rows form
    std::int64_t ldr;         ///< elements
    ScoreTerms terms;
    void* dx;          ///< out: dx_factor times the gradient of x, accumulate type, [rows][ldx]; null = not asked
    std::int64_t ldx;  ///< elements
    double dx_factor;
    bool dx_once;  ///< as StoreArgs::once
};

/// Clears the bit of every −inf of a bias tile, in the rows whose flag is set.
struct HideArgs {
    const void* bias;  ///< accumulate type
    std::int64_t ld;
    std::int32_t rows;
    std::int32_t columns;  ///< multiple of 16
    const std::uint8_t* flags;
    std::uint16_t* words;
    std::int64_t row_words;
};

/// dst[r][c] = −slope · |first + c − r|, or its root in place of the distance; accumulate type.
struct SlopeArgs {
    double slope;
    bool root;
    std::int64_t first;
    std::int32_t rows;
    std::int32_t columns;
    void* dst;
    std::int64_t ld;
};

/// dst[r·dst_row + c·dst_column] += src[r][c], accumulate type; dst_row 0 sums the rows.
struct AddArgs {
    const void* src;
    std::int64_t ld;
    std::int32_t rows;
    std::int32_t columns;
    void* dst;
    std::int64_t dst_row;
    std::int64_t dst_column;
};

/// Dropout bits of a tile, 16 columns a word. Element (r, c) is first + r·pitch + c of a stream of bits (`bits`), or of
/// the bytes of Philox4x32-7 where bits is null: then first and pitch are multiples of 16.
struct KeepArgs {
    const std::uint8_t* bits;
    std::int64_t first;
    std::int64_t pitch;
    std::uint64_t seed;
    std::uint64_t block;  ///< counter of byte 0
    std::uint32_t threshold;
    std::int32_t rows;
    std::int32_t columns;
    std::uint16_t* words;
    std::int64_t row_words;
};

/// x = what an 8-bit float keeps of it, f32 in place, saturating. With row_factor, of x·row_factor[r]. With `block`, of
/// x·u and divided by u again, u = largest value / max |x|, or 0 throughout when max |x| < 1e-8.
struct QuantiseArgs {
    void* x;
    std::int64_t ld;
    std::int32_t rows;
    std::int32_t columns;
    Element element;
    const float* row_factor;
    bool block;
};

/// out[r] = Σ_c x[r][c]·y[r][c], accumulate type; x and y user tensors with row and column strides in elements.
struct RowDotArgs {
    const void* x;
    Element x_element;
    std::int64_t x_row;
    std::int64_t x_column;
    const void* y;
    Element y_element;
    std::int64_t y_row;
    std::int64_t y_column;
    std::int32_t rows;
    std::int32_t columns;
    void* out;
};

/// dst[r][c] = src[r][c] · factor[r] (or / factor[r]), rounded once. factor_step 0 uses one factor for all rows.
/// `once`: nobody will look at dst soon, so f32 rows on cache lines go past the cache, which then need not read them
/// first.
struct StoreArgs {
    const void* src;
    std::int64_t ld;
    std::int32_t rows;
    std::int32_t columns;
    const void* factor;
    std::int64_t factor_step;
    bool divide;
    bool once;
    void* dst;
    Element element;
    std::int64_t row_stride;
    std::int64_t column_stride;
};

/// acc[r][0..columns) *= factor[r] where factor[r] ≠ 1. columns is a multiple of 16.
struct RescaleArgs {
    void* acc;
    std::int64_t ld;
    std::int32_t rows;
    std::int32_t columns;
    const void* factor;
};

/// Kernels of one arithmetic: the compute type is what products take, the accumulate type what they give (f32; f64 for
/// f64).
struct ComputeKernels {
    const char* name;         ///< "bf16", "f32", "f64"
    std::int32_t mr;          ///< rows of the widest register tile
    std::int32_t nr;          ///< columns of the widest panel
    std::int32_t lanes;       ///< columns of a vector: panel widths are multiples of it
    std::int32_t step;        ///< elements a step (2 for bf16)
    std::int32_t word_bytes;  ///< bytes a step of one row
    std::int32_t acc_bytes;
    void (*product)(const ProductArgs&);
    void (*load_rows)(const LoadArgs&);
    void (*pack_by_columns)(const PackArgs&);
    void (*pack_by_rows)(const PackArgs&);  ///< null where a word is one element
    void (*softmax_forward)(const SoftmaxForwardArgs&);
    void (*softmax_backward)(const SoftmaxBackwardArgs&);
    void (*row_dot)(const RowDotArgs&);
    void (*store_rows)(const StoreArgs&);
    void (*rescale_rows)(const RescaleArgs&);
    void (*load_bias)(const LoadArgs&);  ///< load_rows into the accumulate type
    void (*hide_infinite)(const HideArgs&);
    void (*slope_bias)(const SlopeArgs&);
    double (*slope_sum)(const SlopeArgs&);  ///< Σ dst[r][c] · distance: the slope's gradient but for its sign
    void (*add_tile)(const AddArgs&);
    void (*keep_words)(const KeepArgs&);
    void (*quantise)(const QuantiseArgs&);  ///< null where the accumulate type is not f32
    /// Runs `rounds` of independent multiply-adds and returns the operations done.
    double (*peak)(std::int64_t rounds);
    /// e^x elementwise for the tests: x ≤ 0 is what the passes use, any x is allowed. n a multiple of 16.
    void (*exp)(const void* x, void* y, std::int64_t n);
};

struct KernelTable {
    const char* name;
    ComputeKernels f32;
    ComputeKernels f64;
    const ComputeKernels* bf16;  ///< null: bf16 widens to f32 in packing
};

}  // namespace fascore::kernels
