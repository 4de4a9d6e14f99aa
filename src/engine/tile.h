// SPDX-License-Identifier: Apache-2.0
//
// What forward and backward share about a tile: its class and mask bits, the spans that trim products to what is
// visible, the terms of its scores, tensor rows in and out, and the careful path for rows that hold NaN or Inf.
//
// Trimming. The words of a partial tile say which granules (16 columns) of each row hold a visible pair. From them and
// the band:
//
//   column_span[row]   granules anyone will look at           scores, dP: other columns are not computed
//   depth_rows[row]    steps of columns the row sees          dQ = dS·K, O = P·V: other steps are zero and skipped
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

/// Mask, spans and terms of the tile at hand.
struct TileMask {
    TileClass kind = TileClass::full;
    const std::uint16_t* words = nullptr;  ///< null for a full tile
    std::int64_t row_words = 0;
    const kernels::Span* column_span = nullptr;
    const kernels::Span* depth_rows = nullptr;
    const kernels::Span* depth_columns = nullptr;
    kernels::ScoreTerms terms{};

    [[nodiscard]] bool visible(std::int64_t row, std::int64_t column) const {
        if (words == nullptr) return true;
        const std::uint32_t word = words[row * row_words + column / granule];
        return ((word >> (column % granule)) & 1U) != 0;
    }
};

/// Room for the mask and terms of one tile: Br × row_words words, 2·Br + Bc spans (2·Br where depth_columns is not
/// wanted); the last two are looked at only where the problem has them.
struct TileMaskBuffers {
    std::uint16_t* words;
    kernels::Span* column_span;
    kernels::Span* depth_rows;
    kernels::Span* depth_columns;  ///< null = not wanted
    void* bias;
    std::uint16_t* keep;
};

/// Classifies rows × columns of head n and fills the buffers: mask and spans unless the tile is full or empty, terms
/// unless it is empty. A pair whose bias is −inf is hidden.
TileMask mask_tile(const Batch& batch, const Plan& plan, const kernels::ComputeKernels& kernels, std::int64_t n,
                   Range rows, Range columns, const TileMaskBuffers& buffers);

/// Address of element (n, s, 0).
inline const std::byte* address(const Operand& operand, std::int64_t n, std::int64_t s) {
    return operand.data + (n * operand.stride.n + s * operand.stride.s) * size_of(operand.dtype);
}
inline std::byte* address(const Result& result, std::int64_t n, std::int64_t s) {
    return result.data + (n * result.stride.n + s * result.stride.s) * size_of(result.dtype);
}

/// Element (n, row, column) of pse as it lies (a compressed one has other rows than the scores).
inline const std::byte* address(const Bias& bias, std::int64_t n, std::int64_t row, std::int64_t column) {
    return bias.data + (n * bias.stride.n + row * bias.stride.s + column * bias.stride.d) * size_of(bias.dtype);
}

/// Copy `copy` of row (n, s) of a statistic.
inline std::byte* address(const Statistic& statistic, std::int64_t n, std::int64_t s, std::int64_t copy) {
    return statistic.data +
           (n * statistic.stride.n + s * statistic.stride.s + copy * statistic.stride.d) * size_of(statistic.dtype);
}

kernels::Element element_of(DType dtype);

/// Dequantisation factor of row s (1 where there is none).
double row_scale(const Operand& operand, std::int64_t n, std::int64_t s);

/// The sink's logit of head n.
inline double sink_of(const Batch& batch, std::int64_t n) {
    const HeadVector& sink = batch.sink;
    return load_scalar(sink.data + n * sink.stride * size_of(sink.dtype), sink.dtype);
}

