// SPDX-License-Identifier: Apache-2.0
//
// attention.h implemented: problem → plan → engine, Status out. Forward and backward differ in their structs and in the
// engine's entry; everything else is one template.
#include "fascore/attention.h"

#include <algorithm>
#include <array>
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

void zero_statistic(const Statistic& statistic, std::int64_t n, Range rows) {
    if (!statistic.wanted) return;
    for (std::int64_t s = rows.begin; s < rows.end; ++s) {
        for (std::int64_t copy = 0; copy < statistic.copies; ++copy) {
            store_scalar(address(statistic, n, s, copy), statistic.dtype, 0.0);
        }
    }
}

// Zero-fills rows of every tensor of a batch: query side and key side.
void zero_query_side(const Problem& problem, const Batch& batch, Range rows) {
    for (std::int64_t n = 0; n < problem.N1; ++n) {
        zero_rows(batch.attention_out, n, rows, problem.Dv);
        zero_rows(dq_rows(batch), n, rows);
        if (problem.direction == Direction::backward) continue;
        zero_statistic(batch.softmax_max, n, rows);
        zero_statistic(batch.softmax_sum, n, rows);
    }
}
void zero_key_side(const Problem& problem, const Batch& batch, Range rows) {
    for (std::int64_t n = 0; n < problem.N2; ++n) {
        zero_rows(dk_rows(batch), n, rows);
        zero_rows(dv_rows(batch), n, rows);
    }
}

// Outputs of a problem with an empty extent: what has elements is filled with zeros (docs/operator.md).
void fill_empty(const Problem& problem) {
    for (std::int64_t b = 0; b < problem.B; ++b) {
        const Batch batch = problem.batch(b);
        zero_query_side(problem, batch, {0, batch.S1});
        zero_key_side(problem, batch, {0, batch.S2});
    }
}

// Every element of a view, along its strides.
void zero_view(const TensorView& view) {
    if (view.data == nullptr || view.rank == 0 || view.count() == 0) return;
    std::array<std::int64_t, max_rank> at{};
    for (;;) {
        std::int64_t offset = 0;
        for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
            offset += at[axis] * view.stride[axis];
        }
        store_scalar(static_cast<std::byte*>(view.data) + offset * size_of(view.dtype), view.dtype, 0.0);
        auto axis = static_cast<std::size_t>(view.rank);
        while (axis > 0 && ++at[axis - 1] == view.shape[axis - 1]) at[--axis] = 0;
        if (axis == 0) return;
    }
}

// The gradients that are no rows of a batch.
void fill_empty_rest(const ForwardOutputs& /*out*/) {}
void fill_empty_rest(const BackwardOutputs& out) {
    zero_view(out.dpse);
    zero_view(out.dsink);
}

// TND: rows after the last sequence belong to nobody; their outputs are zeros.
void fill_unused(const Problem& problem) {
    if (!problem.packed) return;
    std::int64_t used_1 = 0;
    std::int64_t used_2 = 0;
    for (const Sequence& sequence : problem.sequences) {
        used_1 = std::max(used_1, sequence.q_begin + sequence.S1);
        used_2 = std::max(used_2, sequence.k_begin + sequence.S2);
    }
    // The Problem itself is a Batch that begins at row 0 of everything, with its tensors' own strides.
    zero_query_side(problem, problem, {used_1, problem.T1});
    zero_key_side(problem, problem, {used_2, problem.T2});
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

template <class Out>
Status run(const Prepared& prepared, const Out& out, const Execution& execution, std::byte* workspace) {
    if (prepared.problem.empty()) {
        fill_empty(prepared.problem);
        fill_unused(prepared.problem);
        fill_empty_rest(out);
        if (execution.progress.function != nullptr) execution.progress.function(execution.progress.context, 0, 0);
        return {};
    }
    fill_unused(prepared.problem);
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
        return run(prepared, out, execution, workspace.data());
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
        return run(prepared, out, execution, workspace.get());
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
