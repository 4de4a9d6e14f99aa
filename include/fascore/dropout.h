// SPDX-License-Identifier: Apache-2.0
//
// The dropout mask that attention_forward and attention_backward draw from seed and offset, for those who want to see
// it. The calls themselves never store it.
//
//   A stream of bytes comes from Philox4x32 with 7 rounds: key = seed, 128-bit counter of block q = ⌈offset/16⌉ + q,
//   16 bytes a block. Element e is kept when byte e ≤ trunc(f32(keep_prob) · 255). Elements are numbered along rows
//   padded to A = 16·⌈S2/16⌉ columns:
//
//     e = ((b·N1 + n)·S1 + i)·A + j              TND: N1·Σ_{b'<b} Sq_b'·A_b' + (n·Sq_b + i)·A_b + j
#pragma once

#include <cstdint>

#include "fascore/export.h"
#include "fascore/status.h"
#include "fascore/tensor.h"

namespace fascore {

/// Writes keep[r, c] = 1 where element first_element + r·A + c is kept, 0 elsewhere, A = 16·⌈columns/16⌉. `keep` is
/// [rows, columns] u8 or bool, any strides. A whole [B, N1, S1, S2] mask is one call with B·N1·S1 rows.
/// fails  invalid_argument: keep_prob outside (0, 1], or keep not of rank 2 and one byte an element
[[nodiscard]] FASCORE_EXPORT Status dropout_keep(std::uint64_t seed, std::uint64_t offset, double keep_prob,
                                                 std::int64_t first_element, const TensorView& keep) noexcept;

}  // namespace fascore
