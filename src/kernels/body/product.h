// SPDX-License-Identifier: Apache-2.0
//
// Product tile: C[m×n] (+)= A[m×k] · B[k×n]. The one inner loop that decides our speed.
//
//   A  any rows × steps of words          B  panel of `width` columns, steps contiguous      C  row-major, ldc
//      step → 0   1   2 …                      col →  0   1   2 … width−1
//     row 0   w   w   w                     step 0   [w] [w] [w] …                           R ≤ rows(C) rows,
//     row 1   w   w   w                     step 1   [w] [w] [w] …                           C vectors of columns
//
// A register tile of R rows × C vectors keeps R·C accumulators; a step costs C vector loads of B, R broadcasts of A and
// R·C multiply-adds. The C vectors of B stay in registers, A needs no transpose, whatever its strides.
//
// Why these tiles: R·C independent chains must cover latency × ports (4 × 2 for FMA) and R·C + C + 1 registers must
// exist. With 32 registers that is 6×4 (24 chains, 10 loads for 24 multiply-adds), 9×3, 12×2; with 16 it is 6×2.
// rows(C) says it as a formula. A strip of m rows is cut evenly (128 rows: 18 strips of 6 and 4 of 5, not 21 and a 2),
// since 5 rows still fill the ports and 2 do not. Four steps a turn of the loop: a hyper-thread beside us takes half
// the front end, and then every instruction that only counts or advances a pointer costs (up to 10 % measured).
//
// Order: panel by panel, so that a panel (width · k words, 16 KiB for k = 64) stays in L1 while A streams past it.
// C is added at the end, not loaded first: each tile's sum is rounded by its own length, and only one rounding a tile
// reaches the long sum (dK of S = 8192 is then as exact as dK of S = 512). Its lines are prefetched at the start.
//
// Cost: 2·m·n·k·(elements a word) operations. Caller: see ProductArgs in kernel_table.h.

/// What a product is made of: F gives vectors and loads, `multiply_add` says what a word means.
template <class F>
struct PlainWords {
    using Vectors = F;
    using Operand = typename F::V;
    using Accumulator = typename F::V;
    using Word = typename F::Scalar;
    static Operand load(const Word* p) { return F::load(p); }
    static Operand broadcast(const char* p) {
        Word word;
        std::memcpy(&word, p, sizeof word);
        return F::set1(word);
    }
    static Accumulator multiply_add(Accumulator c, Operand a, Operand b) { return F::fma(a, b, c); }
};

constexpr int tallest_strip = 12;

/// Rows of a register tile that is `vectors` wide, given the number of vector registers.
constexpr int tile_rows(int registers, int vectors) {
    const int rows = (registers - vectors - 1) / vectors;
    return rows < tallest_strip ? rows : tallest_strip;
}

struct TileArgs {
    const char* a;
    std::int64_t a_row;
    std::int64_t a_step;
    const void* b;
    std::int64_t b_step;  // words
    void* c;
    std::int64_t ldc;
    std::int32_t k;
    bool accumulate;
};

template <class W, int R, int C>
void register_tile(const TileArgs& args) {
    using F = typename W::Vectors;
    using Scalar = typename F::Scalar;
    typename W::Accumulator sum[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < C; ++v) sum[r][v] = F::zero();
    }
    auto* c = static_cast<Scalar*>(args.c);
    const std::int64_t ldc = args.ldc;
    if (args.accumulate) {
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < C; ++v) __builtin_prefetch(c + r * ldc + v * F::lanes, 1);
        }
    }
    const char* a = args.a;
    const auto* b = static_cast<const typename W::Word*>(args.b);
    const std::int64_t a_row = args.a_row;
    const std::int64_t a_step = args.a_step;
    const std::int64_t b_step = args.b_step;
#pragma GCC unroll 4
    for (std::int32_t step = args.k; step > 0; --step) {
        typename W::Operand column[C];
#pragma GCC unroll 4
        for (int v = 0; v < C; ++v) column[v] = W::load(b + v * F::lanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const typename W::Operand row = W::broadcast(a + r * a_row);
#pragma GCC unroll 4
            for (int v = 0; v < C; ++v) sum[r][v] = W::multiply_add(sum[r][v], row, column[v]);
        }
        a += a_step;
        b += b_step;
    }
    if (args.accumulate) {
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < C; ++v) {
                Scalar* where = c + r * ldc + v * F::lanes;
                F::store(where, F::add(F::load(where), sum[r][v]));
            }
        }
    } else {
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < C; ++v) F::store(c + r * ldc + v * F::lanes, sum[r][v]);
        }
    }
}

