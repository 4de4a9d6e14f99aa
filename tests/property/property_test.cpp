// SPDX-License-Identifier: Apache-2.0
//
// Identities of attention over random problems: shape, dtype, layout, rule, scale, instruction set and thread count are
// drawn by rapidcheck, which shrinks what fails. A failure prints its seed (RC_PARAMS="seed=..." repeats the draw) and
// a `fascore verify` line for the same problem: data are drawn as the command-line tool draws them.
//
// Runs are the same every time unless RC_PARAMS is set: a fixed seed is set below, so that a merge is never stopped by
// a draw nobody has seen. To look further: RC_PARAMS="seed=1 max_success=2000" test_property.
//
// Tolerances. Draws keep |scale·q·k| below about 60 and D ≤ 70, so one score is off by at most (D + 4)·2^-53·60 = 5e-13
// in f64, P relatively by twice that, and what is summed from P by as much again: 4e-12 of the size of what is summed.
// `identity` (1e-11) is that with room for Dv- and S-long sums. Where the two sides are differences of larger sums, the
// size is that of the sums, stated in place.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "random.h"
#include "support/merge.h"
#include "support/scenario.h"
#include "support/targets.h"

namespace fascore::test {
namespace {

constexpr double identity = 1e-11;

[[maybe_unused]] const int fixed_seed = setenv("RC_PARAMS", "seed=20260131 max_success=100 max_size=60", 0);

/// A drawn problem and how it is run.
struct Draw {
    Case problem;
    std::uint64_t seed = 0;
    std::string isa;
    int threads = 1;
};

std::ostream& operator<<(std::ostream& stream, const Draw& draw) {
    return stream << describe(draw.problem) << "\n  repeat with: " << command_line(draw.problem, draw.seed) << " --isa "
                  << draw.isa << " --threads " << draw.threads << '\n';
}

Options options_of(const Draw& draw) { return {.isa = draw.isa, .threads = draw.threads}; }

rc::Gen<MaskRule> any_rule() {
    return rc::gen::exec([] {
        const int kind = *rc::gen::inRange(0, 4);
        if (kind == 0) return MaskRule{};
        if (kind == 1) return causal_top_left;
        if (kind == 2) return causal_bottom_right;
        return window(*rc::gen::inRange(-1, 60), *rc::gen::inRange(-1, 60));
    });
}

/// What a property may ask for.
struct Wanted {
    std::vector<DType> dtypes{DType::f64};
    bool rules = true;
    bool layouts = true;
};

rc::Gen<Draw> any_problem(const Wanted& wanted) {
    return rc::gen::exec([wanted] {
        Draw draw;
        Case& c = draw.problem;
        c.name = "drawn";
        c.B = *rc::gen::inRange<std::int64_t>(1, 4);
        c.N2 = *rc::gen::inRange<std::int64_t>(1, 4);
        c.N1 = c.N2 * *rc::gen::inRange<std::int64_t>(1, 4);
        c.S1 = *rc::gen::inRange<std::int64_t>(1, 140);
        c.S2 = *rc::gen::inRange<std::int64_t>(1, 140);
        c.D = *rc::gen::inRange<std::int64_t>(1, 71);
        c.Dv = *rc::gen::inRange<std::int64_t>(1, 71);
        c.dtype = *rc::gen::elementOf(wanted.dtypes);
        if (wanted.layouts) {
            c.layout = *rc::gen::element(Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH);
        }
        if (wanted.rules) c.rule = *any_rule();
        // 1/√D times a factor, sometimes negative.
        const double factor = *rc::gen::element(1.0, 0.25, 2.5, -1.0);
        c.scale = factor / std::sqrt(static_cast<double>(c.D));
        draw.seed = *rc::gen::inRange<std::uint64_t>(0, 1000000);
        draw.isa = *rc::gen::elementOf(runnable_isas());
        draw.threads = *rc::gen::inRange(1, 6);
        return draw;
    });
}

/// The scenario of a draw, with the command-line tool's data: stream 0 is query, 1 key, 2 value, 3 dy, each numbered by
/// its logical index.
Scenario scenario_of(const Draw& draw) {
    Scenario s = make_scenario(draw.problem);
    std::uint64_t stream = 0;
    for (Tensor* tensor : {&s.query, &s.key, &s.value, &s.dy}) {
        const cli::NormalStream values(draw.seed, stream++);
        std::uint64_t index = 0;
        tensor->fill([&](auto, auto, auto, auto) { return values.at(index++); });
    }
    return s;
}

bool visible(const Case& c, std::int64_t i, std::int64_t j) {
    const std::int64_t shift = c.S2 - c.S1;
    switch (c.rule.kind) {
        case MaskRule::Kind::none: return true;
        case MaskRule::Kind::causal_top_left: return j <= i;
        case MaskRule::Kind::causal_bottom_right: return j <= i + shift;
        case MaskRule::Kind::window:
            return (c.rule.left < 0 || j >= i + shift - c.rule.left) &&
                   (c.rule.right < 0 || j <= i + shift + c.rule.right);
    }
    return false;
}

bool row_is_empty(const Case& c, std::int64_t i) {
    for (std::int64_t j = 0; j < c.S2; ++j) {
        if (visible(c, i, j)) return false;
    }
    return true;
}

void require_close(const char* what, const Tensor& got, const Tensor& expected, double allowed) {
    const ErrorMeasure error = measure(got, expected);
    if (error.finite && error.max_abs <= allowed) return;
    RC_LOG() << what << ": max error " << error.max_abs << ", allowed " << allowed << '\n';
    RC_FAIL(what);
}

void require_same(const char* what, const Tensor& got, const Tensor& expected) {
    const std::string difference = first_difference(got, expected);
    if (difference.empty()) return;
    RC_LOG() << what << ": " << difference << '\n';
    RC_FAIL(what);
}

void require_same_bits(const Results& got, const Results& expected) {
    require_same("attention_out", got.attention_out, expected.attention_out);
    require_same("softmax_max", got.softmax_max, expected.softmax_max);
    require_same("softmax_sum", got.softmax_sum, expected.softmax_sum);
    require_same("dq", got.dq, expected.dq);
    require_same("dk", got.dk, expected.dk);
    require_same("dv", got.dv, expected.dv);
}

/// Sizes of what gradients are summed from: P·|dP − Δ| ≤ 2·max Σ|dy v|.
double score_gradient_size(const Scenario& s) {
    const Case& c = s.problem;
    return 2.0 * s.dy.max_abs() * s.value.max_abs() * static_cast<double>(c.Dv);
}

Tensor changed(const Tensor& tensor,
               const std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& value) {
    Tensor copy(tensor.dtype(), tensor.form(), tensor.extents());
    return copy.fill(value);
}

RC_GTEST_PROP(Identity, I1_equal_keys_give_no_query_gradient, ()) {
    const Draw draw = *any_problem({});
    Scenario s = scenario_of(draw);
    const Tensor key = s.key;
    s.key = changed(key, [&](auto b, auto n, auto, auto d) { return key.get(b, n, 0, d); });
    const Results got = run_both(s, options_of(draw));
    // dq = scale·(Σ_j dS)·k and Σ_j dS is 0 but for the rounding of terms of score_gradient_size.
    const double size = std::abs(s.params.scale) * score_gradient_size(s) * s.key.max_abs();
    RC_ASSERT(got.dq.max_abs() <= identity * size);
}

RC_GTEST_PROP(Identity, I2_value_gradients_add_up_to_dy, ()) {
    const Draw draw = *any_problem({});
    const Scenario s = scenario_of(draw);
    const Case& c = s.problem;
    const Results got = run_both(s, options_of(draw));
    const std::int64_t G = c.N1 / c.N2;
    for (std::int64_t b = 0; b < c.B; ++b) {
        for (std::int64_t h = 0; h < c.N2; ++h) {
            for (std::int64_t d = 0; d < c.Dv; ++d) {
                double left = 0.0;
                double right = 0.0;
                for (std::int64_t j = 0; j < c.S2; ++j) left += got.dv.get(b, h, j, d);
                for (std::int64_t i = 0; i < c.S1; ++i) {
                    if (row_is_empty(c, i)) continue;
                    for (std::int64_t n = h * G; n < (h + 1) * G; ++n) right += s.dy.get(b, n, i, d);
                }
                RC_ASSERT(std::abs(left - right) <= identity * static_cast<double>(G * c.S1) * s.dy.max_abs());
            }
        }
    }
}

RC_GTEST_PROP(Identity, I3_a_shift_of_all_keys_shifts_the_logarithm_alone, ()) {
    const Draw draw = *any_problem({});
    const Scenario s = scenario_of(draw);
    const Case& c = s.problem;
    const Results before = run_both(s, options_of(draw));
    Scenario shifted = s;
    const auto shift = [](std::int64_t d) { return 0.5 - 0.125 * static_cast<double>(d % 9); };
    shifted.key = changed(s.key, [&](auto b, auto n, auto j, auto d) { return s.key.get(b, n, j, d) + shift(d); });
    const Results after = run_both(shifted, options_of(draw));
    const double ds = std::abs(s.params.scale) * score_gradient_size(s);
    require_close("attention_out", after.attention_out, before.attention_out, identity * s.value.max_abs());
    require_close("dq", after.dq, before.dq, identity * ds * shifted.key.max_abs());
    const double group = static_cast<double>(c.S1 * c.N1 / c.N2);
    require_close("dk", after.dk, before.dk, identity * ds * s.query.max_abs() * group);
    require_close("dv", after.dv, before.dv, identity * s.dy.max_abs() * group);
    for (std::int64_t b = 0; b < c.B; ++b) {
        for (std::int64_t n = 0; n < c.N1; ++n) {
            for (std::int64_t i = 0; i < c.S1; ++i) {
                if (row_is_empty(c, i)) continue;
                double moved = 0.0;
                for (std::int64_t d = 0; d < c.D; ++d) moved += s.params.scale * s.query.get(b, n, i, d) * shift(d);
                const auto lse = [&](const Results& r) {
                    return r.softmax_max.get(b, n, i, 0) + std::log(r.softmax_sum.get(b, n, i, 0));
                };
                RC_ASSERT(std::abs(lse(after) - lse(before) - moved) <= identity * 60);
            }
        }
    }
}

RC_GTEST_PROP(Identity, I4_a_shift_of_all_values_shifts_the_output_alone, ()) {
    const Draw draw = *any_problem({});
    const Scenario s = scenario_of(draw);
    const Case& c = s.problem;
    const Results before = run_both(s, options_of(draw));
    const auto shift = [](std::int64_t d) { return 2.0 - 0.5 * static_cast<double>(d % 7); };
    Scenario shifted = s;
    shifted.value =
        changed(s.value, [&](auto b, auto n, auto j, auto d) { return s.value.get(b, n, j, d) + shift(d); });
    const Results after = run_both(shifted, options_of(draw));
    const Tensor moved = changed(before.attention_out, [&](auto b, auto n, auto i, auto d) {
        return before.attention_out.get(b, n, i, d) + (row_is_empty(c, i) ? 0.0 : shift(d));
    });
    const double ds = std::abs(s.params.scale) * score_gradient_size(shifted);
    const double group = static_cast<double>(c.S1 * c.N1 / c.N2);
    require_close("attention_out", after.attention_out, moved, identity * shifted.value.max_abs());
    require_close("dq", after.dq, before.dq, identity * ds * s.key.max_abs());
    require_close("dk", after.dk, before.dk, identity * ds * s.query.max_abs() * group);
    require_same("dv", after.dv, before.dv);  // the value has no part in it
    // All values equal: nothing depends on the weights.
    shifted.value = changed(s.value, [&](auto, auto, auto, auto d) { return shift(d); });
    const Results equal = run_both(shifted, options_of(draw));
    RC_ASSERT(equal.dq.max_abs() <= identity * ds * s.key.max_abs());
    RC_ASSERT(equal.dk.max_abs() <= identity * ds * s.query.max_abs() * group);
}

RC_GTEST_PROP(Identity, I5_both_sides_of_the_scores_agree, ()) {
    const Draw draw = *any_problem({});
    const Scenario s = scenario_of(draw);
    const Case& c = s.problem;
    const Results got = run_both(s, options_of(draw));
    const std::int64_t G = c.N1 / c.N2;
    for (std::int64_t b = 0; b < c.B; ++b) {
        for (std::int64_t h = 0; h < c.N2; ++h) {
            double left = 0.0;
            double right = 0.0;
            for (std::int64_t n = h * G; n < (h + 1) * G; ++n) {
                for (std::int64_t i = 0; i < c.S1; ++i) {
                    for (std::int64_t d = 0; d < c.D; ++d) left += s.query.get(b, n, i, d) * got.dq.get(b, n, i, d);
                }
            }
            for (std::int64_t j = 0; j < c.S2; ++j) {
                for (std::int64_t d = 0; d < c.D; ++d) right += s.key.get(b, h, j, d) * got.dk.get(b, h, j, d);
            }
            // Both are Σ dS·score over the rows of the group; scores are below 60.
            const double size = score_gradient_size(s) * 60.0 * static_cast<double>(c.S1 * G);
            RC_ASSERT(std::abs(left - right) <= identity * size);
        }
    }
}

RC_GTEST_PROP(Identity, I6_a_power_of_two_moves_between_query_and_scale, ()) {
    // Exact: a power of two commutes with every rounding (no number here is near overflow or a subnormal).
    const Draw draw = *any_problem({.dtypes = {DType::f64, DType::f32, DType::bf16}});
    const Scenario s = scenario_of(draw);
    const double factor = *rc::gen::element(2.0, 0.5, 8.0);
    Scenario moved = s;
    moved.query = changed(s.query, [&](auto b, auto n, auto i, auto d) { return factor * s.query.get(b, n, i, d); });
    moved.params.scale /= factor;
    const Results before = run_both(s, options_of(draw));
    Results after = run_both(moved, options_of(draw));
    after.dq =
        changed(after.dq, [&, dq = after.dq](auto b, auto n, auto i, auto d) { return factor * dq.get(b, n, i, d); });
    require_same_bits(after, before);
}

RC_GTEST_PROP(Identity, I7_keys_in_another_order, ()) {
    const Draw draw = *any_problem({.rules = false});
    const Scenario s = scenario_of(draw);
    const Case& c = s.problem;
    std::vector<std::int64_t> order(static_cast<std::size_t>(c.S2));
    for (std::int64_t j = 0; j < c.S2; ++j) order[static_cast<std::size_t>(j)] = j;
    Random random(draw.seed);
    for (std::int64_t j = c.S2 - 1; j > 0; --j) {
        std::swap(order[static_cast<std::size_t>(j)], order[static_cast<std::size_t>(random.below(j + 1))]);
    }
    const auto permuted = [&](const Tensor& tensor) {
        return changed(tensor, [&](auto b, auto n, auto j, auto d) {
            return tensor.get(b, n, order[static_cast<std::size_t>(j)], d);
        });
    };
    Scenario other = s;
    other.key = permuted(s.key);
    other.value = permuted(s.value);
    const Results before = run_both(s, options_of(draw));
    const Results after = run_both(other, options_of(draw));
    const double ds = std::abs(s.params.scale) * score_gradient_size(s);
    const double group = static_cast<double>(c.S1 * c.N1 / c.N2);
    require_close("attention_out", after.attention_out, before.attention_out, identity * s.value.max_abs());
    require_close("dq", after.dq, before.dq, identity * ds * s.key.max_abs());
    require_close("dk", after.dk, permuted(before.dk), identity * ds * s.query.max_abs() * group);
    require_close("dv", after.dv, permuted(before.dv), identity * s.dy.max_abs() * group);
}

RC_GTEST_PROP(Identity, I8_layouts_and_strides_do_not_matter, ()) {
    const Draw draw = *any_problem({.dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16}});
    const Scenario s = scenario_of(draw);
    const Results expected = run_both(s, options_of(draw));
    Draw other = draw;
    other.problem.layout = *rc::gen::element(Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH);
    other.problem.arrangement =
        *rc::gen::elementOf(std::vector<Arrangement>(std::begin(all_arrangements), std::end(all_arrangements)));
    other.threads = *rc::gen::inRange(1, 6);
    require_same_bits(run_both(scenario_of(other), options_of(other)), expected);
}

RC_GTEST_PROP(Identity, I9_keys_in_two_parts, ()) {
    Draw draw = *any_problem({.rules = false});
    if (draw.problem.S2 < 2) draw.problem.S2 = 2;
    draw.problem.layout = Layout::BNSD;
    const Scenario s = scenario_of(draw);
    const Case& c = s.problem;
    const Results whole = run_both(s, options_of(draw));
    const std::int64_t cut = *rc::gen::inRange<std::int64_t>(1, c.S2);
    const auto part = [&](std::int64_t first, std::int64_t count) {
        return make_scenario(s.query, s.key.rows(first, count), s.value.rows(first, count), s.dy, s.params.scale);
    };
    const Scenario first = part(0, cut);
    const Scenario second = part(cut, c.S2 - cut);
    const Results merged = merge_parts({run_forward(first, options_of(draw)), run_forward(second, options_of(draw))});
    const Results left = run_backward(first, merged, options_of(draw));
    const Results right = run_backward(second, merged, options_of(draw));
    const double ds = std::abs(s.params.scale) * score_gradient_size(s);
    const double group = static_cast<double>(c.S1 * c.N1 / c.N2);
    const Tensor dq = changed(
        whole.dq, [&](auto b, auto n, auto i, auto d) { return left.dq.get(b, n, i, d) + right.dq.get(b, n, i, d); });
    require_close("attention_out", merged.attention_out, whole.attention_out, identity * s.value.max_abs());
    require_close("dq", dq, whole.dq, identity * ds * s.key.max_abs());
    require_close("dk", left.dk, whole.dk.rows(0, cut), identity * ds * s.query.max_abs() * group);
    require_close("dk", right.dk, whole.dk.rows(cut, c.S2 - cut), identity * ds * s.query.max_abs() * group);
    require_close("dv", left.dv, whole.dv.rows(0, cut), identity * s.dy.max_abs() * group);
    require_close("dv", right.dv, whole.dv.rows(cut, c.S2 - cut), identity * s.dy.max_abs() * group);
}

RC_GTEST_PROP(Identity, I10_an_identity_value_shows_the_visible_pairs, ()) {
    Draw draw = *any_problem({.dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16}});
    draw.problem.Dv = draw.problem.S2;
    Scenario s = scenario_of(draw);
    s.value.fill([](auto, auto, auto j, auto d) { return j == d ? 1.0 : 0.0; });
    s.params.scale = 0.0;  // every visible weight is 1/count, far above the smallest f16
    const Case& c = s.problem;
    const Results got = run_forward(s, options_of(draw));
    for (std::int64_t i = 0; i < c.S1; ++i) {
        double count = 0.0;
        for (std::int64_t j = 0; j < c.S2; ++j) count += visible(c, i, j) ? 1.0 : 0.0;
        for (std::int64_t j = 0; j < c.S2; ++j) {
            const double weight = got.attention_out.get(c.B - 1, c.N1 - 1, i, j);
            RC_ASSERT((weight != 0.0) == visible(c, i, j));
            // P is exp(0)/count; it is rounded once or twice to the dtype.
            RC_ASSERT(weight == 0.0 || std::abs(weight * count - 1.0) <= 2.01 * unit_roundoff(c.dtype) + 1e-6);
        }
    }
}

