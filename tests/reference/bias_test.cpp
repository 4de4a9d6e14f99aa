// SPDX-License-Identifier: Apache-2.0
//
// Every short form of pse against the same bias written out in full: same outputs, and the gradient of the short form
// is the sum of the full one's over the pairs that read the element.
#include <functional>

#include "reference/problem.h"

namespace fascore::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

// The largest difference, as a share of the largest value.
double relative(const Tensor& got, const Tensor& expected) {
    const std::vector<double> a = got.values();
    const std::vector<double> b = expected.values();
    double worst = 0;
    for (std::size_t k = 0; k < a.size(); ++k) worst = std::max(worst, std::fabs(a[k] - b[k]));
    return worst / std::max(expected.max_abs(), 1e-300);
}

void expect_same_results(const Attention& got, const Attention& expected) {
    EXPECT_EQ(first_difference(got.attention_out, expected.attention_out), "");
    EXPECT_EQ(first_difference(got.dq, expected.dq), "");
    EXPECT_EQ(first_difference(got.dk, expected.dk), "");
    EXPECT_EQ(first_difference(got.dv, expected.dv), "");
}

TEST(Bias, BroadcastAxesAreSummedOver) {
    const Sizes sizes{2, 4, 2, 5, 6, 3, 2};
    for (int axes = 0; axes < 8; ++axes) {
        for (const int type : {0, 1}) {
            const Extents small{(axes & 1) != 0 ? 2 : 1, (axes & 2) != 0 ? 4 : 1, (axes & 4) != 0 ? 5 : 1, 6};
            Attention a(sizes, DType::f64, Layout::BSND);
            Attention full(sizes, DType::f64, Layout::BSND);
            for (Attention* each : {&a, &full}) {
                each->params.scale = 0.3;
                each->params.rule = {MaskRule::Kind::window, 3, 1};
                each->with_pse(type, DType::f64, each == &a ? small : Extents{2, 4, 5, 6}).normal(21);
            }
            full.pse.fill(
                [&](auto b, auto n, auto i, auto j) { return a.pse.get(b % small.b, n % small.n, i % small.s, j); });
            ASSERT_NO_FATAL_FAILURE(a.run());
            ASSERT_NO_FATAL_FAILURE(full.run());
            expect_same_results(a, full);
            Tensor sum(DType::f64, Form::BNSD, small);
            sum.fill(0.0);
            for (std::int64_t b = 0; b < 2; ++b) {
                for (std::int64_t n = 0; n < 4; ++n) {
                    for (std::int64_t i = 0; i < 5; ++i) {
                        for (std::int64_t j = 0; j < 6; ++j) {
                            const double more = full.dpse.get(b, n, i, j);
                            const std::int64_t at[] = {b % small.b, n % small.n, i % small.s};
                            sum.set(at[0], at[1], at[2], j, sum.get(at[0], at[1], at[2], j) + more);
                        }
                    }
                }
            }
            EXPECT_LE(relative(a.dpse, sum), 1e-14) << axes;  // 40 additions in another order
        }
    }
}

// Slopes by the formula, element by element.
TEST(Bias, SlopesWrittenOut) {
    for (const int type : {2, 3}) {
        for (const bool per_batch : {false, true}) {
            Attention a({2, 2, 1, 5, 5, 2, 2}, DType::f64);
            Attention full({2, 2, 1, 5, 5, 2, 2}, DType::f64);
            a.with_pse(type, DType::f32, {1, 1, per_batch ? 2 : 1, 2}, per_batch ? 2 : 1).normal(3);
            a.params.q_start_idx = 4;
            a.params.kv_start_idx = 1;
            full.with_pse(0, DType::f64, {2, 2, 5, 5}).normal(3);
            full.query = a.query;
            full.key = a.key;
            full.value = a.value;
            full.dy = a.dy;
            const auto distance = [&](std::int64_t i, std::int64_t j) {
                const auto t = static_cast<double>(std::abs((j + 1) - (i + 4)));
                return type == 2 ? t : std::sqrt(t);
            };
            full.pse.fill([&](auto b, auto n, auto i, auto j) {
                return -a.pse.get(0, 0, per_batch ? b : 0, n) * distance(i, j);
            });
            ASSERT_NO_FATAL_FAILURE(a.run());
            ASSERT_NO_FATAL_FAILURE(full.run());
            expect_same_results(a, full);
            Tensor sum(DType::f64, Form::BNSD, a.pse.extents());
            sum.fill(0.0);
            for (std::int64_t b = 0; b < 2; ++b) {
                for (std::int64_t n = 0; n < 2; ++n) {
                    double slope = sum.get(0, 0, per_batch ? b : 0, n);
                    for (std::int64_t i = 0; i < 5; ++i) {
                        for (std::int64_t j = 0; j < 5; ++j) slope -= full.dpse.get(b, n, i, j) * distance(i, j);
                    }
                    sum.set(0, 0, per_batch ? b : 0, n, slope);
                }
            }
            EXPECT_LE(relative(a.dpse, sum), 1e-13);
        }
    }
}

