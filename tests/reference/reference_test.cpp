// SPDX-License-Identifier: Apache-2.0
//
// The reference against what can be known without one: closed forms and identities of the dense core. Rows named after
// a public report carry its id (NUM-…, MSK-…, SHP-…, GQA-…, API-…, DST-…). Features have files of their own, and
// gradients_test.cpp differentiates all of them.
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "fascore/info.h"
#include "reference/problem.h"

namespace fascore::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

double relative(const Tensor& got, const Tensor& expected) {
    const std::vector<double> a = got.values();
    const std::vector<double> b = expected.values();
    double worst = 0;
    for (std::size_t k = 0; k < a.size(); ++k) worst = std::max(worst, std::fabs(a[k] - b[k]));
    return worst / std::max(expected.max_abs(), 1e-300);
}

// ---- closed forms --------------------------------------------------------------------------------------------------

TEST(ClosedForms, NUM01_SaturatedScores) {
    for (const std::int64_t keys : {1, 3}) {
        for (const double sign : {1.0, -1.0}) {
            Attention a({1, 1, 1, 1, keys, 64, 64}, DType::bf16);
            a.params.scale = 0.125;
            a.query.fill(133120.0);
            a.key.fill(sign * 133120.0);
            a.value.fill(133120.0);
            a.dy.fill(1.0);
            a.run();
            EXPECT_EQ(a.softmax_max.get(0, 0, 0, 0), sign * 8.0 * 133120.0 * 133120.0);
            EXPECT_EQ(a.softmax_sum.get(0, 0, 0, 0), static_cast<double>(keys));
            EXPECT_NEAR(a.attention_out.get(0, 0, 0, 0), 133120.0, 133120.0 * 0x1p-51);  // (k/3)·3 twice rounded
            for (const double v : a.dv.values()) EXPECT_NEAR(v, 1.0 / static_cast<double>(keys), 0x1p-53);
            // Σ_j P·dP against dP: both of size 64·133120, apart by their rounding; times scale·|k|.
            const double bound = 0.125 * 133120.0 * 64 * 133120.0 * 0x1p-50;
            EXPECT_LE(a.dq.max_abs(), bound);
            EXPECT_LE(a.dk.max_abs(), bound);
        }
    }
}

TEST(ClosedForms, NUM06_OneVisibleKey) {
    for (const std::int64_t only : {1030, 0, 515}) {
        Attention a({1, 1, 1, 5, 1031, 8, 8}, DType::f32);
        a.normal(6);
        a.params.sparse_mode = 1;
        a.atten_mask = Tensor(DType::boolean, Form::SS, {1, 1, 5, 1031});
        a.atten_mask.fill([&](auto, auto, auto, auto j) { return j == only ? 0.0 : 1.0; });
        a.run();
        EXPECT_TRUE(a.dq.all_zero());
        EXPECT_TRUE(a.dk.all_zero());
        for (std::int64_t i = 0; i < 5; ++i) {
            for (std::int64_t c = 0; c < 8; ++c) {
                EXPECT_EQ(a.attention_out.get(0, 0, i, c), a.value.get(0, 0, only, c));
            }
        }
        for (std::int64_t j = 0; j < 1031; ++j) {
            for (std::int64_t c = 0; c < 8; ++c) {
                double sum = 0;
                for (std::int64_t i = 0; i < 5; ++i) sum += j == only ? a.dy.get(0, 0, i, c) : 0.0;
                ASSERT_EQ(a.dv.get(0, 0, j, c), sum);
            }
        }
    }
}

TEST(ClosedForms, NUM08_ScaleKeepsScoresInRange) {
    Attention a({1, 1, 1, 1, 4, 64, 4}, DType::f16);
    a.params.scale = 0.125;
    a.query.fill(60.0);
    a.key.fill([](auto, auto, std::int64_t j, auto) { return j == 3 ? -60.0 : 60.0; });
    a.identity_values();
    a.dy.fill(1.0);
    a.run();
    for (std::int64_t c = 0; c < 4; ++c) EXPECT_NEAR(a.attention_out.get(0, 0, 0, c), c == 3 ? 0.0 : 1.0 / 3.0, 1e-16);
    EXPECT_NEAR(a.softmax_max.get(0, 0, 0, 0) + std::log(a.softmax_sum.get(0, 0, 0, 0)), 28801.0986, 5e-5);
    EXPECT_TRUE(a.dq.all_finite());
}