/// register_tile<W, rows, C> for rows = 1 … R, chosen at run time.
template <class W, int C, int R>
void tile_of_rows(int rows, const TileArgs& args) {
    if (rows == R) {
        register_tile<W, R, C>(args);
    } else if constexpr (R > 1) {
        tile_of_rows<W, C, R - 1>(rows, args);
    }
}

template <class W, int Registers, int C>
void tile_of_size(int vectors, int rows, const TileArgs& args) {
    if (vectors == C) {
        tile_of_rows<W, C, tile_rows(Registers, C)>(rows, args);
    } else if constexpr (C > 1) {
        tile_of_size<W, Registers, C - 1>(vectors, rows, args);
    }
}

inline Span span_union(const Span* spans, int first, int count, Span all) {
    if (spans == nullptr) return all;
    Span out = spans[first];
    for (int r = 1; r < count; ++r) {
        const Span next = spans[first + r];
        if (next.begin >= next.end) continue;
        if (out.begin >= out.end) {
            out = next;
            continue;
        }
        if (next.begin < out.begin) out.begin = next.begin;
        if (next.end > out.end) out.end = next.end;
    }
    return out;
}

/// The next `quota` lines of what is wanted soon.
inline void fetch(Ahead& ahead) {
    std::int32_t left = ahead.quota;
    while (left > 0 && ahead.at < ahead.count) {
        const Ahead::Rows& rows = ahead.list[ahead.at];
        const char* line = rows.first + ahead.row * rows.pitch + std::int64_t{ahead.line} * 64;
        for (; left > 0 && ahead.line < rows.lines; --left, ++ahead.line, line += 64) {
            if (rows.written) {
                __builtin_prefetch(line, 1, 3);
            } else {
                __builtin_prefetch(line, 0, 2);
            }
        }
        if (ahead.line < rows.lines) return;
        ahead.line = 0;
        if (++ahead.row < rows.rows) continue;
        ahead.row = 0;
        ++ahead.at;
    }
}

/// `Panel` vectors make the widest panel, `Registers` is what the ISA has.
template <class W, int Registers, int Panel>
void product(const ProductArgs& args) {
    using F = typename W::Vectors;
    using Scalar = typename F::Scalar;
    using Word = typename W::Word;
    const int width = args.b_width;
    for (int column = 0, panel = 0; column < args.n; column += width, ++panel) {
        const int panel_end = column + width < args.n ? column + width : args.n;
        const int widest = (panel_end - column) / F::lanes;
        const int tallest = tile_rows(Registers, widest);
        const int strips = (args.m + tallest - 1) / tallest;
        const int height = args.m / strips;
        const int taller = args.m % strips;
        const auto* b = reinterpret_cast<const Word*>(static_cast<const char*>(args.b) + panel * args.b_panel);
        for (int strip = 0, row = 0; strip < strips; ++strip) {
            const int rows = height + (strip < taller ? 1 : 0);
            const Span columns = span_union(args.column_span, row, rows, Span{0, args.n});
            const Span depth = span_union(args.depth_span, row, rows, Span{0, args.k});
            const int begin = columns.begin > column ? columns.begin : column;
            const int end = columns.end < panel_end ? columns.end : panel_end;
            if (begin < end) {
                TileArgs tile;
                tile.a = static_cast<const char*>(args.a) + row * args.a_row + depth.begin * args.a_step;
                tile.a_row = args.a_row;
                tile.a_step = args.a_step;
                tile.b = b + depth.begin * args.b_step + (begin - column);
                tile.b_step = args.b_step;
                tile.c = static_cast<Scalar*>(args.c) + row * args.ldc + begin;
                tile.ldc = args.ldc;
                tile.k = depth.end > depth.begin ? depth.end - depth.begin : 0;
                tile.accumulate = args.accumulate;
                // An empty depth adds nothing; without accumulate it still has zeros to write.
                if (tile.k > 0 || !args.accumulate) {
                    tile_of_size<W, Registers, Panel>((end - begin) / F::lanes, rows, tile);
                }
            }
            if (args.ahead != nullptr) fetch(*args.ahead);
            row += rows;
        }
    }
}