// A bias that is constant along diagonals, element (i, j) = of(n, i − j), and its last 1024 rows.
double along_diagonals(std::int64_t n, std::int64_t diagonal) {
    return 0.01 * static_cast<double>((diagonal * 37 + n * 11) % 101) - 0.5;
}

// Sums of a full gradient along the diagonals of one head: what a compressed gradient must add up to as well.
std::vector<double> diagonal_sums(const Tensor& gradient, std::int64_t b, std::int64_t n, std::int64_t first_row,
                                  std::int64_t rows, std::int64_t columns) {
    std::vector<double> sums(static_cast<std::size_t>(first_row + rows), 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t j = 0; j < columns && j <= first_row + r; ++j) {
            sums[static_cast<std::size_t>(first_row + r - j)] += gradient.get(b, n, r, j);
        }
    }
    return sums;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double bound) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], expected[k], bound) << k;
}

TEST(Bias, LastRowsOfASquareOne) {
    const std::int64_t threshold = 1024 + 37;  // rows 1024 … 1060 start the tensor's rows once more
    const std::int64_t S = threshold + 1024;
    Attention a({1, 2, 1, S, S, 1, 1}, DType::f64);
    Attention full({1, 2, 1, S, S, 1, 1}, DType::f64);
    for (Attention* each : {&a, &full}) {
        each->params.scale = 0.5;
        each->compressed(2).with_pse(1, DType::f64, {1, 2, each == &a ? 1024 : S, S}).normal(77);
    }
    // Above the diagonal nothing is read.
    full.pse.fill([&](auto, auto n, auto i, auto j) { return i < j ? inf : along_diagonals(n, i - j); });
    full.pse.rows(threshold, 1024).copy_into(a.pse);
    ASSERT_NO_FATAL_FAILURE(a.run());
    ASSERT_NO_FATAL_FAILURE(full.run());
    expect_same_results(a, full);
    for (std::int64_t n = 0; n < 2; ++n) {
        // Each element of dpse adds the gradients of at most three pairs of size 1: their order is all that differs.
        expect_near(diagonal_sums(a.dpse, 0, n, threshold, 1024, S), diagonal_sums(full.dpse, 0, n, 0, S, S), 1e-12);
    }
    // The last row of the tensor is the last row, and nobody else reads its first columns.
    EXPECT_EQ(a.dpse.get(0, 0, 1023, 7), full.dpse.get(0, 0, S - 1, 7));
    // Row 1029 reads row 5, which is also row 1066 itself.
    const std::int64_t i = 1029, j = 1000;
    const std::int64_t column = S - (i - j) - (1024 - 5);
    EXPECT_NEAR(a.dpse.get(0, 0, 5, column), full.dpse.get(0, 0, i, j) + full.dpse.get(0, 0, threshold + 5, column),
                1e-15);
}

