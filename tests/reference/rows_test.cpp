// SPDX-License-Identifier: Apache-2.0
//
// Rows by themselves: sinks and soft caps in closed form, rows that see nothing, batches without keys, dlse, and rope
// parts against the columns appended.
#include <cfloat>

#include "reference/problem.h"

namespace fascore::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Scores 0 and one sink: the sink is one more key without a value.
TEST(Rows, ASinkTakesItsShare) {
    Attention a({2, 2, 1, 3, 4, 2, 2}, DType::f32);
    a.query.fill(0.0);
    a.key.fill(1.0);
    a.value.fill([](auto, auto, auto, std::int64_t c) { return c == 0 ? 1.0 : -2.0; });
    a.dy.fill(1.0);
    a.with_sink({0.0, 3.0});
    ASSERT_NO_FATAL_FAILURE(a.run());
    for (std::int64_t n = 0; n < 2; ++n) {
        const double sink = n == 0 ? 0.0 : 3.0;
        const double sum = std::exp(sink - sink) + 4.0 * std::exp(-sink);
        EXPECT_EQ(a.softmax_max.get(1, n, 2, 0), sink);
        EXPECT_NEAR(a.softmax_sum.get(1, n, 2, 0), sum, 1e-15 * sum);
        const double share = 4.0 * std::exp(-sink) / sum;
        EXPECT_NEAR(a.attention_out.get(1, n, 2, 0), share, 1e-15);
        EXPECT_NEAR(a.attention_out.get(1, n, 2, 1), -2.0 * share, 1e-15);
        // Δ = dy·out = −share in each of 2·3 rows; dsink = −Σ exp(sink − max)/sum · Δ
        EXPECT_NEAR(a.dsink.get(0, 0, 0, n), 6.0 * share / sum, 1e-14);
    }
}

// All their weight is the sink's: dlse goes to dsink as it is, and nothing else of them counts.
TEST(Rows, EmptyOnesWithASinkHaveTheSinkAlone) {
    Attention a({1, 2, 1, 4, 2, 2, 2}, DType::f64);
    a.compressed(3).with_sink({0.0, 0.0}).with_dlse().normal(4);
    a.sink.fill([](auto, auto, auto, std::int64_t n) { return n == 0 ? 0.5 : -1.0; });
    const auto in_empty_rows = [&](Tensor& tensor, double value) {
        for (std::int64_t n = 0; n < 2; ++n) {
            for (std::int64_t i = 0; i < 2; ++i) {
                for (std::int64_t d = 0; d < tensor.extents().d; ++d) tensor.set(0, n, i, d, value);
            }
        }
    };
    in_empty_rows(a.dlse, 0.0);
    ASSERT_NO_FATAL_FAILURE(a.run());
    const std::vector<double> dsink = a.dsink.values();
    const std::vector<double> dk = a.dk.values();
    for (std::int64_t n = 0; n < 2; ++n) {
        for (std::int64_t i = 0; i < 2; ++i) {
            EXPECT_EQ(a.softmax_max.get(0, n, i, 7), n == 0 ? 0.5 : -1.0);
            EXPECT_EQ(a.softmax_sum.get(0, n, i, 7), 1.0);
        }
    }
    in_empty_rows(a.dlse, 0.75);
    in_empty_rows(a.dy, nan);
    in_empty_rows(a.query, nan);
    ASSERT_NO_FATAL_FAILURE(a.run());
    EXPECT_TRUE(a.attention_out.rows(0, 2).all_zero());
    EXPECT_TRUE(a.dq.rows(0, 2).all_zero());
    EXPECT_EQ(a.dk.values(), dk);
    for (std::size_t n = 0; n < 2; ++n) EXPECT_NEAR(a.dsink.values()[n], dsink[n] + 2 * 0.75, 1e-15 * 8);
    const std::vector<double> own = a.dsink.values();
    // dsink reads their statistics like any others: a sum twice as large is half the share.
    in_empty_rows(a.softmax_sum, 2.0);
    ASSERT_TRUE(a.backward(Attention::Statistics::given).ok());
    for (std::size_t n = 0; n < 2; ++n) EXPECT_NEAR(a.dsink.values()[n], own[n] - 0.75, 1e-14);
}

TEST(Rows, WithoutKeysStatisticsAreZero) {
    Attention a({2, 2, 1, 3, 0, 2, 2}, DType::f32);
    a.with_sink({0.5, -1.0}).with_pse(1, DType::f32, {1, 2, 3, 0});
    a.query.fill(1.0);
    a.dy.fill(1.0);
    ASSERT_NO_FATAL_FAILURE(a.run());
    for (const Tensor* tensor : {&a.attention_out, &a.softmax_max, &a.softmax_sum, &a.dq, &a.dsink}) {
        EXPECT_TRUE(tensor->all_zero());
    }
}

TEST(Rows, WithoutQueriesTheOtherGradientsAreZero) {
    Attention a({2, 2, 1, 0, 3, 2, 2, 2}, DType::f32);
    a.with_sink({0.5, -1.0}).with_pse(0, DType::f32, {1, 2, 1, 3});
    a.key.fill(1.0);
    a.key_rope.fill(1.0);
    a.value.fill(1.0);
    ASSERT_NO_FATAL_FAILURE(a.run());
    for (const Tensor* tensor : {&a.dk, &a.dk_rope, &a.dv, &a.dpse, &a.dsink}) EXPECT_TRUE(tensor->all_zero());
}

