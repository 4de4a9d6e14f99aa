// SPDX-License-Identifier: Apache-2.0
//
// PRF: cost cliffs, as counts of the plan. Times belong to the benchmark; but a mask that is computed tile by tile and
// thrown away, a layout that takes another path or a workspace that grows with S² show in the plan without a clock.
#include <utility>
#include <vector>

#include "cases/cases.h"

namespace fascore::test {
namespace {

struct Plans {
    PlanInfo forward;
    PlanInfo backward;
};

/// Plans of a problem of this shape, over no memory.
Plans plans_of(const Case& c, const AttentionParams& given, const Options& run, bool compressed = false) {
    AttentionParams params = given;
    params.layout = c.layout;
    params.head_num = c.N1;
    const auto view = [&](std::int64_t heads, std::int64_t rows, std::int64_t columns) -> TensorView {
        switch (c.layout) {
            case Layout::BSND: return {nullptr, c.dtype, {c.B, rows, heads, columns}};
            case Layout::BSH: return {nullptr, c.dtype, {c.B, rows, heads * columns}};
            case Layout::SBH: return {nullptr, c.dtype, {rows, c.B, heads * columns}};
            default: return {nullptr, c.dtype, {c.B, heads, rows, columns}};
        }
    };
    const TensorView statistic(nullptr, f32, {c.B, c.N1, c.S1, 8});
    const TensorView query = view(c.N1, c.S1, c.D), key = view(c.N2, c.S2, c.D), value = view(c.N2, c.S2, c.Dv),
                     out = view(c.N1, c.S1, c.Dv);
    ConstTensorView mask;
    if (compressed) mask = ConstTensorView(nullptr, boolean, {2048, 2048});
    Plans plans;
    ForwardInputs forward_in;
    BackwardInputs backward_in;
    forward_in.query = backward_in.query = query;
    forward_in.key = backward_in.key = key;
    forward_in.value = backward_in.value = value;
    forward_in.atten_mask = backward_in.atten_mask = mask;
    backward_in.dy = backward_in.attention_out = out;
    backward_in.softmax_max = backward_in.softmax_sum = statistic;
    Status status = plan_forward(params, forward_in, {out, statistic, statistic}, execution_of(run), plans.forward);
    EXPECT_TRUE(status.ok()) << status.message();
    status = plan_backward(params, backward_in, {query, key, value}, execution_of(run), plans.backward);
    EXPECT_TRUE(status.ok()) << status.message();
    return plans;
}

std::int64_t computed(const PlanInfo& plan) { return plan.tiles_full + plan.tiles_partial; }

TEST_P(Cases, PRF_01_a_layout_does_not_change_the_plan) {
    const Options run = options();
    const Case base{
        .name = "PRF_01", .B = 64, .N1 = 8, .N2 = 8, .S1 = 196, .S2 = 196, .D = 32, .Dv = 32, .dtype = bf16};
    const Plans expected = plans_of(base, {}, run);
    for (const Layout layout : {Layout::BSND, Layout::BSH, Layout::SBH}) {
        Case other = base;
        other.layout = layout;
        const Plans plans = plans_of(other, {}, run);
        for (const auto member : {&Plans::forward, &Plans::backward}) {
            EXPECT_EQ((plans.*member).kernel, (expected.*member).kernel);
            EXPECT_EQ((plans.*member).compute, (expected.*member).compute);
            EXPECT_EQ(computed(plans.*member), computed(expected.*member));
            EXPECT_EQ((plans.*member).workspace_bytes, (expected.*member).workspace_bytes);
            EXPECT_EQ((plans.*member).operations, (expected.*member).operations);
        }
    }
}

TEST_P(Cases, PRF_04_hidden_tiles_are_not_computed) {
    // At S = 4096 a causal rule leaves just over half of the tiles; 0.62 is what the time of a causal call may be of a
    // full one. A compressed mask is the same rule, so the same plan.
    const Options run = options();
    const Case problem{.name = "PRF_04", .N1 = 2, .N2 = 2, .S1 = 4096, .S2 = 4096, .D = 128, .Dv = 128, .dtype = bf16};
    AttentionParams causal;
    causal.rule = causal_bottom_right;
    AttentionParams mode3;
    mode3.sparse_mode = 3;
    const Plans full = plans_of(problem, {}, run), rule = plans_of(problem, causal, run),
                mask = plans_of(problem, mode3, run, true);
    for (const auto member : {&Plans::forward, &Plans::backward}) {
        const PlanInfo &all = full.*member, &half = rule.*member, &same = mask.*member;
        EXPECT_EQ(all.tiles_skipped, 0);
        EXPECT_EQ(all.tiles_partial, 0);
        EXPECT_EQ(computed(half) + half.tiles_skipped, computed(all));
        EXPECT_LE(static_cast<double>(computed(half)), 0.62 * static_cast<double>(computed(all)));
        EXPECT_EQ(half.visible_pairs, 2.0 * 4096 * 4097 / 2);
        EXPECT_EQ(same.tiles_full, half.tiles_full);
        EXPECT_EQ(same.tiles_partial, half.tiles_partial);
        EXPECT_EQ(same.visible_pairs, half.visible_pairs);
        EXPECT_EQ(same.workspace_bytes, half.workspace_bytes);
    }
}

TEST_P(Cases, PRF_07_operation_counts) {
    // The published count: forward 2·D + 2·Dv, backward 6·D + 4·Dv a visible pair; 2.5 : 1 for D = Dv.
    const Options run = options();
    for (const auto& [D, Dv] : {std::pair<std::int64_t, std::int64_t>{32, 32}, {80, 80}, {128, 128}, {192, 128}}) {
        const Case problem{.name = "PRF_07", .B = 2, .N1 = 4, .N2 = 2, .S1 = 100, .S2 = 70, .D = D, .Dv = Dv};
        const Plans plans = plans_of(problem, {}, run);
        const double pairs = 2.0 * 4 * 100 * 70;
        EXPECT_EQ(plans.forward.visible_pairs, pairs);
        EXPECT_EQ(plans.forward.operations, pairs * static_cast<double>(2 * D + 2 * Dv));
        EXPECT_EQ(plans.backward.operations, pairs * static_cast<double>(6 * D + 4 * Dv));
    }
}

TEST_P(Cases, PRF_09_very_long_problems_are_bounded) {
    // One million keys for 16 queries; a window over 65536 rows. Tiles and workspace follow what is visible and S,
    // never S1·S2.
    const Options run = options();
    const Case tall{.name = "PRF_09", .S1 = 16, .S2 = 1 << 20, .D = 64, .Dv = 64, .dtype = bf16};
    const Plans million = plans_of(tall, {}, run);
    const double operand = (1 << 20) * 64.0 * 4;  // one f32 copy of the keys
    EXPECT_LE(static_cast<double>(million.backward.workspace_bytes), 8 * operand + (1 << 24));
    AttentionParams params;
    params.rule = window(256, 0);
    std::vector<double> tiles;
    for (const std::int64_t S : {1 << 14, 1 << 15, 1 << 16}) {
        const Case problem{.name = "PRF_09", .S1 = S, .S2 = S, .D = 64, .Dv = 64, .dtype = bf16};
        const Plans plans = plans_of(problem, params, run);
        tiles.push_back(static_cast<double>(computed(plans.backward)));
        EXPECT_LE(static_cast<double>(plans.backward.workspace_bytes),
                  12.0 * static_cast<double>(S) * 64 * 4 + (1 << 24));
    }
    EXPECT_NEAR(tiles[1] / tiles[0], 2.0, 0.1);
    EXPECT_NEAR(tiles[2] / tiles[1], 2.0, 0.1);
}

TEST_P(Cases, PRF_09_a_workspace_that_is_missing_is_an_error_before_any_output) {
    const Scenario s = make_scenario({.name = "PRF_09", .S1 = 200, .S2 = 200, .dtype = bf16});
    const Results given = run_forward(s, options());
    Results results = make_outputs(s);
    results.attention_out = given.attention_out;
    results.softmax_max = given.softmax_max;
    results.softmax_sum = given.softmax_sum;
    const Options run = options();
    const Status status =
        attention_backward(s.params, backward_inputs(s, results), backward_outputs(results), execution_of(run), {});
    EXPECT_EQ(status.code(), StatusCode::workspace_too_small) << status.message();
    EXPECT_TRUE(results.dq.still_poisoned() && results.dk.still_poisoned() && results.dv.still_poisoned());
}

}  // namespace
}  // namespace fascore::test
