// SPDX-License-Identifier: Apache-2.0
#include "fascore/reference.h"

#include <new>

#include "problem/validate.h"
#include "reference/reference.h"

namespace fascore {

namespace {

// Validate, evaluate, and let no exception out.
template <class Inputs, class Outputs, class Evaluate>
Status run(const AttentionParams& params, const Inputs& in, const Outputs& out, Evaluate evaluate) noexcept {
    try {
        Problem problem;
        Status status = make_problem(params, in, out, Pointers::required, Audience::reference, problem);
        if (status.ok()) evaluate(problem);
        return status;
    } catch (const std::bad_alloc&) {
        return {StatusCode::out_of_memory, "reference: no memory"};  // short enough to need none itself
    } catch (...) {
        return {StatusCode::internal_error, {}};
    }
}

}  // namespace

Status reference_forward(const AttentionParams& params, const ForwardInputs& in, const ForwardOutputs& out,
                         Evaluation evaluation) noexcept {
    return run(params, in, out, [&](const Problem& problem) { reference::forward(problem, evaluation); });
}

Status reference_backward(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out,
                          Evaluation evaluation) noexcept {
    return run(params, in, out, [&](const Problem& problem) { reference::backward(problem, evaluation); });
}

}  // namespace fascore
