// SPDX-License-Identifier: Apache-2.0
//
// Masks, as the engine sees them: which columns a row sees, which class a tile has, and the bits of a partial tile.
// Every sparse mode and rule is a Band (problem.h), so one set of functions answers for all of them:
//
//   columns(i)       [lo, hi) with lo = i + lower, hi = max(i + upper + 1, min(i + cap + 1, prefix)), clamped to the
//                    matrix: one interval, and both ends never fall as i grows
//   classify(tile)   empty | full | partial, by the band alone, in O(1)
//   fill(tile)       one bit a pair, 16 columns a word ("granule"), band and mask tensor together
//
//                 j →  granule 0          granule 1
//        row i0       [b15 … b1 b0]      [b15 … b1 b0]         bit c of granule g: column j0 + 16·g + c
//        row i0+1     ...                                      1 = visible
//
// A prefix adds to the band of [lower, upper] that of [lower, cap] in the columns before it:
//
//          prefix                    so what is asked of a band is asked of two without a prefix, one over all columns
//        1 1 1 . . .  i = 0          and one over [0, prefix), and the answers are joined. They overlap or touch, which
//        1 1 1 1 . .                 is why the union is an interval again.
//        1 1 1 1 1 .
//
// The reference has a predicate of its own (reference/visible.cpp); tests/problem/mask_test.cpp holds both to a third
// over all small shapes.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace fascore {

inline constexpr int granule = 16;  ///< columns a mask word covers

struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    [[nodiscard]] bool empty() const noexcept { return begin >= end; }
    [[nodiscard]] std::int64_t size() const noexcept { return empty() ? 0 : end - begin; }
};

enum class TileClass : std::uint8_t { empty, full, partial };

/// The band that sparse_mode, tokens, prefix and rule mean (intersected) in batch b, clamped as Band says. `cut` is the
/// batch that modes 7 and 8 treat as mode 4; prefix[b] is read in mode 6 only.
[[nodiscard]] Band make_band(const AttentionParams& stated, bool mask_given, std::int64_t S1, std::int64_t S2,
                             std::int64_t b = 0, std::int64_t cut = 0);

/// Columns row i sees, and rows that see column j, by the band.
[[nodiscard]] Range visible_columns(const Band& band, std::int64_t i, std::int64_t S2);
[[nodiscard]] Range visible_rows(const Band& band, std::int64_t j, std::int64_t S1);

/// Rows that see any column and columns seen by any row: the part of the problem that exists at all.
[[nodiscard]] Range live_rows(const Band& band, std::int64_t S1, std::int64_t S2);
[[nodiscard]] Range live_columns(const Band& band, std::int64_t S1, std::int64_t S2);

/// Class of rows × columns by the band.
[[nodiscard]] TileClass classify(const Band& band, Range rows, Range columns);

/// Number of visible (i, j) of one head, by the band.
[[nodiscard]] double visible_pairs(const Band& band, std::int64_t S1, std::int64_t S2);

/// Byte (n, i, j) of a mask tensor.
[[nodiscard]] inline const std::uint8_t* address(const MaskTensor& mask, std::int64_t n, std::int64_t i,
                                                 std::int64_t j) {
    return mask.data + n * mask.stride_n + i * mask.stride_i + j * mask.stride_j;
}

/// Writes the visibility words of rows × columns of head n: rows.size() rows of `row_words` words each, of which the
/// first ceil(columns.size()/16) are meaningful (the rest are zeroed); columns beyond the range are 0. The mask tensor
/// is read where present. Returns the class found: empty or full only when every pair of the tile agrees.
TileClass fill_tile(const Batch& batch, std::int64_t n, Range rows, Range columns, std::uint16_t* words,
                    std::int64_t row_words);

}  // namespace fascore
