// SPDX-License-Identifier: Apache-2.0
//
// The steps every public entry takes before anything runs: validate, choose kernels, plan.
#pragma once

#include <string>

#include "engine/engine.h"
#include "fascore/attention.h"
#include "kernels/kernel_table.h"
#include "plan/plan.h"
#include "problem/problem.h"
#include "problem/validate.h"

namespace fascore {

struct Prepared {
    Problem problem;
    Plan plan;
    const kernels::KernelTable* table = nullptr;
    const kernels::ComputeKernels* kernels = nullptr;
};

/// Chooses kernels and threads and plans a valid problem.
[[nodiscard]] Status prepare(const Execution& execution, Prepared& prepared);

template <class In, class Out>
[[nodiscard]] Status prepare(const AttentionParams& params, const In& in, const Out& out, const Execution& execution,
                             Pointers pointers, Prepared& prepared) {
    if (Status s = make_problem(params, in, out, pointers, Audience::engine, prepared.problem); !s.ok()) return s;
    return prepare(execution, prepared);
}

/// Runs body(), which may allocate, and turns what it throws into a Status: nothing crosses the public border.
template <class Body>
[[nodiscard]] Status guarded(const Body& body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return {StatusCode::out_of_memory, "workspace: the system has no memory for it"};
    } catch (...) {
        return {StatusCode::internal_error, "internal error"};
    }
}

}  // namespace fascore