RC_GTEST_PROP(Structure, heads_in_another_order, ()) {
    const Draw draw = *any_problem({.dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16}});
    const Scenario s = scenario_of(draw);
    const Case& c = s.problem;
    const std::int64_t G = c.N1 / c.N2;
    const std::int64_t turn = *rc::gen::inRange<std::int64_t>(0, c.N2);  // kv heads, their groups with them
    const auto turned = [&](const Tensor& tensor, std::int64_t heads, std::int64_t by) {
        return changed(
            tensor, [&, heads, by](auto b, auto n, auto r, auto d) { return tensor.get(b, (n + by) % heads, r, d); });
    };
    Scenario other = s;
    other.query = turned(s.query, c.N1, turn * G);
    other.dy = turned(s.dy, c.N1, turn * G);
    other.key = turned(s.key, c.N2, turn);
    other.value = turned(s.value, c.N2, turn);
    const Results before = run_both(s, options_of(draw));
    const Results after = run_both(other, options_of(draw));
    require_same("attention_out", after.attention_out, turned(before.attention_out, c.N1, turn * G));
    require_same("softmax_max", after.softmax_max, turned(before.softmax_max, c.N1, turn * G));
    require_same("softmax_sum", after.softmax_sum, turned(before.softmax_sum, c.N1, turn * G));
    require_same("dq", after.dq, turned(before.dq, c.N1, turn * G));
    require_same("dk", after.dk, turned(before.dk, c.N2, turn));
    require_same("dv", after.dv, turned(before.dv, c.N2, turn));
}

