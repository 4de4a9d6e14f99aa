// SPDX-License-Identifier: Apache-2.0
//
// Attention with its keys cut into parts (I9). With each part's own statistics and output,
//
//   max = max_p max_p     sum = Σ_p exp(max_p − max)·sum_p     out = Σ_p exp(max_p − max)·sum_p·out_p / sum
//
// are those of the whole problem, and the gradient of a part given the whole's (max, sum, out) is the part's share.
#pragma once

#include <vector>

#include "support/scenario.h"

namespace fascore::test {

/// attention_out and statistics ([B,N1,S1,8]) of the whole from those of its parts, formed in f64 and rounded to the
/// parts' dtypes. A part whose row saw no key (max −FLT_MAX) weighs nothing.
[[nodiscard]] Results merge_parts(const std::vector<Results>& parts);

}  // namespace fascore::test
