// SPDX-License-Identifier: Apache-2.0
//
// Same bits: for every thread count, every run, every layout of the same values, whatever the workspace and the outputs
// held before, alone or among other heads and batches, and with other calls running at the same time.
//
// Nothing here looks at how right the bits are (oracle_test.cpp does); these tests compare runs with each other.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "support/scenario.h"
#include "support/targets.h"

namespace fascore::test {
namespace {

using enum DType;

/// Problems whose work can be cut in different ways: many heads, one long head, groups, masks, empty parts.
std::vector<Case> cuttable() {
    return {
        {.name = "many_heads", .B = 3, .N1 = 5, .N2 = 5, .S1 = 70, .S2 = 70, .D = 32, .Dv = 32, .dtype = bf16},
        {.name = "many_heads_f32", .B = 3, .N1 = 5, .N2 = 5, .S1 = 70, .S2 = 70, .D = 32, .Dv = 32, .dtype = f32},
        {.name = "one_long_head", .S1 = 1500, .S2 = 1500, .D = 64, .Dv = 64, .dtype = bf16},
        {.name = "one_long_head_causal",
         .S1 = 1500,
         .S2 = 1500,
         .D = 64,
         .Dv = 64,
         .dtype = bf16,
         .rule = causal_top_left},
        {.name = "one_long_head_f32", .S1 = 900, .S2 = 1100, .D = 48, .Dv = 40, .dtype = f32},
        {.name = "one_long_head_f64", .S1 = 500, .S2 = 700, .D = 32, .Dv = 32, .dtype = f64},
        {.name = "one_long_head_f16", .S1 = 700, .S2 = 900, .D = 64, .Dv = 64, .dtype = f16},
        {.name = "one_query_long_keys", .N1 = 2, .N2 = 1, .S1 = 1, .S2 = 3000, .D = 64, .Dv = 64, .dtype = bf16},
        // dq in four streams, and in two of which a row block sees one or both.
        {.name = "four_streams", .S1 = 300, .S2 = 4300, .D = 16, .Dv = 16, .dtype = f32, .rule = causal_bottom_right},
        {.name = "two_streams", .S1 = 2200, .S2 = 2200, .D = 16, .Dv = 16, .dtype = f32, .rule = window(100, 0)},
        // Fewer query blocks in the ring than in the head, however many threads.
        {.name = "ring_of_groups",
         .N1 = 4,
         .N2 = 2,
         .S1 = 4200,
         .S2 = 4200,
         .D = 16,
         .Dv = 16,
         .dtype = bf16,
         .rule = window(150, 40)},
        {.name = "group_of_8",
         .N1 = 8,
         .N2 = 1,
         .S1 = 300,
         .S2 = 400,
         .D = 64,
         .Dv = 64,
         .dtype = bf16,
         .rule = causal_bottom_right},
        {.name = "window",
         .N1 = 2,
         .N2 = 2,
         .S1 = 800,
         .S2 = 800,
         .D = 64,
         .Dv = 64,
         .dtype = bf16,
         .rule = window(100, 0)},
        {.name = "masked",
         .N1 = 2,
         .N2 = 2,
         .S1 = 300,
         .S2 = 500,
         .D = 64,
         .Dv = 64,
         .dtype = bf16,
         .mask = MaskShape::b1ss,
         .mask_content = MaskContent::random_empty_rows,
         .sparse_mode = 1},
        {.name = "tall",
         .N1 = 1,
         .N2 = 1,
         .S1 = 2000,
         .S2 = 30,
         .D = 64,
         .Dv = 64,
         .dtype = bf16,
         .rule = causal_bottom_right},
    };
}

class Determinism : public ForEachIsa {};

TEST_P(Determinism, any_thread_count_gives_the_same_bits) {
    for (const Case& problem : cuttable()) {
        SCOPED_TRACE(problem.name);
        const Scenario scenario = make_scenario(problem);
        const Results expected = run_both(scenario, {.isa = isa(), .threads = 1});
        for (const int threads : thread_counts) {
            SCOPED_TRACE(threads);
            expect_same_bits(run_both(scenario, {.isa = isa(), .threads = threads}), expected);
        }
    }
}

TEST_P(Determinism, the_machines_own_thread_count_gives_the_same_bits) {
    const Scenario scenario = make_scenario(cuttable()[3]);
    const Results expected = run_both(scenario, {.isa = isa(), .threads = 1});
    expect_same_bits(run_both(scenario, {.isa = isa(), .threads = 0}), expected);
    expect_same_bits(run_both(scenario, {.isa = isa(), .threads = 37}), expected);
}

TEST_P(Determinism, every_run_gives_the_same_bits) {
    for (const std::size_t row : {0U, 3U, 8U}) {
        const Scenario scenario = make_scenario(cuttable()[row]);
        SCOPED_TRACE(scenario.problem.name);
        const Results expected = run_both(scenario, {.isa = isa(), .threads = 2});
        for (int repetition = 0; repetition < 10; ++repetition) {
            expect_same_bits(run_both(scenario, {.isa = isa(), .threads = 2}), expected);
        }
    }
}

TEST_P(Determinism, what_the_workspace_held_does_not_matter) {
    for (const Case& problem : cuttable()) {
        SCOPED_TRACE(problem.name);
        const Scenario scenario = make_scenario(problem);
        const Results expected = run_both(scenario, {.isa = isa(), .threads = 2, .workspace_fill = std::byte{0}});
        // 0xFF is NaN in every dtype, 0x7F a huge f32 (3.4e38) and a NaN bf16, 0x3F about 1.
        for (const unsigned fill : {0xFFU, 0x7FU, 0x3FU}) {
            const Options run{.isa = isa(), .threads = 2, .workspace_fill = static_cast<std::byte>(fill)};
            expect_same_bits(run_both(scenario, run), expected);
        }
    }
}

TEST_P(Determinism, layouts_and_strides_give_the_same_bits) {
    for (const DType dtype : {f64, f32, bf16, f16}) {
        Case problem{.name = "places", .B = 2, .N1 = 4, .N2 = 2, .S1 = 100, .S2 = 140, .D = 40, .Dv = 24};
        problem.dtype = dtype;
        problem.rule = causal_bottom_right;
        const Results expected = run_both(make_scenario(problem), {.isa = isa(), .threads = 2});
        for (const Layout layout : {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH}) {
            for (const Arrangement arrangement : all_arrangements) {
                problem.layout = layout;
                problem.arrangement = arrangement;
                SCOPED_TRACE(describe(problem));
                expect_same_bits(run_both(make_scenario(problem), {.isa = isa(), .threads = 2}), expected);
            }
        }
    }
}

/// Heads of the results of one head (and batch) of a larger problem.
void expect_part(const Results& alone, const Results& all, std::int64_t b, std::int64_t n, std::int64_t kv_head) {
    EXPECT_TRUE(equal_bits("attention_out", alone.attention_out, all.attention_out.batches(b, 1).heads(n, 1)));
    EXPECT_TRUE(equal_bits("softmax_max", alone.softmax_max, all.softmax_max.batches(b, 1).heads(n, 1)));
    EXPECT_TRUE(equal_bits("softmax_sum", alone.softmax_sum, all.softmax_sum.batches(b, 1).heads(n, 1)));
    EXPECT_TRUE(equal_bits("dq", alone.dq, all.dq.batches(b, 1).heads(n, 1)));
    EXPECT_TRUE(equal_bits("dk", alone.dk, all.dk.batches(b, 1).heads(kv_head, 1)));
    EXPECT_TRUE(equal_bits("dv", alone.dv, all.dv.batches(b, 1).heads(kv_head, 1)));
}

TEST_P(Determinism, a_head_alone_and_among_others) {
    for (const std::int64_t length : {20, 200, 700}) {
        for (const DType dtype : {f32, bf16}) {
            Case problem{.name = "among", .B = 2, .N1 = 4, .N2 = 4, .S1 = length, .S2 = length + 7, .D = 32, .Dv = 32};
            problem.dtype = dtype;
            SCOPED_TRACE(describe(problem));
            const Scenario all = make_scenario(problem);
            const Results together = run_both(all, {.isa = isa(), .threads = 2});
            for (const std::int64_t n : {0, 3}) {
                const Scenario one = make_scenario(
                    all.query.batches(1, 1).heads(n, 1), all.key.batches(1, 1).heads(n, 1),
                    all.value.batches(1, 1).heads(n, 1), all.dy.batches(1, 1).heads(n, 1), all.params.scale);
                expect_part(run_both(one, {.isa = isa(), .threads = 2}), together, 1, n, n);
            }
        }
    }
}

TEST_P(Determinism, a_row_in_a_full_tile_and_in_an_edge_tile) {
    // attention_out and dq of row i are sums over keys in an order the rows around it have no part in. Cutting the
    // query behind any row therefore must not change a bit of the rows before it.
    for (const DType dtype : {f32, bf16}) {
        Case problem{.name = "edge", .N1 = 2, .N2 = 2, .S1 = 300, .S2 = 333, .D = 48, .Dv = 48};
        problem.dtype = dtype;
        const Scenario full = make_scenario(problem);
        const Results expected = run_both(full, {.isa = isa()});
        for (const std::int64_t rows : {1, 5, 63, 97, 130, 299}) {
            SCOPED_TRACE(rows);
            const Scenario cut =
                make_scenario(full.query.rows(0, rows), full.key, full.value, full.dy.rows(0, rows), full.params.scale);
            const Results got = run_both(cut, {.isa = isa()});
            EXPECT_TRUE(equal_bits("attention_out", got.attention_out, expected.attention_out.rows(0, rows)));
            EXPECT_TRUE(equal_bits("softmax_max", got.softmax_max, expected.softmax_max.rows(0, rows)));
            EXPECT_TRUE(equal_bits("softmax_sum", got.softmax_sum, expected.softmax_sum.rows(0, rows)));
            EXPECT_TRUE(equal_bits("dq", got.dq, expected.dq.rows(0, rows)));
        }
    }
}

TEST_P(Determinism, calls_at_the_same_time_do_not_meet) {
    constexpr std::size_t callers = 4;
    std::vector<Scenario> scenarios;
    std::vector<Results> expected;
    for (std::size_t caller = 0; caller < callers; ++caller) {
        Case problem = cuttable()[caller % 2 == 0 ? 0 : 8];
        problem.S1 += static_cast<std::int64_t>(caller);
        scenarios.push_back(make_scenario(problem, 100 + caller));
        expected.push_back(run_both(scenarios.back(), {.isa = isa(), .threads = 1}));
    }
    std::vector<std::string> differences(callers);
    std::vector<std::thread> threads;
    for (std::size_t caller = 0; caller < callers; ++caller) {
        threads.emplace_back([&, caller] {
            for (int round = 0; round < 8; ++round) {
                const Options run{.isa = isa(), .threads = 1 + round % 3};
                const Results got = run_both(scenarios[caller], run);
                for (const auto& [left, right] :
                     {std::pair{&got.attention_out, &expected[caller].attention_out},
                      std::pair{&got.dq, &expected[caller].dq}, std::pair{&got.dk, &expected[caller].dk},
                      std::pair{&got.dv, &expected[caller].dv}}) {
                    differences[caller] += first_difference(*left, *right);
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& difference : differences) EXPECT_EQ(difference, "");
}

FASCORE_FOR_EACH_ISA(Determinism);

}  // namespace
}  // namespace fascore::test
