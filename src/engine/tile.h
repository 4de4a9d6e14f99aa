// SPDX-License-Identifier: Apache-2.0
//
// What forward and backward share about a tile: its class and mask bits, the spans that trim products to what is
// visible, tensor addresses, and the careful path for rows that hold NaN or Inf.
//
// Trimming. The words of a partial tile say which granules (16 columns) of each row hold a visible pair. From them:
//
//   column_span[row]   columns anyone will look at            scores, dP: other columns are not computed
//   depth_rows[row]    the same in steps                      dQ = dS·K, O = P·V: other steps are zero and skipped
//   depth_columns[j]   steps of rows that see column j        dV = Pᵀdy, dK = dSᵀQ: likewise
//
// NaN and Inf. A hidden pair has weight 0, but 0·NaN is NaN: a product over depth would carry a NaN from a row of its
// B operand to everyone. Rows with such values are therefore zeroed in the B form when they are packed, flagged, and
// their contribution is added pair by pair, for visible pairs only (add_flagged). This costs nothing when there are
// none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "kernels/kernel_table.h"
#include "plan/plan.h"
#include "problem/mask.h"
#include "problem/problem.h"

namespace fascore {

/// Mask and spans of the tile at hand.
struct TileMask {
    TileClass kind = TileClass::full;
    const std::uint16_t* words = nullptr;  ///< null for a full tile
    std::int64_t row_words = 0;
    const kernels::Span* column_span = nullptr;
    const kernels::Span* depth_rows = nullptr;
    const kernels::Span* depth_columns = nullptr;

    [[nodiscard]] bool visible(std::int64_t row, std::int64_t column) const {
        if (words == nullptr) return true;
        const std::uint32_t word = words[row * row_words + column / granule];
        return ((word >> (column % granule)) & 1U) != 0;
    }
};

/// Room for the mask of one tile: Br × row_words words, 2·Br + Bc spans (2·Br where depth_columns is not wanted).
struct TileMaskBuffers {
    std::uint16_t* words;
    kernels::Span* column_span;
    kernels::Span* depth_rows;
    kernels::Span* depth_columns;  ///< null = not wanted
};

/// Classifies rows × columns of head (b, n) and fills the buffers unless the tile is full or empty.
TileMask mask_tile(const Problem& problem, const Plan& plan, std::int64_t b, std::int64_t n, Range rows, Range columns,
                   const TileMaskBuffers& buffers);

/// Address of element (b, n, s, 0).
inline const std::byte* address(const Operand& operand, std::int64_t b, std::int64_t n, std::int64_t s) {
    return operand.data + (b * operand.stride.b + n * operand.stride.n + s * operand.stride.s) * size_of(operand.dtype);
}
inline std::byte* address(const Result& result, std::int64_t b, std::int64_t n, std::int64_t s) {
    return result.data + (b * result.stride.b + n * result.stride.n + s * result.stride.s) * size_of(result.dtype);
}

/// Copy `copy` of row (b, n, s) of a statistic.
inline std::byte* address(const Statistic& statistic, std::int64_t b, std::int64_t n, std::int64_t s,
                          std::int64_t copy) {
    return statistic.data +
           (b * statistic.stride.b + n * statistic.stride.n + s * statistic.stride.s + copy * statistic.stride.d) *
               size_of(statistic.dtype);
}

kernels::Element element_of(DType dtype);

/// Zero-fills rows of head (b, n) of a result.
void zero_rows(const Result& result, std::int64_t b, std::int64_t n, Range rows, std::int64_t columns);

/// Rows of a user tensor as load_rows arguments; the caller adds destination and flags.
kernels::LoadArgs load_args(const Operand& operand, std::int64_t b, std::int64_t n, Range rows, std::int64_t columns,
                            std::int64_t padded_rows);

/// Zeroes the flagged rows in a by_rows B form of `columns` columns. Returns whether there were any.
bool zero_flagged(const std::uint8_t* flags, std::int64_t rows, std::int64_t columns, const PanelForm& form,
                  const KernelShape& shape, std::byte* panels);

/// Any flag set?
bool any_flagged(const std::uint8_t* flags, std::int64_t rows);

/// acc[0 … columns) += weight · row (b, n, s) of the operand, in plain IEEE arithmetic.
template <class Acc>
void add_row(Acc* acc, Acc weight, const Operand& operand, std::int64_t b, std::int64_t n, std::int64_t s,
             std::int64_t columns) {
    const std::byte* row = address(operand, b, n, s);
    const std::int64_t pitch = operand.stride.d * size_of(operand.dtype);
    for (std::int64_t c = 0; c < columns; ++c) {
        acc[c] += weight * static_cast<Acc>(load_scalar(row + c * pitch, operand.dtype));
    }
}

}  // namespace fascore
