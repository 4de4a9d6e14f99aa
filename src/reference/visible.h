// SPDX-License-Identifier: Apache-2.0
//
// The reference's own answer to "does row i see column j?", one pair at a time, as the operator's definition words it:
//
//   no atten_mask    sparse_mode and tokens mean nothing, every pair is visible
//   mode 0           mask(i,j) = 0  and  i − pre ≤ j ≤ i + next          tokens counted from the top left corner
//   mode 1           mask(i,j) = 0
//   mode 2           j ≤ i
//   mode 3           j ≤ i + δ                      δ = S2 − S1          causal to the bottom right corner
//   mode 4           i + δ − pre ≤ j ≤ i + δ + next                      tokens counted from the bottom right corner
//   and the rule     causal_top_left j ≤ i, causal_bottom_right j ≤ i + δ, window i + δ − left ≤ j ≤ i + δ + right
//
// This is the one sanctioned second copy of these rules. It shares nothing with problem/mask, which turns them into
// bands and words of bits, so that a mistake in either shows as a difference (tests/problem/mask_test.cpp).
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace fascore::reference {

[[nodiscard]] bool visible(const Problem& problem, std::int64_t b, std::int64_t n, std::int64_t i, std::int64_t j);

}  // namespace fascore::reference