TEST(ClosedForms, MSK05_MoreQueriesThanKeysBottomRight) {
    Attention a({1, 2, 1, 300, 40, 16, 16}, DType::f32);
    a.params.rule.kind = MaskRule::Kind::causal_bottom_right;
    a.normal(5);
    a.run();
    Attention square({1, 2, 1, 40, 40, 16, 16}, DType::f32);
    square.params.rule.kind = MaskRule::Kind::causal_top_left;
    a.query.rows(260, 40).copy_into(square.query);
    a.dy.rows(260, 40).copy_into(square.dy);
    a.key.copy_into(square.key);
    a.value.copy_into(square.value);
    square.run();
    EXPECT_TRUE(a.attention_out.rows(0, 260).all_zero());
    EXPECT_TRUE(a.dq.rows(0, 260).all_zero());
    EXPECT_EQ(a.softmax_max.get(0, 1, 259, 7), -static_cast<double>(FLT_MAX));
    EXPECT_EQ(a.softmax_sum.get(0, 1, 259, 7), static_cast<double>(FLT_MAX));
    EXPECT_EQ(first_difference(a.attention_out.rows(260, 40), square.attention_out), "");
    EXPECT_EQ(first_difference(a.dq.rows(260, 40), square.dq), "");
    EXPECT_EQ(first_difference(a.dk, square.dk), "");
    EXPECT_EQ(first_difference(a.dv, square.dv), "");
}

TEST(ClosedForms, API01_StatisticsOfEqualScores) {
    Attention a({1, 1, 1, 1, 8, 1, 1}, DType::f32);
    a.query.fill(0.0);
    a.key.fill(1.0);
    a.value.fill(1.0);
    ASSERT_TRUE(a.forward().ok());
    EXPECT_EQ(a.softmax_max.get(0, 0, 0, 0), 0.0);
    EXPECT_EQ(a.softmax_sum.get(0, 0, 0, 0), 8.0);
    a.query.fill(5.0);
    ASSERT_TRUE(a.forward().ok());
    EXPECT_EQ(a.softmax_max.get(0, 0, 0, 0), 5.0);
    EXPECT_EQ(a.softmax_sum.get(0, 0, 0, 0), 8.0);
    a.params.sparse_mode = 1;
    a.atten_mask = Tensor(DType::u8, Form::SS, {1, 1, 1, 8});
    a.atten_mask.fill([](auto, auto, auto, std::int64_t j) { return j < 2 ? 1.0 : 0.0; });
    ASSERT_TRUE(a.forward().ok());
    EXPECT_EQ(a.softmax_sum.get(0, 0, 0, 0), 6.0);
}

// With Q = 0 the sum counts the visible keys, and with V = (j, j²) attention_out is the mean of their positions and of
// the squares: of a run of neighbours, the two tell first and last.
TEST(ClosedForms, MSK23_RulesReachBeyondTheCompressedMask) {
    struct Row {
        int mode;
        std::int64_t S1, pre, next;
    };
    const std::int64_t S2 = 2050;
    for (const Row& row : {Row{2, 2050, 0, 0}, Row{3, 2050, 0, 0}, Row{3, 3, 0, 0}, Row{4, 3, 5, 1}}) {
        Attention a({1, 1, 1, row.S1, S2, 1, 2}, DType::f64);
        a.compressed(row.mode, row.pre, row.next);
        a.value.fill([](auto, auto, std::int64_t j, std::int64_t c) {
            return c == 0 ? static_cast<double>(j) : static_cast<double>(j * j);
        });
        a.query.fill(0.0);
        a.key.fill(1.0);
        ASSERT_TRUE(a.forward().ok());
        const std::int64_t delta = S2 - row.S1;
        for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, row.S1 - 1}) {
            const std::int64_t first = row.mode == 4 ? std::max<std::int64_t>(0, i + delta - row.pre) : 0;
            const std::int64_t last = row.mode == 2   ? i
                                      : row.mode == 3 ? i + delta
                                                      : std::min(S2 - 1, i + delta + row.next);
            double mean = 0;
            double mean_square = 0;
            for (std::int64_t j = first; j <= last; ++j) {
                mean += static_cast<double>(j) / static_cast<double>(last - first + 1);
                mean_square += static_cast<double>(j * j) / static_cast<double>(last - first + 1);
            }
            EXPECT_EQ(a.softmax_sum.get(0, 0, i, 0), static_cast<double>(last - first + 1)) << row.mode << " row " << i;
            // 2050 additions of at most 2050² / count each: far below 1e-6, and a neighbour more would move 1e-1.
            EXPECT_NEAR(a.attention_out.get(0, 0, i, 0), mean, 1e-6) << row.mode << " row " << i;
            EXPECT_NEAR(a.attention_out.get(0, 0, i, 1), mean_square, 1e-6) << row.mode << " row " << i;
        }
    }
}