RC_GTEST_PROP(Structure, batches_one_at_a_time, ()) {
    const Draw draw = *any_problem({.dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16}, .layouts = false});
    const Scenario s = scenario_of(draw);
    const Case& c = s.problem;
    const Results together = run_both(s, options_of(draw));
    for (std::int64_t b = 0; b < c.B; ++b) {
        Scenario one = make_scenario(s.query.batches(b, 1), s.key.batches(b, 1), s.value.batches(b, 1),
                                     s.dy.batches(b, 1), s.params.scale);
        one.params.rule = c.rule;
        const Results alone = run_both(one, options_of(draw));
        require_same("attention_out", alone.attention_out, together.attention_out.batches(b, 1));
        require_same("dq", alone.dq, together.dq.batches(b, 1));
        require_same("dk", alone.dk, together.dk.batches(b, 1));
        require_same("dv", alone.dv, together.dv.batches(b, 1));
    }
}

RC_GTEST_PROP(Structure, a_smaller_window_sees_less, ()) {
    // Taking one diagonal off a window's left end: rows that had nothing there keep their statistics; in the others the
    // sum of exp falls by exactly that key's share.
    Draw draw = *any_problem({.rules = false});
    Case& c = draw.problem;
    const std::int64_t left = *rc::gen::inRange<std::int64_t>(1, c.S2 + 1);
    c.rule = window(left, *rc::gen::inRange<std::int64_t>(0, 40));
    const Scenario s = scenario_of(draw);
    Scenario smaller = s;
    smaller.params.rule.left = smaller.problem.rule.left = left - 1;
    const Results wide = run_forward(s, options_of(draw));
    const Results narrow = run_forward(smaller, options_of(draw));
    const std::int64_t G = c.N1 / c.N2;
    for (std::int64_t n = 0; n < c.N1; ++n) {
        for (std::int64_t i = 0; i < c.S1; ++i) {
            const std::int64_t j = i + c.S2 - c.S1 - left;
            const double total = std::exp(wide.softmax_max.get(0, n, i, 0)) * wide.softmax_sum.get(0, n, i, 0);
            if (row_is_empty(smaller.problem, i) || std::abs(wide.softmax_max.get(0, n, i, 0)) > 100) continue;
            if (std::abs(narrow.softmax_max.get(0, n, i, 0)) > 100) continue;  // nothing is left
            double share = 0.0;
            if (j >= 0 && j < c.S2) {
                double score = 0.0;
                for (std::int64_t d = 0; d < c.D; ++d) score += s.query.get(0, n, i, d) * s.key.get(0, n / G, j, d);
                share = std::exp(s.params.scale * score);
            }
            const double rest = std::exp(narrow.softmax_max.get(0, n, i, 0)) * narrow.softmax_sum.get(0, n, i, 0);
            RC_ASSERT(std::abs(total - share - rest) <= identity * total);
        }
    }
}

