// SPDX-License-Identifier: Apache-2.0
//
// attention.h implemented: problem → plan → engine, Status out. Forward and backward differ in their structs and in the
// engine's entry; everything else is one template.
#include "fascore/attention.h"

#include <cmath>
#include <memory>
#include <new>
#include <string>

#include "api/prepare.h"
#include "engine/tile.h"
#include "fascore/info.h"
#include "kernels/select.h"

namespace fascore {

namespace {

constexpr int most_threads = 1024;

// Outputs of a problem with an empty extent: what has elements is filled with zeros (docs/operator.md).
void fill_empty(const Problem& problem) {
    const auto zero = [&](const Result& result, std::int64_t heads, std::int64_t rows, std::int64_t columns) {
        if (!result.wanted) return;
        for (std::int64_t b = 0; b < problem.B; ++b) {
            for (std::int64_t n = 0; n < heads; ++n) zero_rows(result, b, n, {0, rows}, columns);
        }
    };
    zero(problem.attention_out, problem.N1, problem.S1, problem.Dv);
    zero(problem.dq, problem.N1, problem.S1, problem.D);
    zero(problem.dk, problem.N2, problem.S2, problem.D);
    zero(problem.dv, problem.N2, problem.S2, problem.Dv);
    if (problem.direction == Direction::backward) return;
    for (const Statistic* statistic : {&problem.softmax_max, &problem.softmax_sum}) {
        if (!statistic->wanted) continue;
        for (std::int64_t b = 0; b < problem.B; ++b) {
            for (std::int64_t n = 0; n < problem.N1; ++n) {
                for (std::int64_t s = 0; s < problem.S1; ++s) {
                    for (std::int64_t copy = 0; copy < statistic->copies; ++copy) {
                        store_scalar(address(*statistic, b, n, s, copy), statistic->dtype, 0.0);
                    }
                }
            }
        }
    }
}

template <class In, class Out>
Status workspace_bytes(const AttentionParams& params, const In& in, const Out& out, const Execution& execution,
                       std::size_t& bytes) noexcept {
    return guarded([&]() -> Status {
        Prepared prepared;
        if (Status s = prepare(params, in, out, execution, Pointers::ignored, prepared); !s.ok()) return s;
        bytes = prepared.plan.workspace.total_bytes();
        return {};
    });
}

Status run(const Prepared& prepared, const Execution& execution, std::byte* workspace) {
    if (prepared.problem.empty()) {
        fill_empty(prepared.problem);
        return {};
    }
    const auto entry = prepared.problem.direction == Direction::forward ? run_forward : run_backward;
    return entry(prepared.problem, prepared.plan, *prepared.kernels, execution, workspace);
}

template <class In, class Out>
Status run_in(const AttentionParams& params, const In& in, const Out& out, const Execution& execution,
              std::span<std::byte> workspace) noexcept {
    return guarded([&]() -> Status {
        Prepared prepared;
        if (Status s = prepare(params, in, out, execution, Pointers::required, prepared); !s.ok()) return s;
        const std::size_t needed = prepared.plan.workspace.total_bytes();
        if (workspace.size() < needed) {
            return {StatusCode::workspace_too_small, "workspace: " + std::to_string(workspace.size()) +
                                                         " bytes, must be at least " + std::to_string(needed)};
        }
        return run(prepared, execution, workspace.data());
    });
}

template <class In, class Out>
Status run_alone(const AttentionParams& params, const In& in, const Out& out, const Execution& execution) noexcept {
    return guarded([&]() -> Status {
        Prepared prepared;
        if (Status s = prepare(params, in, out, execution, Pointers::required, prepared); !s.ok()) return s;
        const std::size_t needed = prepared.plan.workspace.total_bytes();
        const std::unique_ptr<std::byte[]> workspace(needed == 0 ? nullptr : new (std::nothrow) std::byte[needed]);
        if (needed != 0 && workspace == nullptr) {
            return {StatusCode::out_of_memory,
                    "workspace: " + std::to_string(needed) + " bytes, the system has no memory for it"};
        }
        return run(prepared, execution, workspace.get());
    });
}

}  // namespace

Status prepare(const Execution& execution, Prepared& prepared) {
    if (execution.threads < 0 || execution.threads > most_threads) {
        return {StatusCode::invalid_argument, "threads: " + std::to_string(execution.threads) +
                                                  ", must be 0 (the default) to " + std::to_string(most_threads)};
    }
    int threads = execution.threads;
    if (threads == 0) {
        if (Status s = default_threads(threads); !s.ok()) return s;
    }
    std::string why;
    if (Status s = kernels::select_table(execution.isa, prepared.table, why); !s.ok()) return s;
    prepared.kernels = &compute_for(*prepared.table, prepared.problem.dtype);
    prepared.plan = make_plan(prepared.problem, shape_of(*prepared.kernels), threads);
    return {};
}

Status forward_workspace_bytes(const AttentionParams& params, const ForwardInputs& in, const ForwardOutputs& out,
                               const Execution& execution, std::size_t& bytes) noexcept {
    return workspace_bytes(params, in, out, execution, bytes);
}

Status backward_workspace_bytes(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out,
                                const Execution& execution, std::size_t& bytes) noexcept {
    return workspace_bytes(params, in, out, execution, bytes);
}

Status attention_forward(const AttentionParams& params, const ForwardInputs& in, const ForwardOutputs& out,
                         const Execution& execution, std::span<std::byte> workspace) noexcept {
    return run_in(params, in, out, execution, workspace);
}

Status attention_backward(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out,
                          const Execution& execution, std::span<std::byte> workspace) noexcept {
    return run_in(params, in, out, execution, workspace);
}

Status attention_forward(const AttentionParams& params, const ForwardInputs& in, const ForwardOutputs& out,
                         const Execution& execution) noexcept {
    return run_alone(params, in, out, execution);
}

Status attention_backward(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out,
                          const Execution& execution) noexcept {
    return run_alone(params, in, out, execution);
}

}  // namespace fascore