// ---- identities ----------------------------------------------------------------------------------------------------

TEST(Identities, GQA01_RepeatedHeadsSumUp) {
    for (const auto& [N1, N2] : {std::pair{4, 4}, {6, 2}, {6, 3}, {8, 1}, {13, 1}}) {
        Attention grouped({2, N1, N2, 5, 9, 4, 4}, DType::f64);
        grouped.params.scale = 0.5;
        grouped.normal(static_cast<std::uint64_t>(N1 * 16 + N2)).run();
        Attention repeated({2, N1, N1, 5, 9, 4, 4}, DType::f64);
        repeated.params.scale = 0.5;
        const std::int64_t G = N1 / N2;
        grouped.query.copy_into(repeated.query);
        grouped.dy.copy_into(repeated.dy);
        repeated.key.fill([&](auto b, auto n, auto s, auto d) { return grouped.key.get(b, n / G, s, d); });
        repeated.value.fill([&](auto b, auto n, auto s, auto d) { return grouped.value.get(b, n / G, s, d); });
        repeated.run();
        EXPECT_EQ(first_difference(grouped.attention_out, repeated.attention_out), "");
        EXPECT_EQ(first_difference(grouped.dq, repeated.dq), "");
        const auto summed = [&](const Tensor& gradient) {
            Tensor sum(DType::f64, Form::BNSD, {2, N2, 9, 4});
            sum.fill([&](auto b, auto n, auto s, auto d) {
                double total = 0;
                for (std::int64_t g = 0; g < G; ++g) total += gradient.get(b, n * G + g, s, d);
                return total;
            });
            return sum;
        };
        EXPECT_LE(relative(grouped.dk, summed(repeated.dk)), 1e-14);
        EXPECT_LE(relative(grouped.dv, summed(repeated.dv)), 1e-14);
    }
}

TEST(Identities, DST06_StatisticsOfAllKeysServeEachPart) {
    // Keys in two parts; each part gets the statistics and the output of the whole: dq adds up, dk and dv concatenate.
    Attention whole({1, 2, 1, 6, 10, 3, 4}, DType::f64);
    whole.normal(8).run();
    const std::vector<double> dq = whole.dq.values();
    std::vector<double> sum(dq.size(), 0.0);
    for (const auto& [first, count] : {std::pair{0, 4}, {4, 6}}) {
        for (const bool as_lse : {false, true}) {
            Attention part({1, 2, 1, 6, count, 3, 4}, DType::f64);
            whole.query.copy_into(part.query);
            whole.dy.copy_into(part.dy);
            whole.key.rows(first, count).copy_into(part.key);
            whole.value.rows(first, count).copy_into(part.value);
            whole.attention_out.copy_into(part.attention_out);
            part.softmax_max.fill([&](auto b, auto n, auto i, auto c) {
                // of the eight copies the first is read
                if (c > 0) return nan;
                const double max = whole.softmax_max.get(b, n, i, 0);
                return as_lse ? max + std::log(whole.softmax_sum.get(b, n, i, 0)) : max;
            });
            part.softmax_sum.fill([&](auto b, auto n, auto i, auto c) {
                return c > 0 ? nan : as_lse ? 1.0 : whole.softmax_sum.get(b, n, i, 0);
            });
            ASSERT_TRUE(part.backward(Attention::Statistics::given).ok());
            EXPECT_LE(relative(part.dk, whole.dk.rows(first, count)), 1e-13);
            EXPECT_LE(relative(part.dv, whole.dv.rows(first, count)), 1e-13);
            if (as_lse) continue;
            for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += part.dq.values()[k];
        }
    }
    for (std::size_t k = 0; k < sum.size(); ++k) EXPECT_NEAR(sum[k], dq[k], 1e-14);
}

