// SPDX-License-Identifier: Apache-2.0
//
// The library's calls on a problem of the tools: see pipeline.h.
#include "pipeline.h"

#include <utility>

#include "command.h"
#include "progress.h"

namespace fascore::cli {
namespace {

constexpr GradientSlot slots[] = {
    {"dq", "dQ", &GradientResult::dq, &BackwardOutputs::dq, &Problem::query},
    {"dk", "dK", &GradientResult::dk, &BackwardOutputs::dk, &Problem::key},
    {"dv", "dV", &GradientResult::dv, &BackwardOutputs::dv, &Problem::value},
    {"dq_rope", "dQ_rope", &GradientResult::dq_rope, &BackwardOutputs::dq_rope, &Problem::query_rope},
    {"dk_rope", "dK_rope", &GradientResult::dk_rope, &BackwardOutputs::dk_rope, &Problem::key_rope},
    {"dpse", "dPSE", &GradientResult::dpse, &BackwardOutputs::dpse, &Problem::pse},
    {"dsink", "dSink", &GradientResult::dsink, &BackwardOutputs::dsink, &Problem::sink},
};

/// A call of the library, watched and stoppable.
template <class Call>
void run_watched(const Problem& problem, const char* label, const Call& call) {
    const InterruptScope scope;
    ProgressBar bar(label);
    Execution execution = problem.execution();
    execution.cancel = &interrupt_token();
    execution.progress = bar.callback();
    require(call(execution));
}

}  // namespace

void ForwardResult::allocate() {
    for (HostTensor* tensor : {&attention_out, &softmax_max, &softmax_sum}) tensor->allocate();
}

BackwardOutputs GradientResult::outputs() {
    BackwardOutputs out;
    for (const GradientSlot& slot : slots) out.*slot.view = (this->*slot.tensor).view();
    return out;
}

void GradientResult::allocate() {
    for (const GradientSlot& slot : slots) {
        if ((this->*slot.tensor).present()) (this->*slot.tensor).allocate();
    }
}

std::span<const GradientSlot> gradient_slots() noexcept { return slots; }

std::vector<const HostTensor*> tensors_of(const GradientResult& result) {
    std::vector<const HostTensor*> tensors;
    for (const GradientSlot& slot : slots) {
        if ((result.*slot.tensor).present()) tensors.push_back(&(result.*slot.tensor));
    }
    return tensors;
}

ForwardResult forward_result(const Problem& problem, DType attention, DType statistics) {
    return {HostTensor("attention_out", attention, problem.attention_shape()),
            HostTensor("softmax_max", statistics, problem.statistic_shape()),
            HostTensor("softmax_sum", statistics, problem.statistic_shape())};
}

GradientResult gradient_result(const Problem& problem, std::optional<DType> dtype) {
    GradientResult result;
    for (const GradientSlot& slot : slots) {
        const HostTensor& input = problem.*slot.input;
        if (!input.present() || (slot.input == &Problem::pse && !problem.dbias)) continue;
        // Data tensors are all of one dtype; pse and sink have their own.
        const DType own = input.dtype() == problem.dtype ? problem.out_dtype : input.dtype();
        result.*slot.tensor = HostTensor(slot.name, dtype.value_or(own), input.shape());
    }
    return result;
}

DType exact_attention_dtype(const Problem& problem) noexcept {
    return problem.dtype == DType::f64 ? DType::f64 : DType::f32;
}

GradientInputs::GradientInputs(const Problem& problem)
    : stand_in(forward_result(problem, exact_attention_dtype(problem), problem.statistic_dtype())),
      in(problem.backward_inputs()) {
    if (!in.softmax_max.present()) in.softmax_max = stand_in.softmax_max.view();
    if (!in.softmax_sum.present()) in.softmax_sum = stand_in.softmax_sum.view();
    if (!in.attention_out.present()) in.attention_out = stand_in.attention_out.view();
}

PlanInfo plan_forward_of(const Problem& problem, DType attention) {
    ForwardResult result = forward_result(problem, attention, problem.statistic_dtype());
    PlanInfo plan;
    require(plan_forward(problem.params, problem.forward_inputs(), result.outputs(), problem.execution(), plan));
    return plan;
}

PlanInfo plan_gradient_of(const Problem& problem) {
    const GradientInputs inputs(problem);
    GradientResult result = gradient_result(problem);
    PlanInfo plan;
    require(plan_backward(problem.params, inputs.in, result.outputs(), problem.execution(), plan));
    return plan;
}

ForwardResult run_forward(const Problem& problem, DType attention) {
    ForwardResult result = forward_result(problem, attention, problem.statistic_dtype());
    result.allocate();
    run_watched(problem, "forward", [&](const Execution& execution) {
        return attention_forward(problem.params, problem.forward_inputs(), result.outputs(), execution);
    });
    return result;
}

bool forward_is_needed(const Problem& problem) noexcept {
    return !problem.softmax_max.present() || !problem.softmax_sum.present() || !problem.attention_out.present();
}

void complete_forward(Problem& problem) {
    if (!forward_is_needed(problem)) return;
    ForwardResult result = run_forward(problem, exact_attention_dtype(problem));
    if (!problem.softmax_max.present()) problem.softmax_max = std::move(result.softmax_max);
    if (!problem.softmax_sum.present()) problem.softmax_sum = std::move(result.softmax_sum);
    if (!problem.attention_out.present()) problem.attention_out = std::move(result.attention_out);
}

GradientResult run_gradient(const Problem& problem) {
    GradientResult result = gradient_result(problem);
    result.allocate();
    run_watched(problem, "gradient", [&](const Execution& execution) {
        return attention_backward(problem.params, problem.backward_inputs(), result.outputs(), execution);
    });
    return result;
}

ForwardResult run_reference_forward(const Problem& problem, Evaluation evaluation) {
    const WaitNote note(evaluation == Evaluation::exact ? "reference forward ..." : "plain forward ...");
    ForwardResult result = forward_result(problem, DType::f64, DType::f64);
    result.allocate();
    require(reference_forward(problem.params, problem.forward_inputs(), result.outputs(), evaluation));
    return result;
}

GradientResult run_reference_gradient(const Problem& problem, const BackwardInputs& in, Evaluation evaluation) {
    const WaitNote note(evaluation == Evaluation::exact ? "reference gradient ..." : "plain gradient ...");
    GradientResult result = gradient_result(problem, DType::f64);
    result.allocate();
    require(reference_backward(problem.params, in, result.outputs(), evaluation));
    return result;
}

}  // namespace fascore::cli
