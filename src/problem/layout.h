// SPDX-License-Identifier: Apache-2.0
//
// Layouts: the one place that knows what BNSD, BSND, BSH, SBH and TND mean. Everyone else sees strides.
//
//   layout   axes          b   n   s   d      head size
//   BNSD     B, N, S, D    0   1   2   3      from axis 3
//   BSND     B, S, N, D    0   2   1   3      from axis 3
//   BSH      B, S, N·D     0   –   1   2      axis 2 split into N heads: stride n = D · stride[2]
//   SBH      S, B, N·D     1   –   0   2      likewise
//   TND      T, N, D       –   1   0   2      from axis 2; one batch of T rows, which sequence_rules.cpp cuts
#pragma once

#include <cstdint>

#include "fascore/attention.h"
#include "problem/problem.h"

namespace fascore {

/// Extents and strides of a data tensor, whatever its layout.
struct Placed {
    std::int64_t B = 0;
    std::int64_t N = 0;
    std::int64_t S = 0;
    std::int64_t D = 0;
    Strides stride;
};

/// Axes of a layout's tensors.
[[nodiscard]] int rank_of(Layout layout) noexcept;

/// True when heads and columns share an axis (BSH, SBH).
[[nodiscard]] bool heads_are_fused(Layout layout) noexcept;

/// Places a tensor of the layout's rank. For fused layouts `heads` divides the last axis (the caller has checked that
/// it does); otherwise `heads` is not looked at.
[[nodiscard]] Placed place(Layout layout, const TensorDims& dims, std::int64_t heads) noexcept;

/// The axes in words, "[B, S, N*D]", for messages.
[[nodiscard]] const char* axes_of(Layout layout) noexcept;

}  // namespace fascore