// A gradient with max = sum = 3 is the formula with those numbers: P = exp(x − 3) / 3.
TEST(Identities, StatisticsAreTakenAsGiven) {
    Attention a({1, 1, 1, 2, 3, 1, 1}, DType::f64);
    a.params.scale = 2.0;
    a.normal(3);
    a.softmax_max.fill(3.0);
    a.softmax_sum.fill(3.0);
    a.attention_out.fill(0.25);
    ASSERT_TRUE(a.backward(Attention::Statistics::given).ok());
    for (std::int64_t j = 0; j < 3; ++j) {
        double dk = 0;
        double dv = 0;
        for (std::int64_t i = 0; i < 2; ++i) {
            const double q = a.query.get(0, 0, i, 0);
            const double y = a.dy.get(0, 0, i, 0);
            const double P = std::exp(2.0 * q * a.key.get(0, 0, j, 0) - 3.0) / 3.0;
            dv += P * y;
            dk += 2.0 * P * (y * a.value.get(0, 0, j, 0) - y * 0.25) * q;
        }
        EXPECT_NEAR(a.dk.get(0, 0, j, 0), dk, 1e-14);
        EXPECT_NEAR(a.dv.get(0, 0, j, 0), dv, 1e-14);
    }
}

TEST(Identities, I5_BothSidesOfTheProduct) {
    Attention a({1, 4, 2, 17, 23, 5, 7}, DType::f64);
    a.compressed(4, 6, 3).normal(55).run();
    for (std::int64_t h = 0; h < 2; ++h) {
        double query_side = 0;
        double key_side = 0;
        for (std::int64_t n = 2 * h; n < 2 * h + 2; ++n) {
            for (std::int64_t i = 0; i < 17; ++i) {
                for (std::int64_t d = 0; d < 5; ++d) query_side += a.query.get(0, n, i, d) * a.dq.get(0, n, i, d);
            }
        }
        for (std::int64_t j = 0; j < 23; ++j) {
            for (std::int64_t d = 0; d < 5; ++d) key_side += a.key.get(0, h, j, d) * a.dk.get(0, h, j, d);
        }
        EXPECT_NEAR(query_side, key_side, 1e-12 * std::max(1.0, std::fabs(key_side)));
    }
}

// ---- NaN and infinity ----------------------------------------------------------------------------------------------

TEST(NonFinite, MSK03_BehindTheMaskNothingCounts) {
    for (const double poison : {nan, inf, -inf}) {
        for (const bool in_key : {true, false}) {
            const auto make = [&](double hidden) {
                Attention a({1, 2, 1, 3, 70, 4, 4}, DType::f32);
                a.normal(33);
                a.params.sparse_mode = 1;
                a.atten_mask = Tensor(DType::boolean, Form::SS, {1, 1, 3, 70});
                a.atten_mask.fill(
                    [](auto, auto, auto, std::int64_t j) { return j == 1 || j == 33 || j == 69 ? 1. : 0.; });
                for (const std::int64_t j : {1, 33, 69}) {
                    for (std::int64_t d = 0; d < 4; ++d) (in_key ? a.key : a.value).set(0, 0, j, d, hidden);
                }
                a.run();
                return a;
            };
            for (const Evaluation evaluation : {Evaluation::exact, Evaluation::plain}) {
                Attention zero = make(0.0);
                Attention spoilt = make(poison);
                zero.run(evaluation);
                spoilt.run(evaluation);
                EXPECT_EQ(first_difference(spoilt.attention_out, zero.attention_out), "");
                EXPECT_EQ(first_difference(spoilt.dq, zero.dq), "");
                EXPECT_EQ(first_difference(spoilt.dk, zero.dk), "");
                EXPECT_EQ(first_difference(spoilt.dv, zero.dv), "");
                for (const std::int64_t j : {1, 33, 69}) {
                    EXPECT_TRUE(spoilt.dk.rows(j, 1).all_zero());
                    EXPECT_TRUE(spoilt.dv.rows(j, 1).all_zero());
                }
            }
        }
    }
}