// Sums over batches and heads: every term once and always in one order, however many threads there are.
TEST(Rows, SharedSumsAreTheSameEveryTime) {
    const std::int64_t B = 32, S = 40;
    Attention a({B, 4, 2, S, S, 2, 2}, DType::f64);
    a.with_sink({0, 0, 0, 0}).with_pse(0, DType::f64, {1, 1, 1, S}).normal(14);
    ASSERT_NO_FATAL_FAILURE(a.run());
    const std::vector<double> dsink = a.dsink.values(), dpse = a.dpse.values();
    for (int again = 0; again < 5; ++again) {
        ASSERT_TRUE(a.backward().ok());
        EXPECT_EQ(a.dsink.values(), dsink);
        EXPECT_EQ(a.dpse.values(), dpse);
        // dsink alone is shared over batches only
        a.dpse = Tensor();
        ASSERT_TRUE(a.backward().ok());
        EXPECT_EQ(a.dsink.values(), dsink);
        a.dpse = Tensor(DType::f64, Form::BNSD, {1, 1, 1, S});
    }
    std::vector<double> sum(4, 0.0);
    for (std::int64_t b = 0; b < B; ++b) {
        Attention one({1, 4, 2, S, S, 2, 2}, DType::f64);
        one.with_sink({0, 0, 0, 0}).with_pse(0, DType::f64, {1, 1, 1, S});
        a.query.batches(b, 1).copy_into(one.query);
        a.key.batches(b, 1).copy_into(one.key);
        a.value.batches(b, 1).copy_into(one.value);
        a.dy.batches(b, 1).copy_into(one.dy);
        a.sink.copy_into(one.sink);
        a.pse.copy_into(one.pse);
        ASSERT_NO_FATAL_FAILURE(one.run());
        for (std::size_t n = 0; n < 4; ++n) sum[n] += one.dsink.values()[n];
    }
    // 32·40 terms below 1 in another grouping: 1280 · 2^-53 · their sum.
    for (std::size_t n = 0; n < 4; ++n) EXPECT_NEAR(dsink[n], sum[n], 1e-10);
}

// Far above the cap the scores are the cap and pass no gradient on; far below it nothing changes.
TEST(Rows, SoftCapBounds) {
    Attention a({1, 1, 1, 4, 5, 3, 2}, DType::f64);
    a.normal(9);
    Attention capped({1, 1, 1, 4, 5, 3, 2}, DType::f64);
    capped.normal(9);
    capped.params.softcap = 1e9;
    ASSERT_NO_FATAL_FAILURE(a.run());
    ASSERT_NO_FATAL_FAILURE(capped.run());
    for (std::size_t k = 0; k < a.dq.values().size(); ++k) {
        // z − c·tanh(z/c) ≈ z³/3c² ≤ 1e-16 for |z| < 10, and 2^-53·c/c of rounding in tanh: 1e9·2^-53·(z/c) in x
        EXPECT_NEAR(capped.dq.values()[k], a.dq.values()[k], 1e-13);
    }
    capped.params.softcap = 0.25;
    capped.params.scale = 1e6;
    ASSERT_NO_FATAL_FAILURE(capped.run());
    EXPECT_EQ(capped.softmax_max.get(0, 0, 0, 0), 0.25);
    EXPECT_TRUE(capped.dq.all_zero());
    EXPECT_GT(capped.dv.max_abs(), 0.0);
}

// dlse alone (dy = 0): the gradient of Σ dlse·LSE is dx = P·dlse.
TEST(Rows, DlseByItself) {
    Attention a({1, 1, 1, 1, 3, 1, 1}, DType::f64);
    a.with_dlse().normal(2);
    a.dy.fill(0.0);
    ASSERT_NO_FATAL_FAILURE(a.run());
    double dq = 0;
    for (std::int64_t j = 0; j < 3; ++j) {
        const double x = a.query.get(0, 0, 0, 0) * a.key.get(0, 0, j, 0);
        const double P = std::exp(x - a.softmax_max.get(0, 0, 0, 0)) / a.softmax_sum.get(0, 0, 0, 0);
        dq += P * a.dlse.get(0, 0, 0, 0) * a.key.get(0, 0, j, 0);
    }
    EXPECT_NEAR(a.dq.get(0, 0, 0, 0), dq, 1e-15);
    EXPECT_TRUE(a.dv.all_zero());
}

TEST(Rows, RopePartsAreMoreColumns) {
    for (const Layout layout : {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH}) {
        Attention parts({2, 4, 2, 5, 6, 3, 2, 2}, DType::bf16, layout);
        parts.normal(6);
        Attention joined({2, 4, 2, 5, 6, 5, 2}, DType::bf16, layout);
        const auto join = [](const Tensor& own, const Tensor& rope) {
            return
                [&](auto b, auto n, auto s, auto d) { return d < 3 ? own.get(b, n, s, d) : rope.get(b, n, s, d - 3); };
        };
        joined.query.fill(join(parts.query, parts.query_rope));
        joined.key.fill(join(parts.key, parts.key_rope));
        parts.value.copy_into(joined.value);
        parts.dy.copy_into(joined.dy);
        for (const Evaluation evaluation : {Evaluation::exact, Evaluation::plain}) {
            ASSERT_NO_FATAL_FAILURE(parts.run(evaluation));
            ASSERT_NO_FATAL_FAILURE(joined.run(evaluation));
            EXPECT_EQ(first_difference(parts.attention_out, joined.attention_out), "");
            EXPECT_EQ(first_difference(parts.dv, joined.dv), "");
            Tensor dq(DType::f64, joined.dq.form(), joined.dq.extents());
            Tensor dk(DType::f64, joined.dk.form(), joined.dk.extents());
            dq.fill(join(parts.dq, parts.dq_rope));
            dk.fill(join(parts.dk, parts.dk_rope));
            EXPECT_EQ(first_difference(dq, joined.dq), "");
            EXPECT_EQ(first_difference(dk, joined.dk), "");
        }
    }
}

}  // namespace
}  // namespace fascore::test
