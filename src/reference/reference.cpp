// SPDX-License-Identifier: Apache-2.0
//
// The whole call: every (batch, kv head) through group.h, and what belongs to no row of any of them.
//
//   threads    groups that add to an element together run one after the other, in order of b and then kv head: same
//              bits for any number of threads. Alone they write attention_out, statistics, dq, dk, dv; they share
//              elements of dsink and of a broadcast dpse over batches, and of a dpse for all heads over heads:
//
//                                     chain                      chains
//                shares nothing       a group                    B · N2
//                over batches         b = 0, 1, …                N2
//                over heads           h = 0, 1, …                B
//                over both            all groups                 1
//
//   zeros      of a call with an empty extent, every output; of a TND call, rows after the last sequence and those of
//              sequences with no rows on the other side. Statistics of a row with no keys at all are 0.
#include "reference/reference.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "reference/bias.h"
#include "reference/group.h"
#include "reference/tensors.h"

namespace fascore::reference {

namespace {

// Which groups share elements of an output.
struct Sharing {
    bool over_batches = false;
    bool over_heads = false;
};

Sharing sharing_of(const Problem& problem) {
    const bool dpse = problem.dpse.wanted;
    return {problem.dsink.wanted || (dpse && problem.bias.over_batches), dpse && problem.bias.over_heads};
}

// work(b, kv head) for every pair, chains side by side on as many threads as the machine has. The first exception is
// thrown on.
template <class Work>
void each_group(const Problem& problem, const Sharing& sharing, Work work) {
    const std::int64_t batches = sharing.over_batches ? 1 : problem.B;  // chains by their first group
    const std::int64_t heads = sharing.over_heads ? 1 : problem.N2;
    const std::int64_t chains = batches * heads;
    std::atomic<std::int64_t> next{0};
    std::mutex guard;
    std::exception_ptr failure;
    const auto take = [&]() noexcept {
        for (std::int64_t chain = next.fetch_add(1); chain < chains; chain = next.fetch_add(1)) {
            try {
                for (std::int64_t b = chain / heads; b < problem.B; b += batches) {
                    for (std::int64_t h = chain % heads; h < problem.N2; h += heads) work(b, h);
                }
            } catch (...) {
                const std::lock_guard<std::mutex> lock(guard);
                failure = std::current_exception();
                next.store(chains);
            }
        }
    };
    std::vector<std::thread> helpers;
    try {
        for (std::int64_t t = 1; t < std::min<std::int64_t>(chains, hardware_threads()); ++t)
            helpers.emplace_back(take);
    } catch (...) {
        // No more threads to be had: those that started are enough.
    }
    take();
    for (std::thread& helper : helpers) helper.join();
    if (failure) std::rethrow_exception(failure);
}

// f64 inputs are evaluated in f64 either way.
bool in_f64(const Problem& problem, Evaluation evaluation) {
    return evaluation == Evaluation::exact || problem.dtype == DType::f64;
}

// run(group) for every group that has pairs.
template <class Run>
void evaluate(const Problem& problem, Evaluation evaluation, const Sharing& sharing, Run run) {
    each_group(problem, sharing, [&](std::int64_t b, std::int64_t kv_head) {
        const Batch batch = problem.batch(b);
        if (batch.S1 == 0 || batch.S2 == 0) return;
        if (in_f64(problem, evaluation)) {
            Group<Exact> group(problem, batch, kv_head);
            run(group);
        } else {
            Group<Plain> group(problem, batch, kv_head);
            run(group);
        }
    });
}

void zero_gradients(const Problem& problem) {
    const std::int64_t S1 = problem.packed ? problem.T1 : problem.S1;
    const std::int64_t S2 = problem.packed ? problem.T2 : problem.S2;
    const std::int64_t own = problem.D - problem.Dr;
    zero(problem, problem.dq, problem.N1, S1, own);
    zero(problem, problem.dq_rope, problem.N1, S1, problem.Dr);
    zero(problem, problem.dk, problem.N2, S2, own);
    zero(problem, problem.dk_rope, problem.N2, S2, problem.Dr);
    zero(problem, problem.dv, problem.N2, S2, problem.Dv);
}

}  // namespace

void forward(const Problem& problem, Evaluation evaluation) {
    if (problem.packed || problem.empty()) {
        const std::int64_t rows = problem.packed ? problem.T1 : problem.S1;
        zero(problem, problem.attention_out, problem.N1, rows, problem.Dv);
        zero(problem, problem.softmax_max, problem.N1, rows);
        zero(problem, problem.softmax_sum, problem.N1, rows);
    }
    if (problem.empty()) return;
    evaluate(problem, evaluation, {}, [](auto& group) { group.forward(); });
}

void backward(const Problem& problem, Evaluation evaluation) {
    if (problem.packed || problem.empty()) zero_gradients(problem);
    // These two are sums over rows of several groups.
    if (problem.dpse.wanted) each_dpse(problem, [](double) { return 0.0; });
    for (std::int64_t n = 0; problem.dsink.wanted && n < problem.N1; ++n) {
        store_scalar(element(problem.dsink, n * problem.dsink.stride.n), problem.dsink.dtype, 0.0);
    }
    if (problem.empty()) return;
    evaluate(problem, evaluation, sharing_of(problem), [](auto& group) { group.backward(); });
    if (problem.dpse.wanted && !in_f64(problem, evaluation)) {
        each_dpse(problem, [&](double sum) {
            return static_cast<double>(Plain::as(problem.bias.dtype, static_cast<float>(sum)));
        });
    }
}

}  // namespace fascore::reference