TEST(NonFinite, ANaNQueryRowReachesWhatDependsOnIt) {
    Attention a({1, 1, 1, 3, 5, 2, 2}, DType::f32);
    a.normal(7);
    a.params.rule = {MaskRule::Kind::window, 0, 0};  // row i sees column i + 2
    a.query.set(0, 0, 2, 1, nan);
    a.run();
    for (std::int64_t c = 0; c < 2; ++c) {
        EXPECT_TRUE(std::isnan(a.attention_out.get(0, 0, 2, c)));
        EXPECT_TRUE(std::isnan(a.dq.get(0, 0, 2, c)));
        EXPECT_TRUE(std::isnan(a.dk.get(0, 0, 4, c)));
        EXPECT_TRUE(std::isnan(a.dv.get(0, 0, 4, c)));
    }
    EXPECT_TRUE(std::isnan(a.softmax_max.get(0, 0, 2, 0)));
    EXPECT_TRUE(a.attention_out.rows(0, 2).all_finite());
    EXPECT_TRUE(a.dq.rows(0, 2).all_finite());
    EXPECT_TRUE(a.dk.rows(0, 4).all_finite());
    EXPECT_TRUE(a.dv.rows(0, 4).all_finite());
}

TEST(NonFinite, MSK01_AnEmptyRowTakesNoPart) {
    Attention a({1, 2, 1, 4, 3, 8, 8}, DType::f32);
    a.params.rule.kind = MaskRule::Kind::causal_bottom_right;  // row 0 sees nothing
    a.normal(1);
    for (std::int64_t n = 0; n < 2; ++n) {
        for (std::int64_t c = 0; c < 8; ++c) {
            a.dy.set(0, n, 0, c, nan);
            a.query.set(0, n, 0, c, inf);
        }
    }
    a.run();
    EXPECT_TRUE(a.attention_out.rows(0, 1).all_zero());
    EXPECT_TRUE(a.dq.rows(0, 1).all_zero());
    EXPECT_TRUE(a.dq.all_finite());
    EXPECT_TRUE(a.dk.all_finite());
    EXPECT_TRUE(a.dv.all_finite());
    // whatever its statistics say
    a.softmax_max.fill(nan);
    a.softmax_sum.fill(0.0);
    ASSERT_TRUE(a.forward().ok());
    a.softmax_max.rows(0, 1).fill(nan);
    a.softmax_sum.rows(0, 1).fill(0.0);
    ASSERT_TRUE(a.backward(Attention::Statistics::given).ok());
    EXPECT_TRUE(a.dk.all_finite());
    EXPECT_TRUE(a.dv.all_finite());
}

// ---- empty tensors, strides, dtypes ---------------------------------------------------------------------------------

TEST(Empty, SHP14_EveryExtentZero) {
    struct Row {
        const char* name;
        Sizes sizes;
        bool refused;
    };
    for (const Row& row : {Row{"B", {0, 2, 2, 2, 2, 2, 2}, false}, Row{"N1", {2, 0, 2, 2, 2, 2, 2}, false},
                           Row{"N2", {2, 2, 0, 2, 2, 2, 2}, false}, Row{"S1", {2, 2, 2, 0, 2, 2, 2}, false},
                           Row{"S2", {2, 2, 2, 2, 0, 2, 2}, false}, Row{"D", {2, 2, 2, 2, 2, 0, 2}, true},
                           Row{"Dv", {2, 2, 2, 2, 2, 2, 0}, false}, Row{"D_and_Dv", {2, 2, 2, 2, 2, 0, 0}, false},
                           Row{"all", {0, 0, 0, 0, 0, 0, 0}, false}, Row{"all_but_D", {0, 0, 0, 0, 0, 2, 2}, false}}) {
        for (const bool causal : {false, true}) {
            Attention a(row.sizes, DType::f32);
            if (causal) a.params.rule.kind = MaskRule::Kind::causal_bottom_right;
            a.normal(4);
            const Status forward = a.forward();
            const Status backward = a.backward();
            EXPECT_EQ(forward.ok(), !row.refused) << row.name << " " << forward.message();
            // With N1 = 0 and every gradient empty but dk, dv there is still something to zero.
            EXPECT_EQ(backward.ok(), !row.refused) << row.name << " " << backward.message();
            if (row.refused) continue;
            for (const Tensor* out : {&a.attention_out, &a.softmax_max, &a.softmax_sum, &a.dq, &a.dk, &a.dv}) {
                EXPECT_TRUE(out->all_zero()) << row.name;
            }
        }
    }
}

