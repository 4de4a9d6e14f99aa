// SPDX-License-Identifier: Apache-2.0
//
// The reference's own answer to "does row i see column j?", one pair at a time, as the operator's definition words it
// (δ = S2 − S1 of the batch; mask(i,j) ≠ 0 hides):
//
//   no atten_mask    sparse_mode, tokens and prefix mean nothing, every pair is visible
//   mode 0           mask(i,j) = 0  and  i − pre ≤ j ≤ i + next          tokens counted from the top left corner
//   mode 1, 5        mask(i,j) = 0                                       5: the mask is meant to say what 6 says
//   mode 2           j ≤ i
//   mode 3           j ≤ i + δ                                           causal to the bottom right corner
//   mode 4           i + δ − pre ≤ j ≤ i + δ + next                      tokens counted from the bottom right corner
//   mode 6           j < prefix[b]  or  j ≤ i + δ
//   mode 7           the last sequence that has queries as 4, the others as 3
//   mode 8           the first sequence that has queries as 4, the others as 2
//   and the rule     causal_top_left j ≤ i, causal_bottom_right j ≤ i + δ, window i + δ − left ≤ j ≤ i + δ + right
//
// This is the one sanctioned second copy of these rules. It shares nothing with problem/mask, which turns them into
// bands and words of bits, so that a mistake in either shows as a difference (tests/problem/mask_test.cpp).
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace fascore::reference {

/// The rule of one batch. Reads what the caller stated, the batch's lengths and its part of the mask tensor.
class Visibility {
  public:
    Visibility(const Problem& problem, const Batch& batch);
    [[nodiscard]] bool operator()(std::int64_t n, std::int64_t i, std::int64_t j) const;

  private:
    [[nodiscard]] bool masked_out(std::int64_t n, std::int64_t i, std::int64_t j) const;
    [[nodiscard]] bool by_sparse_mode(std::int64_t n, std::int64_t i, std::int64_t j) const;
    [[nodiscard]] bool by_rule(std::int64_t i, std::int64_t j) const;

    MaskTensor mask_;
    MaskRule rule_;
    bool mask_given_;
    int mode_;  // of this batch: 7 and 8 have become 2, 3 or 4
    std::int64_t delta_;
    std::int64_t pre_;
    std::int64_t next_;
    std::int64_t prefix_ = 0;
};

/// The same for one pair.
[[nodiscard]] inline bool visible(const Problem& problem, const Batch& batch, std::int64_t n, std::int64_t i,
                                  std::int64_t j) {
    return Visibility(problem, batch)(n, i, j);
}

}  // namespace fascore::reference