RC_GTEST_PROP(Structure, threads_and_repetition_do_not_matter, ()) {
    const Draw draw = *any_problem({.dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16}});
    const Scenario s = scenario_of(draw);
    const Results expected = run_both(s, options_of(draw));
    Options other = options_of(draw);
    other.threads = *rc::gen::inRange(1, 6);
    other.workspace_fill = std::byte{0x3F};
    require_same_bits(run_both(s, other), expected);
}

RC_GTEST_PROP(Gradient, agrees_with_finite_differences, ()) {
    // The derivative of Σ out∘dy along a random direction. Central difference with step h: truncation h²·f'''/6,
    // rounding 2^-53·f/h. With h = 1e-4 both are near 1e-8 of the sizes below; 1e-6 leaves a hundredfold for f'''.
    Draw draw = *any_problem({});
    Case& c = draw.problem;
    c.S1 = std::min<std::int64_t>(c.S1, 20), c.S2 = std::min<std::int64_t>(c.S2, 20), c.B = 1;
    const Scenario s = scenario_of(draw);
    const Results got = run_both(s, options_of(draw));
    Random random(draw.seed);
    std::vector<Tensor> direction;
    double along = 0.0;
    double size = 0.0;
    for (const auto& [input, gradient] : {std::pair{&s.query, &got.dq}, {&s.key, &got.dk}, {&s.value, &got.dv}}) {
        Tensor unit(DType::f64, input->form(), input->extents());
        unit.fill_normal(random);
        const std::vector<double> u = unit.values();
        const std::vector<double> g = gradient->values();
        for (std::size_t at = 0; at < u.size(); ++at) along += u[at] * g[at], size += std::abs(u[at] * g[at]);
        direction.push_back(unit);
    }
    constexpr double step = 1e-4;
    const auto loss = [&](double by) {
        Scenario moved = s;
        std::size_t which = 0;
        for (Tensor* input : {&moved.query, &moved.key, &moved.value}) {
            const Tensor from = *input;
            const Tensor& unit = direction[which++];
            *input = changed(
                from, [&](auto b, auto n, auto r, auto d) { return from.get(b, n, r, d) + by * unit.get(b, n, r, d); });
        }
        const Results results = run_forward(moved, options_of(draw));
        const std::vector<double> out = results.attention_out.values();
        const std::vector<double> dy = s.dy.values();
        double sum = 0.0;
        for (std::size_t at = 0; at < out.size(); ++at) sum += out[at] * dy[at];
        return sum;
    };
    const double difference = (loss(step) - loss(-step)) / (2.0 * step);
    // f''' grows with the cube of the scores' change along the direction, of order |scale|·√D·(|q| + |k|).
    const double speed = 1.0 + std::abs(s.params.scale) * std::sqrt(static_cast<double>(c.D)) * 8.0;
    const double out_size = s.dy.max_abs() * s.value.max_abs() * static_cast<double>(c.S1 * c.N1 * c.Dv);
    RC_ASSERT(std::abs(difference - along) <= 1e-8 * speed * speed * speed * out_size + 1e-6 * size);
}

}  // namespace
}  // namespace fascore::test