TEST(Strides, I8_EveryLayoutAndArrangement) {
    const Sizes sizes{2, 4, 2, 9, 11, 5, 3};
    Attention plain(sizes, DType::bf16);
    plain.compressed(4, 5, 2).normal(8);
    plain.run();
    for (const Layout layout : {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH}) {
        for (const Arrangement arrangement : all_arrangements) {
            Attention other(sizes, DType::bf16, layout);
            other.compressed(4, 5, 2);
            const Form form = form_of(layout);
            other.query = plain.query.rearranged(form, arrangement);
            other.key = plain.key.rearranged(form, arrangement);
            other.value = plain.value.rearranged(form, arrangement);
            other.dy = plain.dy.rearranged(form, arrangement);
            for (Tensor* out : {&other.attention_out, &other.dq, &other.dk, &other.dv}) {
                *out = Tensor(DType::f64, form, out->extents(), arrangement);
            }
            other.run();
            EXPECT_EQ(first_difference(other.attention_out, plain.attention_out), "")
                << name(layout) << name(arrangement);
            EXPECT_EQ(first_difference(other.dq, plain.dq), "") << name(layout) << name(arrangement);
            EXPECT_EQ(first_difference(other.dk, plain.dk), "") << name(layout) << name(arrangement);
            EXPECT_EQ(first_difference(other.dv, plain.dv), "") << name(layout) << name(arrangement);
            EXPECT_TRUE(other.dk.untouched_outside());
            EXPECT_TRUE(other.attention_out.untouched_outside());
        }
    }
}

// ---- the plain evaluation rounds each step, and only there ----------------------------------------------------------

