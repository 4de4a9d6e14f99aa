// SPDX-License-Identifier: Apache-2.0
//
// The oracle grid: forward and gradient of every problem of one table, on every instruction set this machine has,
// against the float64 reference. The verdict is BUDGET (support/measure.h): no output may be further from the truth
// than a plain unfused evaluation in the same dtype; statistics have a bound of their own (support/scenario.h).
//
// Rows are named for what they hurt. Shapes are small, but cross several tiles (S up to 300, a few to 1100, where bf16
// has larger tiles) and end in tails.
#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "support/scenario.h"
#include "support/targets.h"

namespace fascore::test {
namespace {

using enum DType;

class Table {
  public:
    /// Adds the problem once per dtype, the dtype's name behind its own.
    void add(Case problem, std::initializer_list<DType> dtypes) {
        const std::string stem = problem.name;
        for (const DType dtype : dtypes) {
            problem.dtype = dtype;
            problem.name = stem + '_' + std::string(fascore::name(dtype));
            rows.push_back(problem);
        }
    }
    std::vector<Case> rows;
};

void add_shapes(Table& table) {
    const auto every = {f64, f32, bf16, f16};
    table.add({.name = "one_pair", .S1 = 1, .S2 = 1, .D = 8, .Dv = 8}, every);
    table.add({.name = "s1_is_1", .B = 2, .N1 = 3, .N2 = 3, .S1 = 1, .S2 = 301, .D = 24, .Dv = 24}, every);
    table.add({.name = "s2_is_1", .B = 2, .N1 = 3, .N2 = 3, .S1 = 301, .S2 = 1, .D = 24, .Dv = 24}, every);
    table.add({.name = "prime_tails", .B = 1, .N1 = 2, .N2 = 2, .S1 = 131, .S2 = 257, .D = 61, .Dv = 61}, every);
    table.add({.name = "tile_multiples", .B = 1, .N1 = 1, .N2 = 1, .S1 = 256, .S2 = 256, .D = 64, .Dv = 64}, every);
    table.add({.name = "one_past_tiles", .N1 = 2, .N2 = 2, .S1 = 97, .S2 = 129, .D = 65, .Dv = 65}, every);
    table.add({.name = "one_short_of_tiles", .N1 = 2, .N2 = 2, .S1 = 95, .S2 = 127, .D = 63, .Dv = 63}, every);
    table.add({.name = "short_query_long_key", .S1 = 3, .S2 = 1100, .D = 40, .Dv = 40}, every);
    table.add({.name = "long_query_short_key", .S1 = 1100, .S2 = 3, .D = 40, .Dv = 40}, every);
    table.add({.name = "many_small_heads", .B = 5, .N1 = 7, .N2 = 7, .S1 = 17, .S2 = 19, .D = 16, .Dv = 16}, every);
    table.add({.name = "long", .S1 = 1100, .S2 = 1100, .D = 64, .Dv = 64, .rule = causal_top_left}, {f32, bf16});
    // dq in four streams (plan.h), one of which a causal row block does not see.
    table.add({.name = "four_streams", .S1 = 260, .S2 = 4200, .D = 24, .Dv = 16, .rule = causal_top_left}, every);
    table.add({.name = "four_streams_full", .S1 = 70, .S2 = 4200, .D = 16, .Dv = 24}, every);
    // A ring of query blocks smaller than the head, with groups, in a rectangle, and used many times over.
    table.add({.name = "ring", .N1 = 2, .S1 = 1600, .S2 = 1600, .D = 16, .Dv = 16, .rule = window(200, 0)}, every);
    table.add({.name = "ring_wide", .S1 = 1500, .S2 = 700, .D = 136, .Dv = 72, .rule = window(60, 30)}, {f32, bf16});
    // Several of the tiles that take pairs of bf16, which are up to 256 × 512.
    table.add({.name = "large_tiles", .N1 = 2, .N2 = 1, .S1 = 523, .S2 = 1031, .D = 41, .Dv = 33}, {bf16});
    table.add({.name = "large_tiles_exact", .S1 = 512, .S2 = 1024, .D = 64, .Dv = 64}, {bf16});
    table.add({.name = "large_tiles_masked",
               .N1 = 2,
               .N2 = 1,
               .S1 = 523,
               .S2 = 1031,
               .D = 24,
               .Dv = 40,
               .mask = MaskShape::b1ss,
               .mask_content = MaskContent::random_empty_rows},
              {bf16});
    table.add({.name = "d_is_1", .S1 = 50, .S2 = 70, .D = 1, .Dv = 1}, every);
    table.add({.name = "d_is_2", .S1 = 50, .S2 = 70, .D = 2, .Dv = 2}, every);
    table.add({.name = "d_odd", .S1 = 65, .S2 = 98, .D = 37, .Dv = 37}, every);
    table.add({.name = "d_128", .N1 = 2, .N2 = 2, .S1 = 200, .S2 = 200, .D = 128, .Dv = 128}, every);
    table.add({.name = "d_256", .S1 = 77, .S2 = 140, .D = 256, .Dv = 256}, every);
    table.add({.name = "d_512", .S1 = 40, .S2 = 66, .D = 512, .Dv = 512}, every);
    table.add({.name = "d_768", .S1 = 35, .S2 = 50, .D = 768, .Dv = 768}, every);
    table.add({.name = "d_767", .S1 = 9, .S2 = 34, .D = 767, .Dv = 767}, {f32, bf16});
    table.add({.name = "dv_wider", .S1 = 60, .S2 = 80, .D = 24, .Dv = 136}, every);
    table.add({.name = "dv_narrower", .S1 = 60, .S2 = 80, .D = 192, .Dv = 128}, every);
    table.add({.name = "dv_is_1", .S1 = 60, .S2 = 80, .D = 33, .Dv = 1}, every);
    table.add({.name = "d_is_1_dv_768", .S1 = 10, .S2 = 80, .D = 1, .Dv = 768}, {f32, bf16});
    table.add({.name = "gqa", .B = 2, .N1 = 6, .N2 = 2, .S1 = 70, .S2 = 100, .D = 32, .Dv = 32}, every);
    table.add(
        {.name = "gqa_causal", .N1 = 8, .N2 = 2, .S1 = 150, .S2 = 150, .D = 64, .Dv = 64, .rule = causal_bottom_right},
        every);
    table.add({.name = "mqa", .B = 2, .N1 = 5, .N2 = 1, .S1 = 40, .S2 = 130, .D = 48, .Dv = 32}, every);
    table.add({.name = "mqa_one_query", .N1 = 8, .N2 = 1, .S1 = 1, .S2 = 513, .D = 64, .Dv = 64}, every);
}

void add_values(Table& table) {
    const auto every = {f64, f32, bf16, f16};
    // Logits of ±1e4 and more: one weight is 1, the others 0, and the subtraction of the maximum decides.
    table.add({.name = "logits_1e4",
               .N1 = 2,
               .N2 = 2,
               .S1 = 70,
               .S2 = 140,
               .D = 64,
               .Dv = 64,
               .query_size = 100,
               .key_size = 100},
              {f64, f32, bf16});
    table.add(
        {.name = "logits_30", .N1 = 2, .N2 = 2, .S1 = 70, .S2 = 140, .D = 64, .Dv = 64, .query_size = 5, .key_size = 6},
        every);
    table.add({.name = "logits_tiny", .S1 = 70, .S2 = 140, .D = 64, .Dv = 64, .query_size = 0.01, .key_size = 0.01},
              every);
    table.add({.name = "scale_0", .S1 = 33, .S2 = 90, .D = 32, .Dv = 32, .scale = 0.0}, every);
    table.add({.name = "scale_1", .S1 = 33, .S2 = 90, .D = 32, .Dv = 32, .scale = 1.0}, every);
    table.add({.name = "scale_negative",
               .N1 = 2,
               .N2 = 2,
               .S1 = 70,
               .S2 = 90,
               .D = 32,
               .Dv = 32,
               .scale = -0.3,
               .rule = causal_top_left},
              every);
    // The scale alone is huge (tiny); the logits are ordinary. Powers of two keep the inputs normal numbers.
    table.add({.name = "scale_huge", .S1 = 70, .S2 = 90, .D = 32, .Dv = 32, .scale = 0x1p60, .query_size = 0x1p-62},
              {f64, f32, bf16});
    table.add({.name = "scale_tiny", .S1 = 70, .S2 = 90, .D = 32, .Dv = 32, .scale = 0x1p-60, .query_size = 0x1p58},
              {f64, f32, bf16});
    table.add({.name = "value_1e4", .S1 = 70, .S2 = 90, .D = 32, .Dv = 32, .value_size = 1e4, .dy_size = 0.01},
              {f64, f32, bf16});
    table.add({.name = "dy_small", .S1 = 70, .S2 = 90, .D = 32, .Dv = 32, .dy_size = 1e-3}, every);
}

void add_layouts(Table& table) {
    const Case shape{.name = "", .B = 2, .N1 = 4, .N2 = 2, .S1 = 37, .S2 = 70, .D = 24, .Dv = 16};
    for (const Layout layout : {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH}) {
        for (const Arrangement arrangement : all_arrangements) {
            Case problem = shape;
            problem.name = "layout_" + std::string(fascore::name(layout)) + '_' + name(arrangement);
            problem.layout = layout;
            problem.arrangement = arrangement;
            problem.statistic_copies = arrangement == Arrangement::padded_rows    ? 0
                                       : arrangement == Arrangement::column_slice ? 1
                                                                                  : 8;
            if (arrangement == Arrangement::packed) {
                table.add(problem, {f64, f32, bf16, f16});
            } else {
                table.add(problem, {f32, bf16});
            }
        }
    }
    table.add({.name = "statistics_rank_3", .B = 2, .N1 = 3, .N2 = 3, .S1 = 20, .S2 = 45, .statistic_copies = 0},
              {f64, f32, bf16, f16});
    table.add({.name = "statistics_1", .B = 2, .N1 = 3, .N2 = 3, .S1 = 20, .S2 = 45, .statistic_copies = 1},
              {f64, f32, bf16, f16});
    table.add({.name = "f32_out", .B = 2, .N1 = 3, .N2 = 3, .S1 = 40, .S2 = 45, .f32_out = true}, {bf16, f16});
    table.add({.name = "broadcast_kv",
               .B = 2,
               .N1 = 4,
               .N2 = 4,
               .S1 = 40,
               .S2 = 75,
               .D = 32,
               .Dv = 32,
               .broadcast_heads = true},
              {f64, f32, bf16, f16});
    table.add({.name = "broadcast_gqa",
               .B = 1,
               .N1 = 6,
               .N2 = 3,
               .S1 = 40,
               .S2 = 75,
               .D = 32,
               .Dv = 32,
               .rule = causal_top_left,
               .broadcast_heads = true},
              {f32, bf16});
}

void add_masks(Table& table) {
    const auto every = {f64, f32, bf16, f16};
    struct Named {
        const char* name;
        MaskShape shape;
    };
    for (const Named& mask : {Named{"bnss", MaskShape::bnss}, Named{"b1ss", MaskShape::b1ss},
                              Named{"one1ss", MaskShape::one1ss}, Named{"ss", MaskShape::ss}}) {
        Case problem{.name = std::string("mask_") + mask.name,
                     .B = 2,
                     .N1 = 4,
                     .N2 = 2,
                     .S1 = 70,
                     .S2 = 133,
                     .D = 32,
                     .Dv = 32,
                     .mask = mask.shape,
                     .sparse_mode = 1};
        table.add(problem, every);
        problem.name += "_u8_empty_rows";
        problem.mask_dtype = u8;
        problem.mask_content = MaskContent::random_empty_rows;
        table.add(problem, {f32, bf16});
        for (const Arrangement arrangement : all_arrangements) {
            problem.name = std::string("mask_") + mask.name + '_' + name(arrangement);
            problem.arrangement = arrangement;
            table.add(problem, {bf16});
        }
    }
    table.add({.name = "all_masked_rows",
               .N1 = 2,
               .N2 = 2,
               .S1 = 50,
               .S2 = 70,
               .D = 32,
               .Dv = 32,
               .mask = MaskShape::ss,
               .mask_content = MaskContent::everything,
               .sparse_mode = 1},
              every);
    table.add({.name = "mask_hides_nothing",
               .N1 = 2,
               .N2 = 2,
               .S1 = 50,
               .S2 = 70,
               .D = 32,
               .Dv = 32,
               .mask = MaskShape::ss,
               .mask_content = MaskContent::nothing},
              every);
    table.add({.name = "mask_is_causal",
               .S1 = 300,
               .S2 = 300,
               .D = 32,
               .Dv = 32,
               .mask = MaskShape::ss,
               .mask_content = MaskContent::future,
               .sparse_mode = 1},
              {f32, bf16});
}

void add_sparse_modes(Table& table) {
    struct Mode {
        const char* name;
        int mode;
        std::int64_t pre;
        std::int64_t next;
    };
    constexpr Mode modes[] = {
        {"mode0", 0, unlimited_tokens, unlimited_tokens},
        {"mode0_band", 0, 40, 25},
        {"mode0_causal", 0, unlimited_tokens, 0},
        {"mode0_negative_next", 0, 60, -20},
        {"mode0_negative_pre", 0, -20, 60},
        {"mode0_one_diagonal", 0, 0, 0},
        {"mode1_absurd_tokens", 1, -3, -5},
        {"mode2", 2, 0, 0},
        {"mode3", 3, 0, 0},
        {"mode4_band", 4, 40, 25},
        {"mode4_negative_next", 4, 90, -30},
        {"mode4_negative_pre", 4, -30, 90},
        {"mode4_one_diagonal", 4, 0, 0},
        {"mode4_open", 4, unlimited_tokens, 10},
    };
    struct Shape {
        const char* name;
        std::int64_t S1;
        std::int64_t S2;
    };
    for (const Mode& mode : modes) {
        for (const Shape& shape : {Shape{"square", 140, 140}, Shape{"wide", 70, 210}, Shape{"tall", 210, 70}}) {
            Case problem{.name = std::string(mode.name) + '_' + shape.name,
                         .N1 = 2,
                         .N2 = 1,
                         .S1 = shape.S1,
                         .S2 = shape.S2,
                         .D = 32,
                         .Dv = 32};
            problem.mask = mode.mode >= 2 ? MaskShape::compressed : MaskShape::ss;
            problem.mask_content = MaskContent::random;
            problem.sparse_mode = mode.mode;
            problem.pre_tokens = mode.pre;
            problem.next_tokens = mode.next;
            table.add(problem, {f64, f32, bf16, f16});
        }
    }
    // Without a mask tensor the mode and its tokens have no effect at all.
    for (int mode = 0; mode <= 4; ++mode) {
        table.add({.name = "mode" + std::to_string(mode) + "_no_mask",
                   .S1 = 30,
                   .S2 = 45,
                   .sparse_mode = mode,
                   .pre_tokens = 1,
                   .next_tokens = 1},
                  {f32});
    }
}

void add_rules(Table& table) {
    struct Rule {
        const char* name;
        MaskRule rule;
    };
    const Rule rules[] = {
        {"causal_top_left", causal_top_left}, {"causal_bottom_right", causal_bottom_right},
        {"window_both", window(31, 17)},      {"window_left", window(20, -1)},
        {"window_right", window(-1, 9)},      {"window_open", window(-1, -1)},
        {"window_diagonal", window(0, 0)},    {"window_wider_than_s", window(1000, 1000)},
    };
    struct Shape {
        const char* name;
        std::int64_t S1;
        std::int64_t S2;
    };
    for (const Rule& rule : rules) {
        for (const Shape& shape : {Shape{"square", 211, 211}, Shape{"wide", 60, 275}, Shape{"tall", 275, 60}}) {
            table.add({.name = std::string(rule.name) + '_' + shape.name,
                       .N1 = 2,
                       .N2 = 2,
                       .S1 = shape.S1,
                       .S2 = shape.S2,
                       .D = 40,
                       .Dv = 40,
                       .rule = rule.rule},
                      {f64, f32, bf16, f16});
        }
    }
    // A rule and a mask tensor intersect.
    table.add({.name = "rule_and_mask",
               .N1 = 2,
               .N2 = 2,
               .S1 = 100,
               .S2 = 150,
               .D = 32,
               .Dv = 32,
               .mask = MaskShape::b1ss,
               .sparse_mode = 1,
               .rule = causal_bottom_right},
              {f64, f32, bf16, f16});
    table.add({.name = "rule_and_band",
               .S1 = 150,
               .S2 = 150,
               .D = 32,
               .Dv = 32,
               .mask = MaskShape::compressed,
               .sparse_mode = 4,
               .pre_tokens = 50,
               .next_tokens = 50,
               .rule = causal_top_left},
              {f32, bf16});
}

const std::vector<Case>& problems() {
    static const std::vector<Case> rows = [] {
        Table table;
        add_shapes(table);
        add_values(table);
        add_layouts(table);
        add_masks(table);
        add_sparse_modes(table);
        add_rules(table);
        return table.rows;
    }();
    return rows;
}

struct Truth {
    Scenario scenario;
    Results exact;
    Results plain;
};

/// The references of one row: made once, used by every instruction set (rows run one after the other, so that only the
/// latest is kept).
const Truth& truth_of(const Case& problem) {
    static std::string name;
    static std::unique_ptr<Truth> truth;
    if (name != problem.name) {
        Scenario scenario = make_scenario(problem);
        Results exact = reference(scenario);
        Results plain = reference(scenario, Evaluation::plain);
        truth = std::make_unique<Truth>(std::move(scenario), std::move(exact), std::move(plain));
        name = problem.name;
    }
    return *truth;
}

class Oracle : public ::testing::TestWithParam<std::tuple<std::size_t, std::string>> {};

TEST_P(Oracle, agrees_with_float64) {
    const auto& [row, isa] = GetParam();
    const Truth& truth = truth_of(problems()[row]);
    const Results got = run_both(truth.scenario, {.isa = isa, .threads = 2});
    expect_budget(truth.scenario, got, truth.exact, truth.plain);
}

INSTANTIATE_TEST_SUITE_P(grid, Oracle,
                         ::testing::Combine(::testing::Range<std::size_t>(0, problems().size()),
                                            ::testing::ValuesIn(runnable_isas())),
                         [](const auto& test) {
                             return problems()[std::get<0>(test.param)].name + "_on_" + std::get<1>(test.param);
                         });

}  // namespace
}  // namespace fascore::test
