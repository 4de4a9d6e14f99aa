// SPDX-License-Identifier: Apache-2.0
//
// API: meaning of the statistics, layouts and their names, options that must not be ignored, the default scale,
// gradients that are not wanted.
#include <cmath>
#include <limits>
#include <utility>

#include "cases/cases.h"

namespace fascore::test {
namespace {

double lse(const Results& results, std::int64_t i = 0) {
    return results.softmax_max.get(0, 0, i, 0) + std::log(results.softmax_sum.get(0, 0, i, 0));
}

TEST_P(Cases, API_01_statistics_are_in_natural_logarithm) {
    // Eight equal logits: max + ln(sum) is ln 8 = 2.079442, not 3 (base 2) and not 1.441363.
    for (const double scale : {1.0, 0.37, -5.0}) {
        const Scenario s = make_scenario(bnsd(f32, 1, 1, 1, 4).fill(0.0), bnsd(f32, 1, 1, 8, 4).fill(3.0),
                                         bnsd(f32, 1, 1, 8, 4).fill(1.0), bnsd(f32, 1, 1, 1, 4).fill(1.0), scale);
        EXPECT_NEAR(lse(run_forward(s, options())), std::log(8.0), 1e-6);
    }
    Scenario s = make_scenario(bnsd(f32, 1, 1, 1, 1).fill(1.0), bnsd(f32, 1, 1, 8, 1).fill(5.0),
                               bnsd(f32, 1, 1, 8, 1).fill(1.0), bnsd(f32, 1, 1, 1, 1).fill(1.0), 1.0);
    EXPECT_EQ(run_forward(s, options()).softmax_max.get(0, 0, 0, 0), 5.0);
    EXPECT_NEAR(lse(run_forward(s, options())), 5.0 + std::log(8.0), 1e-6);
    s.query.fill(0.0);
    s.params.sparse_mode = 1;
    s.mask = mask_where(1, 8, [](auto, auto j) { return j != 2 && j != 5; });
    EXPECT_NEAR(lse(run_forward(s, options())), std::log(6.0), 1e-6);
}

TEST_P(Cases, API_03_heads_and_rows_are_not_swapped) {
    // The same values under each layout's name: EXACT. A head_num that contradicts the tensor, or does not divide its
    // last axis, is refused with both numbers and the layout's axes.
    const Case problem{.name = "API_03", .B = 2, .N1 = 4, .N2 = 2, .S1 = 16, .S2 = 16, .D = 8, .Dv = 8};
    const Results expected = run_both(make_scenario(problem), options());
    for (const Layout layout : {Layout::BSND, Layout::BSH, Layout::SBH}) {
        Case other = problem;
        other.layout = layout;
        expect_same_bits(run_both(make_scenario(other), options()), expected);
    }
    Scenario s = make_scenario(problem);
    s.params.head_num = 16;
    Results results = make_outputs(s);
    Status status = forward(s, results, options());
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    for (const char* text : {"head_num", "16", "4", "BNSD", "[B, N, S, D]"}) {
        EXPECT_NE(status.message().find(text), std::string::npos) << text << " in: " << status.message();
    }
    Case fused = problem;
    fused.layout = Layout::BSH;
    s = make_scenario(fused);
    s.params.head_num = 5;
    results = make_outputs(s);
    status = forward(s, results, options());
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    for (const char* text : {"query", "32", "5", "BSH"}) {
        EXPECT_NE(status.message().find(text), std::string::npos) << text << " in: " << status.message();
    }
    EXPECT_TRUE(results.attention_out.still_poisoned());
}

TEST_P(Cases, API_04_gradcheck) {
    // Every element of dq, dk, dv against a central difference of Σ out∘dy in f64. Step 1e-5: truncation is of order
    // 1e-10, rounding of order 1e-16 / 1e-5 = 1e-11; 1e-7 is far above both and far below any wrong gradient.
    struct Variant {
        const char* name;
        MaskRule rule;
        MaskShape mask;
        double scale;
    };
    for (const Variant& variant :
         {Variant{"plain", {}, MaskShape::none, 0.7}, Variant{"top left", causal_top_left, MaskShape::none, 0.7},
          Variant{"bottom right", causal_bottom_right, MaskShape::none, 0.7},
          Variant{"window", window(1, 0), MaskShape::none, 0.7}, Variant{"mask", {}, MaskShape::ss, 0.7},
          Variant{"negative scale", {}, MaskShape::none, -1.3}, Variant{"scale 0", {}, MaskShape::none, 0.0}}) {
        SCOPED_TRACE(variant.name);
        const Case problem{.name = "API_04",
                           .N1 = 2,
                           .N2 = 1,
                           .S1 = 3,
                           .S2 = 4,
                           .D = 2,
                           .Dv = 3,
                           .dtype = f64,
                           .scale = variant.scale,
                           .mask = variant.mask,
                           .sparse_mode = 1,
                           .rule = variant.rule};
        Scenario s = make_scenario(problem);
        const Results got = run_both(s, options());
        const auto loss = [&] {
            const Results results = run_forward(s, options());
            double sum = 0.0;
            const std::vector<double> out = results.attention_out.values(), dy = s.dy.values();
            for (std::size_t at = 0; at < out.size(); ++at) sum += out[at] * dy[at];
            return sum;
        };
        const auto check = [&](const char* what, Tensor& input, const Tensor& gradient) {
            const Extents& e = input.extents();
            for (std::int64_t n = 0; n < e.n; ++n) {
                for (std::int64_t r = 0; r < e.s; ++r) {
                    for (std::int64_t d = 0; d < e.d; ++d) {
                        constexpr double step = 1e-5;
                        const double there = input.get(0, n, r, d);
                        input.set(0, n, r, d, there + step);
                        const double above = loss();
                        input.set(0, n, r, d, there - step);
                        const double below = loss();
                        input.set(0, n, r, d, there);
                        EXPECT_NEAR(gradient.get(0, n, r, d), (above - below) / (2 * step), 1e-7) << what;
                    }
                }
            }
        };
        check("dq", s.query, got.dq);
        check("dk", s.key, got.dk);
        check("dv", s.value, got.dv);
    }
}

TEST_P(Cases, API_09_no_option_is_ignored) {
    // Each option set to something that must change the result does change it, in out and in the gradient; options that
    // lack their tensor are refused by name.
    const Case problem{.name = "API_09", .N1 = 2, .N2 = 2, .S1 = 20, .S2 = 30};
    const Scenario base = make_scenario(problem);
    const Results expected = run_both(base, options());
    const auto expect_change = [&](const char* what, const Scenario& changed) {
        const Results got = run_both(changed, options());
        EXPECT_FALSE(same_bits(got.attention_out, expected.attention_out)) << what << " changed no output";
        EXPECT_FALSE(same_bits(got.dk, expected.dk)) << what << " changed no gradient";
    };
    Scenario s = base;
    s.params.scale *= 1.001;
    expect_change("scale", s);
    for (const MaskRule rule : {causal_top_left, causal_bottom_right, window(3, 3), window(-1, 2), window(2, -1)}) {
        s = base;
        s.params.rule = rule;
        expect_change("rule", s);
    }
    s = base;
    s.mask = mask_where(20, 30, [](auto i, auto j) { return i != 7 || j != 3; });
    expect_change("atten_mask", s);
    s.mask = mask_where(20, 30, [](auto, auto) { return true; });
    s.params.next_tokens = 28;
    expect_change("next_tokens", s);
    s.params.next_tokens = unlimited_tokens;
    s.params.pre_tokens = 18;
    expect_change("pre_tokens", s);
    for (const int mode : {2, 3, 4}) {
        s = base;
        s.mask = mask_where(2048, 2048, [](auto i, auto j) { return j <= i; });
        s.params.sparse_mode = mode;
        s.params.next_tokens = 0;
        expect_change("sparse_mode", s);
    }
    s = base;
    s.params.keep_prob = 0.5;
    expect_change("keep_prob", s);
    s = base;
    s.params.softcap = 2.0;
    expect_change("softcap", s);
    const auto expect_refused = [&](const char* what, const Scenario& changed) {
        Results results = make_outputs(changed);
        const Status status = forward(changed, results, options());
        EXPECT_EQ(status.code(), StatusCode::invalid_argument) << what;
        EXPECT_EQ(status.message().rfind(std::string(what) + ": ", 0), 0U) << status.message();
        EXPECT_TRUE(results.attention_out.still_poisoned());
    };
    s = base;
    s.params.pse_type = 2;
    expect_refused("pse", s);
    s = base;
    s.params.layout = Layout::TND;
    expect_refused("query", s);
    // pse is a tensor of its own.
    Results results = make_outputs(base);
    ForwardInputs in = forward_inputs(base);
    in.pse = base.query.view();
    const Status status = attention_forward(base.params, in, forward_outputs(results), execution_of({}));
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_EQ(status.message().rfind("pse: ", 0), 0U) << status.message();
    EXPECT_TRUE(results.attention_out.still_poisoned());
}

TEST_P(Cases, API_10_whatever_forward_accepts_backward_accepts) {
    for (const DType dtype : {f64, f32, bf16, f16}) {
        for (const Layout layout : {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH}) {
            for (const MaskShape mask : {MaskShape::none, MaskShape::ss, MaskShape::b1ss, MaskShape::compressed}) {
                for (const auto& [D, Dv] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {8, 24}, {768, 768}}) {
                    Case problem{.name = "API_10", .B = 2, .N1 = 4, .N2 = 2, .S1 = 3, .S2 = 5};
                    problem.dtype = dtype, problem.layout = layout, problem.mask = mask;
                    problem.D = D, problem.Dv = Dv;
                    problem.sparse_mode = mask == MaskShape::compressed ? 3 : 0;
                    const Results got = run_both(make_scenario(problem), options());
                    EXPECT_TRUE(got.dq.all_finite() && got.dk.all_finite() && got.dv.all_finite()) << describe(problem);
                }
            }
        }
    }
}

TEST_P(Cases, API_11_the_scale_is_taken_literally) {
    // Not given it is 1, whatever D is; 0 is 0 (equal weights), not "use the default".
    EXPECT_EQ(AttentionParams{}.scale, 1.0);
    Case problem{.name = "API_11", .S1 = 4, .S2 = 5, .D = 64, .Dv = 5, .dtype = f64};
    problem.scale = AttentionParams{}.scale;
    Scenario s = make_scenario(problem);
    EXPECT_TRUE(within_fp64("out", run_forward(s, options()).attention_out, reference(s).attention_out));
    s.value = identity_value(f64, 5);
    s.params.scale = 0.0;
    const Results got = run_both(s, options());
    EXPECT_TRUE(within("out", got.attention_out, bnsd(f64, 1, 1, 4, 5).fill(0.2), 1e-15));
    EXPECT_TRUE(got.dq.all_zero() && got.dk.all_zero());
}

TEST_P(Cases, API_12_eight_copies_of_the_statistics) {
    const Case problem{.name = "API_12", .B = 2, .N1 = 3, .N2 = 3, .S1 = 5, .S2 = 9, .rule = causal_bottom_right};
    const Scenario s = make_scenario(problem);
    const Results got = run_both(s, options());
    const Results exact = reference(s);
    for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t n = 0; n < 3; ++n) {
            for (std::int64_t i = 0; i < 5; ++i) {
                for (std::int64_t copy = 1; copy < 8; ++copy) {
                    EXPECT_EQ(got.softmax_max.get(b, n, i, copy), got.softmax_max.get(b, n, i, 0));
                    EXPECT_EQ(got.softmax_sum.get(b, n, i, copy), got.softmax_sum.get(b, n, i, 0));
                }
                const double want = exact.softmax_max.get(b, n, i, 0) + std::log(exact.softmax_sum.get(b, n, i, 0));
                const double have = got.softmax_max.get(b, n, i, 0) + std::log(got.softmax_sum.get(b, n, i, 0));
                EXPECT_NEAR(have, want, 1e-5);
            }
        }
    }
    // The gradient reads copy 0 and no other.
    Results given = got;
    given.softmax_max = got.softmax_max.rearranged(Form::BNSD, Arrangement::packed);
    given.softmax_sum = got.softmax_sum.rearranged(Form::BNSD, Arrangement::packed);
    for (Tensor* tensor : {&given.softmax_max, &given.softmax_sum}) {
        const Tensor before = tensor->rearranged(Form::BNSD, Arrangement::packed);
        tensor->fill([&](auto b, auto n, auto i, auto copy) {
            return copy == 0 ? before.get(b, n, i, 0) : std::numeric_limits<double>::quiet_NaN();
        });
    }
    expect_same_gradients(run_backward(s, given, options()), got);
    // The other two shapes carry the same numbers.
    for (const int copies : {0, 1}) {
        Scenario other = s;
        other.problem.statistic_copies = copies;
        expect_same_gradients(run_both(other, options()), got);
    }
}

TEST_P(Cases, API_13_only_some_gradients_are_wanted) {
    for (const DType dtype : {f64, f32, bf16, f16}) {
        Case problem{.name = "API_13", .N1 = 4, .N2 = 2, .S1 = 70, .S2 = 90, .D = 24, .Dv = 40};
        problem.dtype = dtype;
        problem.rule = causal_bottom_right;
        const Scenario s = make_scenario(problem);
        const Results all = run_both(s, options());
        for (unsigned subset = 1; subset < 8; ++subset) {
            SCOPED_TRACE(subset);
            Options run = options();
            run.want_dq = (subset & 1U) != 0, run.want_dk = (subset & 2U) != 0, run.want_dv = (subset & 4U) != 0;
            const Results got = run_backward(s, all, run);
            EXPECT_TRUE(!run.want_dq || equal_bits("dq", got.dq, all.dq));
            EXPECT_TRUE(!run.want_dk || equal_bits("dk", got.dk, all.dk));
            EXPECT_TRUE(!run.want_dv || equal_bits("dv", got.dv, all.dv));
        }
    }
}

}  // namespace
}  // namespace fascore::test