// Written a second time, element by element, for one head: this is what the yardstick of all error tests means.
TEST(Plain, EveryStepIsATensorOfTheInputDtype) {
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
        const std::int64_t S1 = 6, S2 = 7, D = 5, Dv = 3;
        Attention a({1, 1, 1, S1, S2, D, Dv}, dtype);
        a.params.scale = 0.3;
        a.params.rule.kind = MaskRule::Kind::causal_bottom_right;
        a.normal(123);
        a.run(Evaluation::plain);
        const auto step = [&](float value) {
            std::byte bytes[4];
            store_element(bytes, dtype, static_cast<double>(value));
            return static_cast<float>(load_element(bytes, dtype));
        };
        const auto get = [](const Tensor& t, std::int64_t s, std::int64_t d) {
            return static_cast<float>(t.get(0, 0, s, d));
        };
        const float scale = 0.3F;
        std::vector<std::vector<float>> P(6, std::vector<float>(7, 0.0F)), dx = P;
        for (std::int64_t i = 0; i < S1; ++i) {
            const auto r = static_cast<std::size_t>(i);
            const std::int64_t end = i + 2;  // S2 − S1 + 1 columns more than i
            std::vector<float> x, dP;
            float max = -std::numeric_limits<float>::infinity(), sum = 0.0F, delta = 0.0F;
            for (std::int64_t j = 0; j < end; ++j) {
                float raw = 0.0F, dp = 0.0F;
                for (std::int64_t d = 0; d < D; ++d) raw += get(a.query, i, d) * get(a.key, j, d);
                for (std::int64_t c = 0; c < Dv; ++c) dp += get(a.dy, i, c) * get(a.value, j, c);
                x.push_back(step(step(raw) * scale));
                dP.push_back(step(dp));
                max = std::max(max, x.back());
            }
            for (const float value : x) sum += std::exp(value - max);
            for (std::size_t j = 0; j < x.size(); ++j) P[r][j] = step(std::exp(x[j] - max) / sum);
            for (std::size_t j = 0; j < x.size(); ++j) delta += P[r][j] * dP[j];
            for (std::size_t j = 0; j < x.size(); ++j) dx[r][j] = step(scale * (P[r][j] * (dP[j] - delta)));
            EXPECT_EQ(a.softmax_max.get(0, 0, i, 3), static_cast<double>(max));
            EXPECT_EQ(a.softmax_sum.get(0, 0, i, 3), static_cast<double>(sum));
            for (std::int64_t c = 0; c < Dv; ++c) {
                float out = 0.0F;
                for (std::int64_t j = 0; j < end; ++j) out += P[r][static_cast<std::size_t>(j)] * get(a.value, j, c);
                EXPECT_EQ(a.attention_out.get(0, 0, i, c), static_cast<double>(step(out)));
            }
            for (std::int64_t d = 0; d < D; ++d) {
                float dq = 0.0F;
                for (std::int64_t j = 0; j < end; ++j) dq += dx[r][static_cast<std::size_t>(j)] * get(a.key, j, d);
                EXPECT_EQ(a.dq.get(0, 0, i, d), static_cast<double>(step(dq)));
            }
        }
        for (std::int64_t j = 0; j < S2; ++j) {
            for (std::int64_t d = 0; d < D; ++d) {
                float dk = 0.0F;
                for (std::int64_t i = 0; i < S1; ++i) {
                    dk += dx[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] * get(a.query, i, d);
                }
                EXPECT_EQ(a.dk.get(0, 0, j, d), static_cast<double>(step(dk)));
            }
            for (std::int64_t c = 0; c < Dv; ++c) {
                float dv = 0.0F;
                for (std::int64_t i = 0; i < S1; ++i) {
                    dv += P[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] * get(a.dy, i, c);
                }
                EXPECT_EQ(a.dv.get(0, 0, j, c), static_cast<double>(step(dv)));
            }
        }
    }
}

// ---- refusals ------------------------------------------------------------------------------------------------------

TEST(Refused, OutputsAreUntouched) {
    Attention a({1, 2, 1, 3, 4, 2, 2}, DType::f32);
    a.normal(2);
    a.params.keep_prob = 0.0;
    EXPECT_EQ(a.forward().message(), "keep_prob: given 0, must be more than 0 and at most 1");
    EXPECT_EQ(a.backward().code(), StatusCode::invalid_argument);
    for (const Tensor* out : {&a.attention_out, &a.softmax_max, &a.softmax_sum, &a.dq, &a.dk, &a.dv}) {
        EXPECT_TRUE(out->still_poisoned());
    }
}

TEST(Absent, API13_OnlyTheGradientsAskedFor) {
    Attention a({1, 2, 1, 5, 6, 3, 2}, DType::f32);
    a.normal(13).run();
    for (int wanted = 1; wanted < 8; ++wanted) {
        Attention b({1, 2, 1, 5, 6, 3, 2}, DType::f32);
        b.normal(13);
        BackwardOutputs out;
        if ((wanted & 1) != 0) out.dq = b.dq.out();
        if ((wanted & 2) != 0) out.dk = b.dk.out();
        if ((wanted & 4) != 0) out.dv = b.dv.out();
        ASSERT_TRUE(reference_backward(b.params, b.backward_inputs(), out).ok());
        EXPECT_EQ(b.dq.still_poisoned(), (wanted & 1) == 0);
        EXPECT_EQ(b.dk.still_poisoned(), (wanted & 2) == 0);
        EXPECT_EQ(b.dv.still_poisoned(), (wanted & 4) == 0);
        if ((wanted & 1) != 0) {
            EXPECT_EQ(first_difference(b.dq, a.dq), "");
        }
        if ((wanted & 2) != 0) {
            EXPECT_EQ(first_difference(b.dk, a.dk), "");
        }
        if ((wanted & 4) != 0) {
            EXPECT_EQ(first_difference(b.dv, a.dv), "");
        }
    }
}

}  // namespace
}  // namespace fascore::test
