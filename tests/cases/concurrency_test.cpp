// SPDX-License-Identifier: Apache-2.0
//
// DET: same bits from run to run, from thread to thread, and beside other problems; and every option returns.
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cases/cases.h"

namespace fascore::test {
namespace {

TEST_P(Cases, DET_01_the_gradient_is_the_same_in_every_run) {
    // 30 runs over all thread counts on the best instruction set; the slower ones, whose nest is the same, fewer.
    std::string best;
    std::string why;
    ASSERT_TRUE(select_isa({}, best, why).ok());
    const int rounds = isa() == best ? 7 : 1;
    const Case problem{.name = "DET_01",
                       .B = 1,
                       .N1 = 8,
                       .N2 = 2,
                       .S1 = 512,
                       .S2 = 512,
                       .D = 128,
                       .Dv = 128,
                       .dtype = bf16,
                       .rule = causal_top_left};
    const Scenario s = make_scenario(problem);
    const Results expected = run_both(s, options());
    for (int round = 0; round < rounds; ++round) {
        for (const int threads : {1, 2, 3, 0}) expect_same_bits(run_both(s, options(threads)), expected);
    }
}

TEST_P(Cases, DET_03_calls_of_one_shape_at_the_same_time) {
    // Two to eight callers with the same shape and inputs of their own; one more whose calls are refused. Right: each
    // gets its single-threaded result, EXACT, and its own error text.
    const Case problem{.name = "DET_03", .N1 = 2, .N2 = 2, .S1 = 40, .S2 = 70, .D = 32, .Dv = 32, .dtype = bf16};
    for (const std::size_t callers : {2U, 5U, 8U}) {
        std::vector<Scenario> scenarios;
        std::vector<Results> expected;
        for (std::size_t caller = 0; caller < callers; ++caller) {
            scenarios.push_back(make_scenario(problem, caller));
            expected.push_back(run_both(scenarios.back(), options()));
        }
        std::vector<std::string> differences(callers + 1);
        std::vector<std::thread> threads;
        for (std::size_t caller = 0; caller < callers; ++caller) {
            threads.emplace_back([&, caller] {
                for (int round = 0; round < 40; ++round) {
                    const Results got = run_both(scenarios[caller], options());
                    differences[caller] += first_difference(got.attention_out, expected[caller].attention_out) +
                                           first_difference(got.dq, expected[caller].dq) +
                                           first_difference(got.dk, expected[caller].dk) +
                                           first_difference(got.dv, expected[caller].dv);
                }
            });
        }
        threads.emplace_back([&] {
            Scenario wrong = scenarios.front();
            wrong.params.sparse_mode = 99;
            for (int round = 0; round < 40; ++round) {
                Results results = make_outputs(wrong);
                const Status status = forward(wrong, results, options());
                if (status.message().find("sparse_mode: given 99") != 0) differences.back() += status.message();
            }
        });
        for (std::thread& thread : threads) thread.join();
        for (const std::string& difference : differences) EXPECT_EQ(difference, "");
    }
}

TEST_P(Cases, DET_04_lengths_around_a_tile) {
    // BUDGET at every length, EXACT over thread counts.
    for (const std::int64_t S : {1, 63, 64, 65, 200, 1000}) {
        for (const std::int64_t D : {32, 128}) {
            const Case problem{.name = "DET_04", .S1 = S, .S2 = S, .D = D, .Dv = D, .dtype = bf16};
            const Scenario s = make_scenario(problem);
            static std::map<std::pair<std::int64_t, std::int64_t>, Truth> known;  // shared by the instruction sets
            const auto [truth, fresh] = known.try_emplace({S, D});
            if (fresh) truth->second = truth_of(s);
            const Results got = run_both(s, options());
            expect_budget(s, got, truth->second.exact, truth->second.plain);
            for (const int threads : {2, 3, 5}) expect_same_bits(run_both(s, options(threads)), got);
        }
    }
}

TEST_P(Cases, DET_06_the_same_rows_beside_other_batches) {
    // A sequence alone, and as the last of a larger batch: EXACT, since the cut of its work depends on itself alone.
    for (const auto& [S1, B] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {1, 40}, {1000, 3}}) {
        const Case problem{
            .name = "DET_06", .B = B, .S1 = S1, .S2 = S1 == 1 ? 3000 : 1000, .D = 32, .Dv = 32, .dtype = bf16};
        const Scenario all = make_scenario(problem);
        const Results together = run_both(all, options(3));
        const auto last = [&](const Tensor& tensor) { return tensor.batches(B - 1, 1); };
        const Results alone = run_both(
            make_scenario(last(all.query), last(all.key), last(all.value), last(all.dy), all.params.scale), options(2));
        EXPECT_TRUE(equal_bits("out", alone.attention_out, last(together.attention_out)));
        EXPECT_TRUE(equal_bits("max", alone.softmax_max, last(together.softmax_max)));
        EXPECT_TRUE(equal_bits("sum", alone.softmax_sum, last(together.softmax_sum)));
        EXPECT_TRUE(equal_bits("dq", alone.dq, last(together.dq)));
        EXPECT_TRUE(equal_bits("dk", alone.dk, last(together.dk)));
        EXPECT_TRUE(equal_bits("dv", alone.dv, last(together.dv)));
    }
}

TEST_P(Cases, DET_08_every_pair_of_options_returns) {
    // Each option alone and with each other one. A call that never returns is caught by the test runner's time limit.
    struct Option {
        const char* name;
        void (*apply)(Case&);
    };
    constexpr Option known[] = {
        {"plain", [](Case&) {}},
        {"causal", [](Case& c) { c.rule = causal_bottom_right; }},
        {"window", [](Case& c) { c.rule = window(20, 3); }},
        {"groups", [](Case& c) { c.N1 = 4; }},
        {"mask",
         [](Case& c) { c.mask = MaskShape::ss, c.sparse_mode = 1, c.mask_content = MaskContent::random_empty_rows; }},
        {"band",
         [](Case& c) { c.mask = MaskShape::compressed, c.sparse_mode = 4, c.pre_tokens = 30, c.next_tokens = -2; }},
        {"wide value", [](Case& c) { c.Dv = 40; }},
        {"few keys", [](Case& c) { c.S2 = 7; }},
    };
    for (const std::int64_t S : {1, 64, 1000}) {
        for (const Option& first : known) {
            for (const Option& second : known) {
                Case problem{.name = "DET_08", .N1 = 2, .N2 = 2, .S1 = S, .S2 = S, .dtype = bf16};
                first.apply(problem);
                second.apply(problem);
                SCOPED_TRACE(std::string(first.name) + ", " + second.name + ", S " + std::to_string(S));
                const Results got = run_both(make_scenario(problem), options(2));
                EXPECT_TRUE(got.attention_out.all_finite() && got.dq.all_finite() && got.dk.all_finite() &&
                            got.dv.all_finite());
            }
        }
    }
}

}  // namespace
}  // namespace fascore::test
