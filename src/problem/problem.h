// SPDX-License-Identifier: Apache-2.0
//
// The one description every later stage works from. validate.cpp makes it from the public structs, once, or refuses;
// after that nobody asks what a layout is called, whether a mask was broadcast or which sparse mode was meant.
//
//   Operand      base pointer, element strides along b (batch), n (head), s (row), d (column)
//   Visibility   a band of the pair (i, j), and perhaps a mask tensor:
//                visible  ⇔  lower ≤ j − i ≤ upper   and   mask(b,n,i,j) = 0
//
// Every rule of this version is such a band: mode 0 is [−pre, next], causal is (−∞, 0] or (−∞, δ], and so on
// (mask.cpp has the table). Intersections of bands are bands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fascore/attention.h"

namespace fascore {

/// Element strides along batch, head, row and column.
struct Strides {
    std::int64_t b = 0;
    std::int64_t n = 0;
    std::int64_t s = 0;
    std::int64_t d = 0;
};

/// A data tensor that is read. data is null when the tensor is absent.
struct Operand {
    const std::byte* data = nullptr;
    DType dtype = DType::f32;
    Strides stride;
};

/// A data tensor that is written.
struct Result {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    Strides stride;
    bool wanted = false;  ///< the caller passed a view; data may still be null in a workspace query
};

/// softmax_max or softmax_sum: row (b, n, i) at data[b·stride.b + n·stride.n + i·stride.s], `copies` elements
/// stride.d apart (all written, the first read).
struct Statistic {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    Strides stride;
    std::int64_t copies = 1;
    bool wanted = false;
};

/// Bytes, non-zero = masked out; stride 0 on broadcast axes; data null = no mask.
struct MaskTensor {
    const std::uint8_t* data = nullptr;
    bool present = false;  ///< a full mask was passed (modes 0, 1); data may still be null in a workspace query
    std::int64_t stride_b = 0;
    std::int64_t stride_n = 0;
    std::int64_t stride_i = 0;
    std::int64_t stride_j = 0;
};

/// Pairs with lower ≤ j − i ≤ upper are visible. The limits are clamped to ±(S1 + S2), so sums never overflow.
struct Band {
    std::int64_t lower = 0;
    std::int64_t upper = 0;
};

enum class Direction : std::uint8_t { forward, backward };

struct Problem {
    Direction direction = Direction::forward;
    DType dtype = DType::f32;
    std::int64_t B = 0;
    std::int64_t N1 = 0;
    std::int64_t N2 = 0;
    std::int64_t G = 0;  ///< N1 / N2, 0 when N2 = 0
    std::int64_t S1 = 0;
    std::int64_t S2 = 0;
    std::int64_t D = 0;
    std::int64_t Dv = 0;
    double scale = 1.0;  ///< already narrowed to f32 unless dtype is f64

    Operand query;
    Operand key;
    Operand value;
    Operand dy;            ///< backward
    Operand attention_in;  ///< backward
    Result attention_out;  ///< forward
    Result dq;             ///< backward
    Result dk;
    Result dv;
    Statistic softmax_max;  ///< forward: written where wanted; backward: read
    Statistic softmax_sum;

    MaskTensor mask;
    Band band;

    /// The rule as the caller stated it. The engine does not read this; the reference derives its own predicate from
    /// it.
    AttentionParams stated;
    bool mask_given = false;  ///< an atten_mask was passed, full or compressed: sparse_mode applies

    /// True when some extent is 0: no attention is computed, outputs that have elements are zero-filled.
    [[nodiscard]] bool empty() const noexcept {
        return B == 0 || N1 == 0 || N2 == 0 || S1 == 0 || S2 == 0 || D == 0 || Dv == 0;
    }
};

}  // namespace fascore
