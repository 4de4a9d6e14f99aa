// SPDX-License-Identifier: Apache-2.0
//
// plan.h implemented: the plan as a value for people.
#include "fascore/plan.h"

#include <new>

#include "api/prepare.h"
#include "plan/cost.h"

namespace fascore {

namespace {

void describe(const Prepared& prepared, PlanInfo& info) {
    const Problem& problem = prepared.problem;
    const Plan& plan = prepared.plan;
    const kernels::ComputeKernels& kernels = *prepared.kernels;
    info.B = problem.B;
    info.N1 = problem.N1;
    info.N2 = problem.N2;
    info.S1 = problem.S1;
    info.S2 = problem.S2;
    info.D = problem.D;
    info.Dv = problem.Dv;
    info.dtype = problem.dtype;
    info.isa = prepared.table->name;
    info.compute = kernels.name;
    info.kernel = std::to_string(kernels.mr) + "x" + std::to_string(kernels.nr) + " " + kernels.name +
                  (kernels.step > 1 ? " dot" : " multiply-add");
    info.threads = static_cast<int>(plan.threads);
    info.Br = plan.Br;
    info.Bc = plan.Bc;
    const Cost cost = count_cost(problem, plan);
    info.tiles_full = cost.tiles_full;
    info.tiles_partial = cost.tiles_partial;
    info.tiles_skipped = cost.tiles_skipped;
    info.visible_pairs = cost.visible_pairs;
    info.operations = cost.operations;
    for (const Workspace::Line& line : plan.workspace.lines()) {
        info.workspace.push_back({line.name, line.bytes_each, line.copies});
    }
    info.workspace_bytes = plan.workspace.total_bytes();
}

template <class In, class Out>
Status make_info(const AttentionParams& params, const In& in, const Out& out, const Execution& execution,
                 PlanInfo& plan) noexcept {
    return guarded([&]() -> Status {
        Prepared prepared;
        if (Status s = prepare(params, in, out, execution, Pointers::ignored, prepared); !s.ok()) return s;
        PlanInfo info;
        describe(prepared, info);
        plan = std::move(info);
        return {};
    });
}

}  // namespace

Status plan_forward(const AttentionParams& params, const ForwardInputs& in, const ForwardOutputs& out,
                    const Execution& execution, PlanInfo& plan) noexcept {
    return make_info(params, in, out, execution, plan);
}

Status plan_backward(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out,
                     const Execution& execution, PlanInfo& plan) noexcept {
    return make_info(params, in, out, execution, plan);
}

}  // namespace fascore