// Packed: sequences of one length each side, maxSkv on either side of 1024.
TEST(Bias, LastRowsOfPackedOnes) {
    for (const std::int64_t longest : {40, 1050}) {
        const std::int64_t T = 25 + longest + 3;
        Attention a({1, 2, 1, T, T, 1, 1}, DType::f64, Layout::TND);
        a.q_ends = a.k_ends = {25, 25 + longest, T};
        a.compressed(3).with_pse(0, DType::f64, {1, 2, 1024, longest}).normal(5);
        const auto diagonal = [&](std::int64_t r, std::int64_t j) { return r - j + longest - 1024; };
        a.pse.fill([&](auto, auto n, auto r, auto j) {
            return diagonal(r, j) < 0 ? inf : along_diagonals(n, diagonal(r, j));
        });
        Attention full({1, 2, 1, T, T, 1, 1}, DType::f64, Layout::TND);
        full.q_ends = full.k_ends = a.q_ends;
        std::int64_t pairs = 0;
        for (const std::int64_t S : {std::int64_t{25}, longest, std::int64_t{3}}) pairs += S * S;
        full.compressed(3).with_pse(0, DType::f64, {1, 1, 1, 2 * pairs}, 1).normal(5);
        std::int64_t at = 0;
        for (const std::int64_t S : {std::int64_t{25}, longest, std::int64_t{3}}) {
            for (std::int64_t n = 0; n < 2; ++n) {
                for (std::int64_t i = 0; i < S; ++i) {
                    for (std::int64_t j = 0; j < S; ++j) {
                        full.pse.set(0, 0, 0, at++, i < j ? inf : along_diagonals(n, i - j));
                    }
                }
            }
        }
        ASSERT_NO_FATAL_FAILURE(a.run());
        ASSERT_NO_FATAL_FAILURE(full.run());
        expect_same_results(a, full);
        for (std::int64_t n = 0; n < 2; ++n) {
            std::vector<double> expected(static_cast<std::size_t>(longest), 0.0);
            at = 0;
            for (const std::int64_t S : {std::int64_t{25}, longest, std::int64_t{3}}) {
                for (std::int64_t k = 0; k < 2 * S * S; ++k, ++at) {
                    const std::int64_t i = k % (S * S) / S, j = k % S;
                    if (k / (S * S) != n || i < j) continue;
                    expected[static_cast<std::size_t>(i - j)] += full.dpse.get(0, 0, 0, at);
                }
            }
            std::vector<double> got(static_cast<std::size_t>(longest), 0.0);
            for (std::int64_t r = 0; r < 1024; ++r) {
                for (std::int64_t j = 0; j < longest; ++j) {
                    if (diagonal(r, j) >= 0) got[static_cast<std::size_t>(diagonal(r, j))] += a.dpse.get(0, n, r, j);
                }
            }
            expect_near(got, expected, 1e-12);
        }
    }
}

// −∞ hides as a mask does: NaN and ∞ behind it reach nothing, rows of nothing else are empty ones.
TEST(Bias, MinusInfinityHides) {
    const Sizes sizes{1, 2, 1, 4, 5, 3, 2};
    const auto hidden = [](std::int64_t i, std::int64_t j) { return i == 2 || j == 4 || (i == 0 && j > 0); };
    Attention masked(sizes, DType::f32);
    masked.params.sparse_mode = 1;
    masked.atten_mask = Tensor(DType::boolean, Form::SS, {1, 1, 4, 5});
    masked.atten_mask.fill([&](auto, auto, auto i, auto j) { return hidden(i, j) ? 1.0 : 0.0; });
    masked.normal(12);
    for (std::int64_t d = 0; d < 3; ++d) masked.key.set(0, 0, 4, d, std::numeric_limits<double>::quiet_NaN());
    for (const int type : {0, 1}) {
        Attention a(sizes, DType::f32);
        a.with_pse(type, DType::f32, {1, 1, 4, 5}).normal(12);
        masked.key.copy_into(a.key);
        a.pse.fill([&](auto, auto, auto i, auto j) { return hidden(i, j) ? -inf : 0.0; });
        for (const Evaluation evaluation : {Evaluation::exact, Evaluation::plain}) {
            ASSERT_NO_FATAL_FAILURE(masked.run(evaluation));
            ASSERT_NO_FATAL_FAILURE(a.run(evaluation));
            expect_same_results(a, masked);
            EXPECT_EQ(first_difference(a.softmax_max, masked.softmax_max), "");
            for (std::int64_t i = 0; i < 4; ++i) {
                for (std::int64_t j = 0; j < 5; ++j) {
                    EXPECT_TRUE(!hidden(i, j) || a.dpse.get(0, 0, i, j) == 0.0) << i << " " << j;
                }
            }
            EXPECT_TRUE(a.dpse.all_finite());
        }
    }
}

// pse_type 1 is added before the factor scale, and with a soft cap behind it: x = cap(scale·raw) + scale·pse.
TEST(Bias, TypesAndSoftCap) {
    for (const int type : {0, 1}) {
        for (const double softcap : {0.0, 2.0}) {
            Attention a({1, 1, 1, 1, 1, 1, 1}, DType::f64);
            a.params.scale = 0.25;
            a.params.softcap = softcap;
            a.with_pse(type, DType::f64, {1, 1, 1, 1});
            a.pse.fill(6.0);
            a.query.fill(4.0);
            a.key.fill(3.0);
            a.value.fill(1.0);
            ASSERT_TRUE(a.forward().ok());
            const double capped = softcap > 0 ? 2.0 * std::tanh(1.5) : 3.0;
            EXPECT_NEAR(a.softmax_max.get(0, 0, 0, 0), capped + (type == 0 ? 6.0 : 1.5), 1e-15 * 9.0);
        }
    }
}

}  // namespace
}  // namespace fascore::test
