// SPDX-License-Identifier: Apache-2.0
//
// Watching a call and stopping it: the cancel token before and during a call, the progress callback, and the limits of
// the thread count. Nothing here measures time; how soon a call stops is counted in the units of its own progress.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/scenario.h"
#include "support/targets.h"

namespace fascore::test {
namespace {

/// Enough tiles that progress is reported in between, on every instruction set.
Case long_problem() {
    return {.name = "long_problem", .N1 = 2, .N2 = 2, .S1 = 2500, .S2 = 2500, .D = 64, .Dv = 64, .dtype = DType::f32};
}

/// What a progress callback saw; cancels when `cancel_at` units are done.
struct Watcher {
    std::vector<std::int64_t> done;
    std::vector<std::int64_t> total;
    std::thread::id caller;
    bool on_callers_thread = true;
    CancelToken* token = nullptr;
    std::int64_t cancel_at = 0;

    [[nodiscard]] ProgressCallback callback() {
        caller = std::this_thread::get_id();
        return {[](void* context, std::int64_t units, std::int64_t all) {
                    auto& self = *static_cast<Watcher*>(context);
                    self.done.push_back(units);
                    self.total.push_back(all);
                    self.on_callers_thread = self.on_callers_thread && std::this_thread::get_id() == self.caller;
                    if (self.token != nullptr && units >= self.cancel_at) self.token->cancel();
                },
                this};
    }
};

class Cancel : public ForEachIsa {};

TEST_P(Cancel, set_before_the_call) {
    const Scenario scenario = make_scenario(long_problem());
    CancelToken token;
    token.cancel();
    for (const int threads : thread_counts) {
        const Options run{.isa = isa(), .threads = threads, .cancel = &token};
        Results results = make_outputs(scenario, run);
        const Status status = forward(scenario, results, run);
        EXPECT_EQ(status.code(), StatusCode::cancelled);
        EXPECT_FALSE(status.message().empty());
        results.attention_out.fill(0.0);
        results.softmax_max.fill(0.0);
        results.softmax_sum.fill(1.0);
        EXPECT_EQ(backward(scenario, results, run).code(), StatusCode::cancelled);
    }
}

TEST_P(Cancel, set_by_the_progress_callback) {
    const Scenario scenario = make_scenario(long_problem());
    const Results given = run_forward(scenario, {.isa = isa(), .threads = 2});
    for (const int threads : thread_counts) {
        SCOPED_TRACE(threads);
        CancelToken token;
        Watcher watcher;
        watcher.token = &token;
        Options run{.isa = isa(), .threads = threads, .cancel = &token, .progress = watcher.callback()};
        Results results = make_outputs(scenario, run);
        EXPECT_EQ(forward(scenario, results, run).code(), StatusCode::cancelled);
        ASSERT_FALSE(watcher.done.empty());
        if (threads == 1) {  // who is alone reports its first tile; others may be far ahead of a caller without a core
            EXPECT_LT(watcher.done.back(), watcher.total.back() / 2);
        }
        EXPECT_LE(watcher.done.back() - watcher.done.front(), 2 * threads) << "forward went on after it was cancelled";

        token.reset();
        watcher = Watcher{};
        watcher.token = &token;
        run.progress = watcher.callback();
        results.attention_out = given.attention_out;
        results.softmax_max = given.softmax_max;
        results.softmax_sum = given.softmax_sum;
        EXPECT_EQ(backward(scenario, results, run).code(), StatusCode::cancelled);
        ASSERT_FALSE(watcher.done.empty());
        if (threads == 1) {
            EXPECT_LT(watcher.done.back(), watcher.total.back() / 2);
        }
        EXPECT_LE(watcher.done.back() - watcher.done.front(), 2 * threads) << "backward went on after it was cancelled";
    }
}

TEST_P(Cancel, set_from_another_thread) {
    const Scenario scenario = make_scenario(long_problem());
    const Results given = run_forward(scenario, {.isa = isa(), .threads = 2});
    CancelToken token;
    std::atomic<bool> started{false};
    const ProgressCallback tell{
        [](void* context, std::int64_t, std::int64_t) { static_cast<std::atomic<bool>*>(context)->store(true); },
        &started};
    std::atomic<bool> finished{false};
    std::thread canceller([&] {
        while (!started && !finished) std::this_thread::yield();
        token.cancel();
    });
    StatusCode code = StatusCode::ok;
    // The other thread may come too late on a busy machine, so the call is repeated until it was caught; it must be.
    for (int attempt = 0; attempt < 50 && code == StatusCode::ok; ++attempt) {
        const Options run{.isa = isa(), .threads = 2, .cancel = &token, .progress = tell};
        Results results = make_outputs(scenario, run);
        results.attention_out = given.attention_out;
        results.softmax_max = given.softmax_max;
        results.softmax_sum = given.softmax_sum;
        code = backward(scenario, results, run).code();
    }
    finished = true;
    canceller.join();
    EXPECT_EQ(code, StatusCode::cancelled);
}

TEST_P(Cancel, a_token_that_stays_clear_changes_nothing) {
    const Scenario scenario = make_scenario({.name = "clear", .S1 = 200, .S2 = 200, .D = 32, .Dv = 32});
    const Results expected = run_both(scenario, {.isa = isa()});
    CancelToken token;
    expect_same_bits(run_both(scenario, {.isa = isa(), .cancel = &token}), expected);
    token.cancel();
    token.reset();
    expect_same_bits(run_both(scenario, {.isa = isa(), .cancel = &token}), expected);
}

TEST_P(Cancel, the_next_call_after_a_cancelled_one_is_right) {
    const Scenario scenario = make_scenario(long_problem());
    const Results expected = run_forward(scenario, {.isa = isa(), .threads = 2});
    CancelToken token;
    token.cancel();
    const Options run{.isa = isa(), .threads = 2, .cancel = &token};
    Results results = make_outputs(scenario, run);
    EXPECT_EQ(forward(scenario, results, run).code(), StatusCode::cancelled);
    token.reset();
    EXPECT_TRUE(forward(scenario, results, run).ok());
    EXPECT_TRUE(equal_bits("attention_out", results.attention_out, expected.attention_out));
}

void expect_orderly(const Watcher& watcher) {
    ASSERT_FALSE(watcher.done.empty()) << "the callback was never called";
    EXPECT_TRUE(watcher.on_callers_thread);
    EXPECT_EQ(watcher.done.back(), watcher.total.back()) << "the last report must say that all is done";
    for (std::size_t at = 0; at < watcher.done.size(); ++at) {
        EXPECT_GE(watcher.done[at], at == 0 ? 0 : watcher.done[at - 1]);
        EXPECT_LE(watcher.done[at], watcher.total[at]);
        EXPECT_EQ(watcher.total[at], watcher.total[0]);
    }
}

TEST_P(Cancel, progress_never_falls_and_ends_at_the_total) {
    for (const Case& problem :
         {long_problem(), Case{.name = "small", .B = 2, .N1 = 3, .N2 = 3, .S1 = 10, .S2 = 10},
          Case{.name = "empty", .S2 = 0}, Case{.name = "causal", .S1 = 900, .S2 = 900, .rule = causal_top_left},
          Case{.name = "nothing_visible",
          .S1 = 100,
          .S2 = 100,
          .mask = MaskShape::compressed,
          .sparse_mode = 4,
          .pre_tokens = -200,
          .next_tokens = 300}}) {
        const Scenario scenario = make_scenario(problem);
        for (const int threads : thread_counts) {
            SCOPED_TRACE(problem.name + " threads " + std::to_string(threads));
            Watcher watcher;
            Options run{.isa = isa(), .threads = threads, .progress = watcher.callback()};
            const Results results = run_forward(scenario, run);
            expect_orderly(watcher);
            watcher = Watcher{};
            run.progress = watcher.callback();
            (void)run_backward(scenario, results, run);
            expect_orderly(watcher);
        }
    }
}

TEST_P(Cancel, progress_is_reported_more_than_once_in_a_long_call) {
    const Scenario scenario = make_scenario(long_problem());
    Watcher watcher;
    Options run{.isa = isa(), .threads = 2, .progress = watcher.callback()};
    const Results results = run_forward(scenario, run);
    EXPECT_GT(watcher.done.size(), 1U);
    watcher = Watcher{};
    run.progress = watcher.callback();
    (void)run_backward(scenario, results, run);
    EXPECT_GT(watcher.done.size(), 1U);
}

FASCORE_FOR_EACH_ISA(Cancel);

TEST(Threads, counts_outside_0_to_1024_are_refused) {
    const Scenario scenario = make_scenario({.name = "threads"});
    for (const int threads : {-1, 1025, 1 << 30}) {
        const Options run{.threads = threads};
        Results results = make_outputs(scenario, run);
        const Status status = forward(scenario, results, run);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument) << threads;
        EXPECT_NE(status.message().find("threads"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(std::to_string(threads)), std::string::npos) << status.message();
        EXPECT_NE(status.message().find("1024"), std::string::npos) << status.message();
        EXPECT_TRUE(results.attention_out.still_poisoned());
    }
}

TEST(Threads, limits_are_accepted) {
    const Scenario scenario = make_scenario({.name = "threads", .S1 = 200, .S2 = 200});
    const Results expected = run_both(scenario, {.threads = 1});
    expect_same_bits(run_both(scenario, {.threads = 0}), expected);
    expect_same_bits(run_both(scenario, {.threads = 1024}), expected);
}

TEST(Threads, the_default_is_a_count_that_can_be_asked_for) {
    int threads = 0;
    const Status status = default_threads(threads);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_GE(threads, 1);
    EXPECT_LE(threads, 1024);
}

}  // namespace
}  // namespace fascore::test
