// SPDX-License-Identifier: Apache-2.0
//
// What check, score, grad, verify and bench have in common: outputs sized to a problem, and the library's calls on
// them with progress and Ctrl-C.
//
//   judge_*  and  plan_*     a described problem is enough, no data is touched
//   run_*                    a loaded problem; throw Failure when the library refuses or the user interrupts
//
// The gradient needs what the forward left behind. A file may bring it; complete_forward() computes whatever is absent.
// An attention_out made here for 16-bit and 8-bit problems is kept in f32: it only feeds rowsum(dy * attention_out),
// which then carries no rounding of a 16-bit intermediate.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "fascore/attention.h"
#include "fascore/plan.h"
#include "fascore/reference.h"
#include "host_tensor.h"
#include "problem.h"

namespace fascore::cli {

struct ForwardResult {
    HostTensor attention_out, softmax_max, softmax_sum;
    [[nodiscard]] ForwardOutputs outputs() { return {attention_out.view(), softmax_max.view(), softmax_sum.view()}; }
    void allocate();
};

/// Absent where the problem has no such input: dq_rope and dk_rope, dpse (unless Problem::dbias asks), dsink.
struct GradientResult {
    HostTensor dq, dk, dv, dq_rope, dk_rope, dpse, dsink;
    [[nodiscard]] BackwardOutputs outputs();
    void allocate();
};

/// One output of the gradient.
struct GradientSlot {
    const char* name;
    const char* label;  ///< as the operator's own test prints it
    HostTensor GradientResult::*tensor;
    TensorView BackwardOutputs::*view;
    HostTensor Problem::*input;  ///< whose gradient it is
};

/// All of them, in the order in which they are printed and written.
[[nodiscard]] std::span<const GradientSlot> gradient_slots() noexcept;

/// The present ones.
[[nodiscard]] std::vector<const HostTensor*> tensors_of(const GradientResult& result);

/// Outputs of the problem's calls, described. The gradient's dtypes are the operator's, or the one that is given.
[[nodiscard]] ForwardResult forward_result(const Problem& problem, DType attention, DType statistics);
[[nodiscard]] GradientResult gradient_result(const Problem& problem, std::optional<DType> dtype = std::nullopt);

/// The dtype an attention_out made for the gradient is kept in: f32 for 16-bit and 8-bit problems.
[[nodiscard]] DType exact_attention_dtype(const Problem& problem) noexcept;

/// What the gradient call will be given, stand-ins without data for what complete_forward() would still compute.
struct GradientInputs {
    explicit GradientInputs(const Problem& problem);
    ForwardResult stand_in;
    BackwardInputs in;
};

[[nodiscard]] PlanInfo plan_forward_of(const Problem& problem, DType attention);
[[nodiscard]] PlanInfo plan_gradient_of(const Problem& problem);

[[nodiscard]] ForwardResult run_forward(const Problem& problem, DType attention);

/// True when the file did not bring everything the gradient needs.
[[nodiscard]] bool forward_is_needed(const Problem& problem) noexcept;

/// Fills the absent ones of softmax_max, softmax_sum and attention_out.
void complete_forward(Problem& problem);

/// Needs a completed problem.
[[nodiscard]] GradientResult run_gradient(const Problem& problem);

/// f64 results from the formulas. `in` may lack statistics and attention_out: exact ones are then taken.
[[nodiscard]] ForwardResult run_reference_forward(const Problem& problem, Evaluation evaluation);
[[nodiscard]] GradientResult run_reference_gradient(const Problem& problem, const BackwardInputs& in,
                                                    Evaluation evaluation);

}  // namespace fascore::cli
