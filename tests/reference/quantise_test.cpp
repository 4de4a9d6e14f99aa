// SPDX-License-Identifier: Apache-2.0
//
// 8-bit inputs: conversion by numbers made elsewhere, and the whole scheme written a second time, straight from its
// formulas with stored values and scales kept apart:
//
//   raw(i,j) = (Σ_d Q8·K8) · sq(i)·sk(j)                 O[i]  = Σ_j sv(j) · fp8(R(i,j)) · V8[j]
//   dR(i,j)  = (Σ_c Y8·V8) · sy(i)·sv(j)                 dV[j] = Σ_i sy(i) · fp8(R(i,j)) · Y8[i]
//   dx       = P∘(dR·keep/keep_prob − Σ_c O·Y8·sy)       u = F / max|dx| of the 128 × 128 block, or 0 below 1e-8
//   dQ[i]    = scale · Σ_j fp8(dx·u)/u · sk(j)·K8[j]     dK[j] = scale · Σ_i fp8(dx·u)/u · sq(i)·Q8[i]
#include "reference/quantise.h"

#include "base/dtype.h"
#include "fascore/dropout.h"
#include "reference/problem.h"

namespace fascore::test {
namespace {

using reference::to_fp8;

constexpr DType types[] = {DType::f8e4m3, DType::f8e5m2};

TEST(Quantise, NumbersWorkedOut) {
    struct Row {
        double value, e4m3, e5m2;
    };
    for (const Row& row : {Row{0.3, 0.3125, 0.3125}, Row{1.0 / 3.0, 0.34375, 0.3125}, Row{0.1, 0.1015625, 0.09375},
                           Row{0.001, 0x1p-9, 0x1p-10}, Row{0x1p-10, 0, 0x1p-10}, Row{0x1p-17, 0, 0}, Row{0, 0, 0},
                           Row{464, 448, 448}, Row{1e30, 448, 57344}, Row{1.0625, 1.0, 1.0}, Row{1.1875, 1.25, 1.25}}) {
        EXPECT_EQ(to_fp8(row.value, DType::f8e4m3), row.e4m3) << row.value;
        EXPECT_EQ(to_fp8(row.value, DType::f8e5m2), row.e5m2) << row.value;
        EXPECT_EQ(to_fp8(-row.value, DType::f8e4m3), -row.e4m3) << row.value;
    }
    EXPECT_TRUE(std::isnan(to_fp8(std::numeric_limits<double>::quiet_NaN(), DType::f8e4m3)));
    EXPECT_TRUE(std::signbit(to_fp8(-0.0, DType::f8e5m2)));
}

// A block of 0.75, −0.3, 0.01, 0, which the caller quantises by q = F / 0.75.
TEST(Quantise, ABlockWorkedOut) {
    const double values[] = {0.75, -0.3, 0.01, 0};
    const double stored[2][4] = {{448, -176, 6, 0}, {57344, -24576, 768, 0}};
    const double back[2][4] = {{0.75, -0.2946429, 0.0100446, 0}, {0.75, -0.3214286, 0.0100446, 0}};
    for (std::size_t t = 0; t < 2; ++t) {
        const double q = reference::largest_fp8(types[t]) / 0.75;
        for (std::size_t k = 0; k < 4; ++k) {
            EXPECT_EQ(to_fp8(values[k] * q, types[t]), stored[t][k]);
            EXPECT_NEAR(to_fp8(values[k] * q, types[t]) / q, back[t][k], 0.5000001e-7);
        }
    }
}

// Every number of both types is itself; between two neighbours the nearest, the even one in the middle.
TEST(Quantise, NeighboursOfEveryNumber) {
    for (const DType type : types) {
        for (int code = 0; code < 127; ++code) {
            const auto number = [&](int of) {
                const auto byte = static_cast<std::uint8_t>(of);
                return load_scalar(&byte, type);
            };
            const double low = number(code), high = number(code + 1);
            if (!std::isfinite(high) || !std::isfinite(low)) break;
            EXPECT_EQ(to_fp8(low, type), low);
            const double middle = (low + high) / 2;
            EXPECT_EQ(to_fp8(middle, type), code % 2 == 0 ? low : high) << code;
            EXPECT_EQ(to_fp8(std::nextafter(middle, low), type), low) << code;
            EXPECT_EQ(to_fp8(std::nextafter(middle, high), type), high) << code;
        }
    }
}

constexpr std::int64_t block = 128;
constexpr std::int64_t B = 1, N1 = 4, N2 = 2, S1 = 150, S2 = 200, D = 4, Dv = 3;

// Random 8-bit tensors with scales of about 1/F·3, as a caller's quantisation gives them.
Attention eight_bit(DType type) {
    Attention a({B, N1, N2, S1, S2, D, Dv}, type, Layout::BSND);
    a.params.scale = 0.6;
    Random random(8);
    for (Tensor* tensor : {&a.query, &a.key, &a.value, &a.dy}) {
        tensor->fill([&](auto, auto, auto, auto) { return 100.0 * std::clamp(random.normal(), -4.0, 4.0); });
    }
    const auto scales = [&](std::int64_t heads, std::int64_t rows) {
        Tensor scale(DType::f32, Form::BNSD, {B, heads, (rows + block - 1) / block, 1});
        scale.fill([&](auto, auto, auto, auto) { return random.uniform(0.005, 0.02); });
        return scale;
    };
    a.d_scale_q = scales(N1, S1);
    a.d_scale_k = scales(N2, S2);
    a.d_scale_v = scales(N2, S2);
    a.d_scale_dy = scales(N1, S1);
    return a;
}

struct Golden {
    std::vector<double> out, dq, dk, dv;
};

// For one batch.
Golden golden(const Attention& a, DType type, const std::vector<std::vector<bool>>& keep) {
    const std::size_t rows = N1 * S1;
    const double F = type == DType::f8e4m3 ? 448.0 : 57344.0;
    const double scale = static_cast<double>(0.6F), keep_prob = a.params.keep_prob;
    Golden g;
    g.out.assign(rows * Dv, 0.0);
    g.dq.assign(rows * D, 0.0);
    g.dk.assign(N2 * S2 * D, 0.0);
    g.dv.assign(N2 * S2 * Dv, 0.0);
    for (std::int64_t n = 0; n < N1; ++n) {
        const std::int64_t h = n / (N1 / N2);
        const auto sq = [&](std::int64_t i) { return a.d_scale_q.get(0, n, i / block, 0); };
        const auto sy = [&](std::int64_t i) { return a.d_scale_dy.get(0, n, i / block, 0); };
        const auto sk = [&](std::int64_t j) { return a.d_scale_k.get(0, h, j / block, 0); };
        const auto sv = [&](std::int64_t j) { return a.d_scale_v.get(0, h, j / block, 0); };
        const auto seen = [&](std::int64_t i, std::int64_t j) { return j <= i + S2 - S1; };
        std::vector<std::vector<double>> R8(S1, std::vector<double>(S2, 0.0)), dx = R8;
        for (std::int64_t i = 0; i < S1; ++i) {
            const auto r = static_cast<std::size_t>(i);
            std::vector<double> x(S2, 0.0), dR(S2, 0.0);
            double max = -1e300, sum = 0, delta = 0;
            for (std::int64_t j = 0; j < S2; ++j) {
                if (!seen(i, j)) continue;
                const auto c = static_cast<std::size_t>(j);
                for (std::int64_t d = 0; d < D; ++d) x[c] += a.query.get(0, n, i, d) * a.key.get(0, h, j, d);
                for (std::int64_t d = 0; d < Dv; ++d) dR[c] += a.dy.get(0, n, i, d) * a.value.get(0, h, j, d);
                x[c] *= sq(i) * sk(j) * scale;
                dR[c] *= sy(i) * sv(j);
                max = std::max(max, x[c]);
            }
            for (std::int64_t j = 0; j < S2; ++j) {
                if (seen(i, j)) sum += std::exp(x[static_cast<std::size_t>(j)] - max);
            }
            const auto P = [&](std::size_t c) { return std::exp(x[c] - max) / sum; };
            const auto kept = [&](std::size_t c) { return keep[static_cast<std::size_t>(n * S1 + i)][c]; };
            for (std::int64_t d = 0; d < Dv; ++d) {
                double out = 0;
                for (std::int64_t j = 0; j < S2; ++j) {
                    const auto c = static_cast<std::size_t>(j);
                    if (!seen(i, j)) continue;
                    R8[r][c] = kept(c) ? to_fp8(P(c) / keep_prob, type) : 0.0;
                    out += R8[r][c] * a.value.get(0, h, j, d) * sv(j);
                }
                g.out[static_cast<std::size_t>((n * S1 + i) * Dv + d)] = out;
                delta += out * a.dy.get(0, n, i, d) * sy(i);
            }
            for (std::int64_t j = 0; j < S2; ++j) {
                const auto c = static_cast<std::size_t>(j);
                if (seen(i, j)) dx[r][c] = P(c) * ((kept(c) ? dR[c] / keep_prob : 0.0) - delta);
            }
        }
        for (std::int64_t I = 0; I < S1; I += block) {
            for (std::int64_t J = 0; J < S2; J += block) {
                double most = 0;
                const auto each = [&](auto visit) {
                    for (std::int64_t i = I; i < std::min(S1, I + block); ++i) {
                        for (std::int64_t j = J; j < std::min(S2, J + block); ++j) {
                            if (seen(i, j)) visit(i, j, dx[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]);
                        }
                    }
                };
                each([&](auto, auto, double value) { most = std::max(most, std::fabs(value)); });
                const double u = most >= 1e-8 ? F / most : 0.0;
                const double w = u == 0.0 ? 0.0 : 1.0 / u;
                each([&](std::int64_t i, std::int64_t j, double value) {
                    const double dx8 = to_fp8(value * u, type);
                    const auto qrow = static_cast<std::size_t>(n * S1 + i), krow = static_cast<std::size_t>(h * S2 + j);
                    for (std::int64_t d = 0; d < D; ++d) {
                        const auto at = static_cast<std::size_t>(d);
                        g.dq[qrow * D + at] += scale * w * sk(j) * dx8 * a.key.get(0, h, j, d);
                        g.dk[krow * D + at] += scale * w * sq(i) * dx8 * a.query.get(0, n, i, d);
                    }
                    for (std::int64_t d = 0; d < Dv; ++d) {
                        g.dv[krow * Dv + static_cast<std::size_t>(d)] +=
                            sy(i) * R8[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] * a.dy.get(0, n, i, d);
                    }
                });
            }
        }
    }
    return g;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& expected, double share, const char* what) {
    ASSERT_EQ(got.size(), expected.size());
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    ASSERT_GT(largest, 0.0);
    for (std::size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], expected[k], share * largest) << what << " " << k;
}

TEST(EightBit, TheSchemeWrittenOut) {
    for (const DType type : types) {
        for (const bool dropout : {false, true}) {
            Attention a = eight_bit(type);
            a.compressed(3);
            std::vector<std::vector<bool>> keep(N1 * S1, std::vector<bool>(S2, true));
            if (dropout) {
                a.params.keep_prob = 0.75;
                a.params.seed = 11;
                Tensor bits(DType::u8, Form::SS, {1, 1, N1 * S1, S2});
                ASSERT_TRUE(dropout_keep(11, 0, 0.75, 0, bits.out()).ok());
                for (std::int64_t r = 0; r < N1 * S1; ++r) {
                    for (std::int64_t j = 0; j < S2; ++j) {
                        keep[static_cast<std::size_t>(r)][static_cast<std::size_t>(j)] = bits.get(0, 0, r, j) != 0;
                    }
                }
            }
            ASSERT_NO_FATAL_FAILURE(a.run());
            const Golden g = golden(a, type, keep);
            // Sums of at most 600 terms in another order, 2^-53 each; that a sum's rounding tips a conversion to 8 bits
            // over (1e-15 of the distance between neighbours, 10^5 conversions) would show as 1e-3.
            constexpr double share = 1e-12;
            expect_close(a.attention_out.values(), g.out, share, "attention_out");
            expect_close(a.dq.values(), g.dq, share, "dq");
            expect_close(a.dk.values(), g.dk, share, "dk");
            expect_close(a.dv.values(), g.dv, share, "dv");

            // Given its own results: the same.
            const std::vector<double> dq = a.dq.values();
            ASSERT_TRUE(a.backward(Attention::Statistics::given).ok());
            expect_close(a.dq.values(), dq, share, "dq of given statistics");

            // In f32 a weight may tip over to its neighbour, 1/8 or 1/4 of itself away: with every weight of a row that
            // unlucky the output moves by that share of Σ R·|V| ≤ 1.2·max|V|/keep_prob. It moves far less, but does
            // move.
            const std::vector<double> exact = a.attention_out.values();
            ASSERT_TRUE(a.forward(Evaluation::plain).ok());
            const double largest = a.value.max_abs() * a.d_scale_v.max_abs();
            double moved = 0;
            for (std::size_t k = 0; k < exact.size(); ++k) {
                moved = std::max(moved, std::fabs(a.attention_out.values()[k] - exact[k]));
            }
            EXPECT_GT(moved, 0.0);
            EXPECT_LE(moved, 0.25 * 1.2 * largest / a.params.keep_prob);
        }
    }
}

// A block whose largest |dx| is below 1e-8 gives no gradient of the scores; dv is not concerned.
TEST(EightBit, ATinyBlockGivesNothing) {
    Attention a = eight_bit(DType::f8e5m2);
    a.d_scale_dy.fill(1e-13);
    ASSERT_NO_FATAL_FAILURE(a.run());
    EXPECT_TRUE(a.dq.all_zero());
    EXPECT_TRUE(a.dk.all_zero());
    EXPECT_GT(a.dv.max_abs(), 0.0);
}

TEST(EightBit, AbsentScalesAreOne) {
    Attention ones = eight_bit(DType::f8e4m3);
    for (Tensor* scale : {&ones.d_scale_q, &ones.d_scale_k, &ones.d_scale_v, &ones.d_scale_dy}) scale->fill(1.0);
    ones.params.scale = 1e-4;
    Attention absent = eight_bit(DType::f8e4m3);
    absent.params.scale = 1e-4;
    for (Tensor* scale : {&absent.d_scale_q, &absent.d_scale_k, &absent.d_scale_v, &absent.d_scale_dy}) {
        *scale = Tensor();
    }
    ASSERT_NO_FATAL_FAILURE(ones.run());
    ASSERT_NO_FATAL_FAILURE(absent.run());
    EXPECT_EQ(first_difference(absent.attention_out, ones.attention_out), "");
    EXPECT_EQ(first_difference(absent.dq, ones.dq), "");
    EXPECT_EQ(first_difference(absent.dk, ones.dk), "");
    EXPECT_EQ(first_difference(absent.dv, ones.dv), "");
}

}  // namespace
}  // namespace fascore::test
