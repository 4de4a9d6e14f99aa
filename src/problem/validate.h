// SPDX-License-Identifier: Apache-2.0
//
// From the public structs to a Problem, or a refusal. The only place in the library that refuses a problem, and the
// only one that writes such messages: "<parameter>: <given>, <allowed>".
#pragma once

#include "fascore/attention.h"
#include "problem/problem.h"

namespace fascore {

/// Whether data pointers must be there: a workspace query or a plan looks at shapes alone.
enum class Pointers : std::uint8_t { ignored, required };

/// Who asks. The reference writes f64 and needs no statistics; the engine writes the dtype of query (or f32
/// attention_out) and needs them.
enum class Audience : std::uint8_t { engine, reference };

[[nodiscard]] Status make_problem(const AttentionParams& params, const ForwardInputs& in, const ForwardOutputs& out,
                                  Pointers pointers, Audience audience, Problem& problem);
[[nodiscard]] Status make_problem(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out,
                                  Pointers pointers, Audience audience, Problem& problem);

}  // namespace fascore