/// Rows of query or key: their own columns, then the rope part's. value and dy have no second part.
struct Rows {
    const Operand& operand;
    std::int64_t columns;
    const Operand& rope;
    std::int64_t rope_columns;
};
inline Rows query_rows(const Batch& batch) { return {batch.query, batch.D - batch.Dr, batch.query_rope, batch.Dr}; }
inline Rows key_rows(const Batch& batch) { return {batch.key, batch.D - batch.Dr, batch.key_rope, batch.Dr}; }
inline Rows value_rows(const Batch& batch) { return {batch.value, batch.Dv, batch.value, 0}; }
inline Rows dy_rows(const Batch& batch) { return {batch.dy, batch.Dv, batch.dy, 0}; }

/// And of their gradients.
struct ResultRows {
    const Result& result;
    std::int64_t columns;
    const Result& rope;
    std::int64_t rope_columns;
    [[nodiscard]] bool wanted() const { return result.wanted || (rope_columns > 0 && rope.wanted); }
};
inline ResultRows dq_rows(const Batch& batch) { return {batch.dq, batch.D - batch.Dr, batch.dq_rope, batch.Dr}; }
inline ResultRows dk_rows(const Batch& batch) { return {batch.dk, batch.D - batch.Dr, batch.dk_rope, batch.Dr}; }
inline ResultRows dv_rows(const Batch& batch) { return {batch.dv, batch.Dv, batch.dv, 0}; }

/// Where load() puts rows: rows form, zeros from `rows` to padded_rows.
struct Loaded {
    std::byte* dst;
    std::int64_t columns;  ///< elements of the compute type, zeros beyond the row's own
    std::int64_t ld;       ///< likewise
    std::int64_t padded_rows;
    std::uint8_t* nonfinite;  ///< null = not asked
    bool negate = false;
};

/// User rows of head n to rows form, dequantised.
void load(const kernels::ComputeKernels& kernels, const Rows& rows, std::int64_t n, Range range, const Loaded& to);

/// Rows form to a B form.
void pack(void (*kernel)(const kernels::PackArgs&), const KernelShape& shape, const std::byte* src, std::int64_t ld,
          std::int64_t rows, std::int64_t columns, const PanelForm& form, std::byte* dst);

/// Makes a B form the second operand of a product.
inline void set_b(kernels::ProductArgs& product, const PanelForm& form, const std::byte* b) {
    product.b = b;
    product.b_panel = form.panel_bytes;
    product.b_step = form.pitch;
    product.b_width = static_cast<std::int32_t>(form.width);
}

/// Accumulator rows to the wanted parts of a result, times `factor` (one of the accumulate type for all rows, or with
/// divide one a row to divide by).
void store(const kernels::ComputeKernels& kernels, const ResultRows& rows, std::int64_t n, Range range, const void* acc,
           std::int64_t ld, const void* factor, bool divide = false);

/// Zero-fills rows of head n.
void zero_rows(const Result& result, std::int64_t n, Range rows, std::int64_t columns);
void zero_rows(const ResultRows& rows, std::int64_t n, Range range);

/// Zeroes the flagged rows in a by_rows B form of `columns` columns. Returns whether there were any.
bool zero_flagged(const std::uint8_t* flags, std::int64_t rows, std::int64_t columns, const PanelForm& form,
                  const KernelShape& shape, std::byte* panels);

/// Any flag set?
bool any_flagged(const std::uint8_t* flags, std::int64_t rows);

/// acc[0 … columns) += weight · row s of head n, in plain IEEE arithmetic.
template <class Acc>
void add_row(Acc* acc, Acc weight, const Rows& rows, std::int64_t n, std::int64_t s) {
    const auto part = [&](const Operand& operand, std::int64_t columns) {
        const std::byte* row = address(operand, n, s);
        const std::int64_t pitch = operand.stride.d * size_of(operand.dtype);
        const auto factor = static_cast<Acc>(row_scale(operand, n, s));
        for (std::int64_t c = 0; c < columns; ++c) {
            *acc++ += weight * (factor * static_cast<Acc>(load_scalar(row + c * pitch, operand.dtype)));
        }
    };
    part(rows.operand, rows.columns);
    if (rows.rope_columns > 0) part(rows.rope, rows.rope_columns);
}

}  // namespace fascore
