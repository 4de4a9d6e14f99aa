// SPDX-License-Identifier: Apache-2.0
//
// NUM: large scores, cancellation, bias of rounding.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "cases/cases.h"

namespace fascore::test {
namespace {

TEST_P(Cases, NUM_01_saturated_score_keeps_the_only_weight_one) {
    // One bf16 key so large that scale times score has no exact f32: if forward and gradient round it in different
    // places, exp sees their difference (thousands) instead of 0. Right: EXACT out = v, no gradient to q and k.
    constexpr double large = 133120.0;  // 65·2^11: score 270400·2^22, an exact f32
    for (const double sign : {1.0, -1.0}) {
        for (const std::int64_t keys : {1, 3}) {
            SCOPED_TRACE(keys);
            const Scenario s =
                make_scenario(bnsd(bf16, 1, 1, 1, 64).fill(large), bnsd(bf16, 1, 1, keys, 64).fill(sign * large),
                              bnsd(bf16, 1, 1, keys, 64).fill(large), bnsd(bf16, 1, 1, 1, 64).fill(1.0), 0.125);
            const Results got = run_both(s, options());
            EXPECT_TRUE(all_equal(got.attention_out, large));
            const double lse = got.softmax_max.get(0, 0, 0, 0) + std::log(got.softmax_sum.get(0, 0, 0, 0));
            EXPECT_NEAR(lse, sign * 141767475200.0, 16384.0);  // one ulp of f32 there
            EXPECT_TRUE(got.dq.all_zero());
            EXPECT_TRUE(got.dk.all_zero());
            const double weight = 1.0 / static_cast<double>(keys);
            EXPECT_TRUE(
                within("dv", got.dv, bnsd(f64, 1, 1, keys, 64).fill(weight), keys == 1 ? 0 : ulp(weight, bf16)));
        }
    }
}

TEST_P(Cases, NUM_03_wide_score_range) {
    // Logits spread over hundreds: an online softmax that skips rescaling "when little moved" applies it to the wrong
    // rows. Right: BUDGET, all finite, I5, with keys in any order.
    for (const double key_size : {32.0, 64.0}) {
        for (const bool causal : {false, true}) {
            const Case problem{.name = "NUM_03",
                               .S1 = 700,
                               .S2 = 1024,
                               .D = 128,
                               .Dv = 128,
                               .dtype = bf16,
                               .rule = causal ? causal_bottom_right : MaskRule{},
                               .key_size = key_size};
            const Scenario s = make_scenario(problem);
            static std::map<std::pair<double, bool>, Truth> known;  // shared by the instruction sets
            const auto [truth, fresh] = known.try_emplace({key_size, causal});
            if (fresh) truth->second = truth_of(s);
            const Results got = run_both(s, options(2));
            EXPECT_TRUE(got.attention_out.all_finite() && got.dq.all_finite() && got.dk.all_finite() &&
                        got.dv.all_finite());
            expect_budget(s, got, truth->second.exact, truth->second.plain);
            expect_i5(s, got, truth->second);
        }
    }
}

TEST_P(Cases, NUM_03_logits_in_ascending_and_descending_order) {
    // The same keys sorted by row 0's logits, both ways: the running maximum moves at every key, or never (I7).
    const Case problem{
        .name = "NUM_03_sorted", .S1 = 3, .S2 = 1024, .D = 128, .Dv = 128, .dtype = bf16, .key_size = 32};
    const Scenario s = make_scenario(problem);
    const Truth truth = truth_of(s);
    std::vector<std::pair<double, std::int64_t>> order;
    for (std::int64_t j = 0; j < problem.S2; ++j) {
        double logit = 0.0;
        for (std::int64_t d = 0; d < problem.D; ++d) logit += s.query.get(0, 0, 0, d) * s.key.get(0, 0, j, d);
        order.emplace_back(logit, j);
    }
    for (const bool ascending : {true, false}) {
        std::sort(order.begin(), order.end());
        if (!ascending) std::reverse(order.begin(), order.end());
        const auto permuted = [&](const Tensor& tensor) {
            Tensor copy(tensor.dtype(), tensor.form(), tensor.extents());
            return copy.fill([&](auto b, auto n, auto j, auto d) {
                return tensor.get(b, n, order[static_cast<std::size_t>(j)].second, d);
            });
        };
        const Scenario sorted = make_scenario(s.query, permuted(s.key), permuted(s.value), s.dy, s.params.scale);
        const Results got = run_both(sorted, options());
        EXPECT_TRUE(
            within_budget("attention_out", got.attention_out, truth.exact.attention_out, truth.plain.attention_out));
        EXPECT_TRUE(within_budget("dq", got.dq, truth.exact.dq, truth.plain.dq));
        EXPECT_TRUE(within_budget("dk", got.dk, permuted(truth.exact.dk), permuted(truth.plain.dk)));
        EXPECT_TRUE(within_budget("dv", got.dv, permuted(truth.exact.dv), permuted(truth.plain.dv)));
    }
}

TEST_P(Cases, NUM_05_one_key) {
    // A single key: its weight is 1 whatever the score, so out = v and nothing reaches q and k. Fails when the padding
    // of a tile meets statistics nobody wrote. Outputs start as NaN; sums of so few 16-bit numbers are exact in f32.
    for (const DType dtype : {f16, bf16}) {
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            for (std::int64_t S1 = 1; S1 <= 17; S1 += seed < 3 ? 1 : 16) {
                const Case problem{.name = "NUM_05",
                                   .S1 = S1,
                                   .S2 = 1,
                                   .dtype = dtype,
                                   .query_size = 3,
                                   .key_size = 3,
                                   .value_size = 3};
                Scenario s = make_scenario(problem, seed);
                s.dy.fill(1.0);
                const Results got = run_both(s, options());
                for (std::int64_t i = 0; i < S1; ++i) {
                    ASSERT_TRUE(equal_bits("attention_out", got.attention_out.rows(i, 1), s.value));
                }
                ASSERT_TRUE(got.dq.all_zero()) << "seed " << seed << " S1 " << S1;
                ASSERT_TRUE(got.dk.all_zero()) << "seed " << seed << " S1 " << S1;
                ASSERT_TRUE(all_equal(got.dv, static_cast<double>(S1)));
            }
        }
    }
}

TEST_P(Cases, NUM_06_leading_tiles_without_a_visible_key) {
    // Only one key of 1031 is visible, so most tiles of keys hold nothing: (−inf) − (−inf) and 0·inf lie in wait.
    // Right: EXACT out = that value, dv = Σ dy there and 0 elsewhere, dq = dk = 0. Values are dyadic.
    constexpr std::int64_t S1 = 5, S2 = 1031, D = 8;
    for (const std::int64_t key : {std::int64_t{1030}, std::int64_t{0}, std::int64_t{515}}) {
        Random random(6);
        Tensor query = bnsd(f32, 1, 1, S1, D), keys = bnsd(f32, 1, 1, S2, D);
        Tensor value = bnsd(f32, 1, 1, S2, D), dy = bnsd(f32, 1, 1, S1, D);
        fill_dyadic(query, random), fill_dyadic(keys, random), fill_dyadic(value, random), fill_dyadic(dy, random);
        Scenario s = make_scenario(query, keys, value, dy, 0.5);
        s.mask = mask_where(S1, S2, [key](auto, auto j) { return j == key; });
        s.params.sparse_mode = 1;
        const Results got = run_both(s, options());
        for (std::int64_t i = 0; i < S1; ++i) {
            EXPECT_TRUE(equal_bits("attention_out", got.attention_out.rows(i, 1), s.value.rows(key, 1)));
        }
        Tensor dv = bnsd(f32, 1, 1, S2, D);
        dv.fill([&](auto, auto, auto j, auto d) {
            double sum = 0.0;
            for (std::int64_t i = 0; i < S1; ++i) sum += dy.get(0, 0, i, d);
            return j == key ? sum : 0.0;
        });
        EXPECT_TRUE(within("dv", got.dv, dv, 0.0));
        EXPECT_TRUE(got.dq.all_zero());
        EXPECT_TRUE(got.dk.all_zero());
    }
}

TEST_P(Cases, NUM_08_unscaled_f16_product_overflows) {
    // q·k is 230400, far above f16's 65504; scaled it is 28800 and fits. Right: weights (1/3, 1/3, 1/3, 0).
    const Tensor query = bnsd(f16, 1, 1, 1, 64).fill(60.0);
    Tensor key = bnsd(f16, 1, 1, 4, 64);
    key.fill([](auto, auto, auto j, auto) { return j < 3 ? 60.0 : -60.0; });
    Random random(8);
    Tensor dy = bnsd(f16, 1, 1, 1, 4).fill_normal(random);
    const Results got = run_both(make_scenario(query, key, identity_value(f16, 4), dy, 0.125), options());
    Tensor expected = bnsd(f64, 1, 1, 1, 4);
    expected.fill([](auto, auto, auto, auto j) { return j < 3 ? 1.0 / 3.0 : 0.0; });
    EXPECT_TRUE(within("attention_out", got.attention_out, expected, ulp(1.0 / 3.0, f16)));
    EXPECT_EQ(got.attention_out.get(0, 0, 0, 3), 0.0);
    EXPECT_EQ(got.softmax_max.get(0, 0, 0, 0), 28800.0);  // exact in f32, as is every partial sum
    EXPECT_NEAR(got.softmax_sum.get(0, 0, 0, 0), 3.0, 1e-6);
    EXPECT_TRUE(got.dq.all_finite() && got.dk.all_finite() && got.dv.all_finite());
}

TEST_P(Cases, NUM_08_large_negative_f16_inputs) {
    // q, k in (−900, 0): raw scores up to 5e7. A plain f16 evaluation has no finite answer to compare with; what must
    // hold anyway: all finite, every out inside the range of its column of v, Σ dv = Σ dy (I2).
    Random random(88);
    Tensor query = bnsd(f16, 1, 1, 128, 64), key = bnsd(f16, 1, 1, 128, 64);
    query.fill_uniform(random, -900, 0), key.fill_uniform(random, -900, 0);
    const Tensor value = bnsd(f16, 1, 1, 128, 64).fill_normal(random);
    const Tensor dy = bnsd(f16, 1, 1, 128, 64).fill_normal(random);
    const Scenario s = make_scenario(query, key, value, dy, 0.125);
    const Results got = run_both(s, options());
    EXPECT_TRUE(got.attention_out.all_finite() && got.dq.all_finite() && got.dk.all_finite() && got.dv.all_finite());
    for (std::int64_t d = 0; d < 64; ++d) {
        double low = value.get(0, 0, 0, d), high = low;
        for (std::int64_t j = 0; j < 128; ++j) {
            low = std::min(low, value.get(0, 0, j, d)), high = std::max(high, value.get(0, 0, j, d));
        }
        for (std::int64_t i = 0; i < 128; ++i) {
            const double out = got.attention_out.get(0, 0, i, d);
            EXPECT_TRUE(out >= low - ulp(low, f16) && out <= high + ulp(high, f16)) << out;
        }
    }
    // P and dv are each rounded once; and a maximum of 10^6 stored in f32 may be off by half an ulp (0.06), which every
    // P of its row inherits as a factor.
    expect_i2(s, got, 2 * unit_roundoff(f16) + std::expm1(0.5 * ulp(got.softmax_max.max_abs(), f32)));
}

TEST_P(Cases, NUM_10_rounding_is_not_biased) {
    // Two equal maxima: out is exactly the mean of two values, whose rounding to bf16 is a tie half of the time. Right:
    // errors average out. 4·16 heads of 64 columns give 4096 samples with sd 0.36 ulp; |mean| ≤ 0.02 is 3.6 sd of it.
    Tensor query = bnsd(bf16, 4, 16, 32, 16), key = bnsd(bf16, 4, 16, 512, 16);
    query.fill([](auto, auto, auto, auto d) { return d == 0 ? 40.0 : 0.0; });
    key.fill([](auto, auto, auto j, auto d) { return d == 0 && j < 2 ? 1.0 : 0.0; });
    Random random(10);
    const Tensor value = bnsd(bf16, 4, 16, 512, 64).fill_uniform(random, -2.0, -1.0);
    const Scenario s = make_scenario(query, key, value, bnsd(bf16, 4, 16, 32, 64).fill(1.0), 1.0);
    const Results got = run_forward(s, options(2));
    double sum = 0.0;
    for (std::int64_t b = 0; b < 4; ++b) {
        for (std::int64_t n = 0; n < 16; ++n) {
            for (std::int64_t d = 0; d < 64; ++d) {
                const double exact = (value.get(b, n, 0, d) + value.get(b, n, 1, d)) / 2.0;
                for (std::int64_t i = 0; i < 32; ++i) {
                    sum += (got.attention_out.get(b, n, i, d) - exact) / ulp(exact, bf16);
                }
            }
        }
    }
    EXPECT_LE(std::abs(sum / (4 * 16 * 64 * 32)), 0.02);
}

TEST_P(Cases, NUM_10_equal_keys_give_no_query_gradient) {
    // All keys equal: dq must be 0 (I1). What is left is rounding: no larger than a plain bf16 evaluation's, and not
    // leaning to one side. attention_out travels in f32 here: rounded to bf16 its error times dy is an error of dq that
    // belongs to the operator's interface (row sums of dy·out come from the stored output), not to the evaluation.
    Tensor query = bnsd(bf16, 1, 16, 32, 16), key = bnsd(bf16, 1, 16, 512, 16);
    query.fill([](auto, auto, auto, auto d) { return d == 0 ? 40.0 : 0.0; });
    key.fill([](auto, auto, auto, auto d) { return d == 0 ? 1.0 : 0.0; });
    Random random(11);
    const Tensor value = bnsd(bf16, 1, 16, 512, 64).fill_uniform(random, -2.0, -1.0);
    const Tensor dy = bnsd(bf16, 1, 16, 32, 64).fill_normal(random);
    Scenario s = make_scenario(query, key, value, dy, 1.0);
    s.problem.f32_out = true;
    const Results got = run_both(s, options());
    const Results plain = reference(s, Evaluation::plain);
    EXPECT_LE(got.dq.max_abs(), plain.dq.max_abs());
    double sum = 0.0;
    double square = 0.0;
    constexpr double samples = 16 * 32;
    for (std::int64_t n = 0; n < 16; ++n) {
        for (std::int64_t i = 0; i < 32; ++i) {
            const double error = got.dq.get(0, n, i, 0);
            sum += error;
            square += error * error;
        }
    }
    EXPECT_LE(std::abs(sum / samples), 3.0 * std::sqrt(square) / samples + 1e-30) << "dq leans to one side";
}

TEST_P(Cases, NUM_11_all_positive_inputs) {
    // Values in [0, 1]: dq and dk are small differences of large sums, which signed data would average out. One head of
    // the eight, since they repeat each other. Right: BUDGET, I2. attention_out travels in f32, see NUM_10.
    for (const DType dtype : {bf16, f16}) {
        Random random(11);
        const auto positive = [&] { return bnsd(dtype, 1, 1, 2048, 32).fill_uniform(random, 0.0, 1.0); };
        const Tensor query = positive(), key = positive(), value = positive(), dy = positive();
        Scenario s = make_scenario(query, key, value, dy, 1.0 / std::sqrt(32.0));
        s.problem.f32_out = true;
        s.problem.name = "NUM_11";
        static std::map<DType, Truth> known;  // shared by the instruction sets
        const auto [truth, fresh] = known.try_emplace(dtype);
        if (fresh) truth->second = truth_of(s);
        const Results got = run_both(s, options(2));
        expect_budget(s, got, truth->second.exact, truth->second.plain);
        expect_i2(s, got, 1e-3);
    }
}

}  // namespace
}  // namespace fascore::test
