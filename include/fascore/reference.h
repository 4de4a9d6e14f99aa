// SPDX-License-Identifier: Apache-2.0
//
// The reference: the operator straight from its formulas in float64, O(S1·S2) time, one row of scores at a time. It
// shares no rule and no code with the engine. Use it to judge results, never to compute with.
//
// Outputs are views of dtype f64 (any strides), in the shapes attention.h gives. Statistics are f64 too.
// The gradient takes softmax_max, softmax_sum and attention_out as given when they are present and computes the
// exact ones itself when they are absent.
#pragma once

#include <cstdint>

#include "fascore/attention.h"
#include "fascore/export.h"
#include "fascore/status.h"

namespace fascore {

/// How the formulas are evaluated.
///   exact   every step in float64
///   plain   what an unfused framework does in the dtype of the inputs: each step (scores, scaled scores,
///           probabilities, dP, dS, outputs) is a tensor of that dtype, rounded once; sums inside a step in f32. The
///           yardstick for our own error. Needs O(S1·S2) memory per head.
enum class Evaluation : std::uint8_t { exact, plain };

[[nodiscard]] FASCORE_EXPORT Status reference_forward(const AttentionParams& params, const ForwardInputs& in,
                                                      const ForwardOutputs& out,
                                                      Evaluation evaluation = Evaluation::exact) noexcept;
[[nodiscard]] FASCORE_EXPORT Status reference_backward(const AttentionParams& params, const BackwardInputs& in,
                                                       const BackwardOutputs& out,
                                                       Evaluation evaluation = Evaluation::exact) noexcept;

}  // namespace fascore
