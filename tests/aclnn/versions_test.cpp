// SPDX-License-Identifier: Apache-2.0
//
// Every version computes: the same bits as the C++ call it stands for, the numbers of the vendor's samples, and the
// operator's worked examples, for each feature through a version that has it.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>

#include <string>
#include <utility>
#include <vector>

#include "support.h"

namespace fascore::aclnn_test {

namespace {

constexpr std::int64_t int32_max = 2147483647;

bool packed(const VersionRow& row) { return row.family == Family::packed; }

std::vector<Layout> layouts_of(const VersionRow& row) {
    if (packed(row)) return {Layout::TND};
    std::vector<Layout> layouts = {Layout::BSH, Layout::SBH, Layout::BSND, Layout::BNSD};
    if (row.family == Family::whole) layouts.push_back(Layout::TND);
    return layouts;
}

class EveryVersion : public ::testing::TestWithParam<VersionRow> {
  protected:
    void SetUp() override {
        last_error();
        before_ = live_handles();
    }
    void TearDown() override { EXPECT_EQ(live_handles(), before_) << "handles leak"; }

  private:
    std::size_t before_ = 0;
};

std::vector<VersionRow> computing() {
    std::vector<VersionRow> rows;
    for (const VersionRow& row : versions()) {
        if (row.family != Family::hifloat8) rows.push_back(row);
    }
    return rows;
}

std::string name_of_row(const ::testing::TestParamInfo<VersionRow>& info) {
    std::string name = info.param.name.substr(5);
    for (char& letter : name) letter = letter == ' ' ? '_' : letter;
    return name;
}

INSTANTIATE_TEST_SUITE_P(All, EveryVersion, ::testing::ValuesIn(computing()), name_of_row);

// ---- the same bits as the C++ call ----

TEST_P(EveryVersion, IsTheCxxCall) {
    const VersionRow& row = GetParam();
    for (const Layout layout : layouts_of(row)) {
        for (const aclDataType type : {ACL_FLOAT16, ACL_BF16, ACL_FLOAT}) {
            SCOPED_TRACE(std::string(name(layout)) + ", type " + std::to_string(type));
            Problem expected(layout, type);
            expected.run_forward();
            Problem problem(layout, type);
            if (row.gradient) problem.run_forward();
            ASSERT_EQ(run(row, problem.given()), 0) << last_error();
            if (row.gradient) {
                const Status status =
                    attention_backward(expected.params(), expected.backward_inputs(), expected.backward_outputs());
                ASSERT_TRUE(status.ok()) << status.message();
                EXPECT_EQ(problem.dq.element_bytes(), expected.dq.element_bytes());
                EXPECT_EQ(problem.dk.element_bytes(), expected.dk.element_bytes());
                EXPECT_EQ(problem.dv.element_bytes(), expected.dv.element_bytes());
            } else {
                EXPECT_EQ(problem.attention_out.element_bytes(), expected.attention_out.element_bytes());
                EXPECT_EQ(problem.softmax_max.element_bytes(), expected.softmax_max.element_bytes());
                EXPECT_EQ(problem.softmax_sum.element_bytes(), expected.softmax_sum.element_bytes());
            }
        }
    }
}

// A window to the left of the diagonal is not one to the right of it: tokens arrive where they belong.
TEST_P(EveryVersion, TokensAndModeArrive) {
    const VersionRow& row = GetParam();
    const Layout layout = layouts_of(row).back();
    Data mask(ACL_UINT8, {2048, 2048});
    mask.clear();
    const auto with_band = [&](Problem& problem) {
        Given given = problem.given();
        given.atten_mask = mask.handle();
        given.sparse_mode = 4;
        given.pre_tokens = 1;
        given.next_tokens = 2;
        given.softmax_layout_text = "";
        return given;
    };
    Problem problem(layout), expected(layout);
    AttentionParams params = expected.params();
    params.sparse_mode = 4;
    params.pre_tokens = 1;
    params.next_tokens = 2;
    ForwardInputs in = expected.forward_inputs();
    in.atten_mask = mask.view();
    ASSERT_TRUE(attention_forward(params, in, expected.forward_outputs()).ok());
    if (row.gradient) {
        ASSERT_TRUE(attention_forward(params, in, problem.forward_outputs()).ok());
        BackwardInputs back = expected.backward_inputs();
        back.atten_mask = mask.view();
        ASSERT_TRUE(attention_backward(params, back, expected.backward_outputs()).ok());
    }
    ASSERT_EQ(run(row, with_band(problem)), 0) << last_error();
    EXPECT_EQ(row.gradient ? problem.dk.element_bytes() : problem.attention_out.element_bytes(),
              row.gradient ? expected.dk.element_bytes() : expected.attention_out.element_bytes());
    Problem plain(layout);
    plain.run_forward();
    EXPECT_NE(plain.attention_out.element_bytes(), expected.attention_out.element_bytes()) << "the mask matters";
}

// ---- views ----

// Every tensor at once, each in another arrangement: columns apart, rows backwards, heads swapped, an offset.
TEST_P(EveryVersion, StridesAndOffsetsChangeNothing) {
    const VersionRow& row = GetParam();
    for (const Layout layout : layouts_of(row)) {
        SCOPED_TRACE(name(layout));
        Problem plain(layout);
        plain.run_forward();
        Problem strided(layout);
        int step = 2;
        for (Data* data : {&strided.query, &strided.key, &strided.value, &strided.dy, &strided.attention_out,
                           &strided.softmax_max, &strided.softmax_sum, &strided.dq, &strided.dk, &strided.dv}) {
            const Data::Shape shape = data->shape();
            Data::Shape stride(shape.size());
            // Axes in reverse order of memory, `step` elements between neighbours; the first axis runs backwards.
            std::int64_t next = step, offset = 5;
            for (std::size_t axis = 0; axis < shape.size(); ++axis) {
                stride[axis] = next;
                next *= shape[axis] + 1;
            }
            offset += stride[0] * (shape[0] - 1);
            stride[0] = -stride[0];
            Data moved(data->type(), shape, stride, offset, next + offset);
            for (std::int64_t k = 0; k < moved.count(); ++k) moved.set(k, data->at(k));
            *data = std::move(moved);
            step = step % 3 + 1;
        }
        if (row.gradient) {
            ASSERT_EQ(run(row, plain.given()), 0) << last_error();
            for (std::int64_t k = 0; k < plain.softmax_max.count(); ++k) {
                strided.softmax_max.set(k, plain.softmax_max.at(k));
                strided.softmax_sum.set(k, plain.softmax_sum.at(k));
            }
            for (std::int64_t k = 0; k < plain.attention_out.count(); ++k) {
                strided.attention_out.set(k, plain.attention_out.at(k));
            }
        }
        ASSERT_EQ(run(row, strided.given()), 0) << last_error();
        for (const auto& [got, wanted] :
             row.gradient ? std::vector<std::pair<Data*, Data*>>{{&strided.dq, &plain.dq},
                                                                 {&strided.dk, &plain.dk},
                                                                 {&strided.dv, &plain.dv}}
                          : std::vector<std::pair<Data*, Data*>>{{&strided.attention_out, &plain.attention_out},
                                                                 {&strided.softmax_max, &plain.softmax_max},
                                                                 {&strided.softmax_sum, &plain.softmax_sum}}) {
            EXPECT_EQ(got->element_bytes(), wanted->element_bytes());
        }
    }
}

// What is optional may be null, of rank 0, or without elements; what is reserved may be anything. All the same call.
TEST_P(EveryVersion, OptionalTensorsMayBeAbsentInThreeWays) {
    const VersionRow& row = GetParam();
    const Layout layout = layouts_of(row).front();
    const Data rank_0(ACL_FLOAT16, {}), empty(ACL_FLOAT, {0}), empty_4(ACL_UINT8, {2, 0, 3, 4}),
        odd(ACL_DOUBLE, {3, 3});
    Problem plain(layout);
    plain.run_forward();
    ASSERT_EQ(run(row, plain.given()), 0) << last_error();
    for (const aclTensor* absent : {rank_0.handle(), empty.handle(), empty_4.handle()}) {
        Problem problem(layout);
        if (row.gradient) problem.run_forward();
        Given given = problem.given();
        given.pse = given.drop_mask = given.atten_mask = given.sink = given.query_rope = given.key_rope = absent;
        given.d_scale_q = given.d_scale_k = given.d_scale_v = given.d_scale_dy = absent;
        given.dpse = given.dsink = given.dq_rope = given.dk_rope = const_cast<aclTensor*>(absent);
        given.padding_mask = given.d_scale_o = odd.handle();
        given.reserved = odd.handle();
        given.null_softmax_layout = true;
        given.inner_precise = 2;
        ASSERT_EQ(run(row, given), 0) << last_error();
        EXPECT_EQ(problem.dq.element_bytes(), row.gradient ? plain.dq.element_bytes() : problem.dq.element_bytes());
        EXPECT_EQ(problem.attention_out.element_bytes(), plain.attention_out.element_bytes());
        EXPECT_TRUE(odd.untouched());
    }
}

TEST_P(EveryVersion, LayoutsAreReadInAnyCase) {
    const VersionRow& row = GetParam();
    Problem problem(layouts_of(row).front());
    if (row.gradient) problem.run_forward();
    Given given = problem.given();
    for (char& letter : given.layout_text) letter = static_cast<char>(std::tolower(letter));
    given.layout_text[0] = static_cast<char>(std::toupper(given.layout_text[0]));
    EXPECT_EQ(run(row, given), 0) << last_error();
}

// Arrays that a mode or layout does not use hold whatever the samples put there.
TEST_P(EveryVersion, UnusedArraysMayHoldAnything) {
    const VersionRow& row = GetParam();
    Problem problem(layouts_of(row).front());
    if (row.gradient) problem.run_forward();
    Given given = problem.given();
    const Array zero({0}), some({7, 7, 7});
    given.prefix = zero;
    given.q_start_idx = zero;
    given.kv_start_idx = zero;
    if (!packed(row)) given.actual_seq_qlen = given.actual_seq_kvlen = some;
    EXPECT_EQ(run(row, given), 0) << last_error();
}

// ---- the vendor's samples: S = 256, D = 128, everything 1, statistics 3 that no forward produced ----

TEST_P(EveryVersion, ComputesTheShippedSample) {
    const VersionRow& row = GetParam();
    constexpr std::int64_t S = 256, D = 128;
    const double scale = 1 / std::sqrt(static_cast<double>(D));
    Data query(ACL_FLOAT, {S, 1, D}), key(ACL_FLOAT, {S, 1, D}), value(ACL_FLOAT, {S, 1, D}), dy(ACL_FLOAT, {S, 1, D});
    Data out(ACL_FLOAT, {S, 1, D}), dq(ACL_FLOAT, {S, 1, D}), dk(ACL_FLOAT, {S, 1, D}), dv(ACL_FLOAT, {S, 1, D});
    const Data::Shape statistics = packed(row) ? Data::Shape{S, 1, 8} : Data::Shape{1, 1, S, 8};
    Data max(ACL_FLOAT, statistics), sum(ACL_FLOAT, statistics), mask(ACL_UINT8, {S, S});
    for (Data* data : {&query, &key, &value, &dy, &out}) data->fill(1);
    max.fill(3);
    sum.fill(3);
    mask.clear();
    const Array zero({0}), lengths({S});
    Given given;
    given.query = query.handle(), given.key = key.handle(), given.value = value.handle(), given.dy = dy.handle();
    given.softmax_max = max.handle(), given.softmax_sum = sum.handle(), given.attention_out = out.handle();
    given.dq = dq.handle(), given.dk = dk.handle(), given.dv = dv.handle();
    given.atten_mask = mask.handle();
    given.prefix = zero;
    given.q_start_idx = given.kv_start_idx = zero;
    given.actual_seq_qlen = given.actual_seq_kvlen = packed(row) ? static_cast<const aclIntArray*>(lengths) : nullptr;
    given.scale = scale;
    given.pre_tokens = given.next_tokens = int32_max;
    given.layout_text = packed(row) ? "TND" : "SBH";
    given.softmax_layout_text = packed(row) ? "same_as_input" : "";
    ASSERT_EQ(run(row, given), 0) << last_error();
    // x = scale·128 = 11.3137 for every pair. Forward: softmax over equal scores. Gradient: P = exp(x − 3) / 3 and
    // dP − Δ = 128 − 128 = 0, so dq = dk = 0 and dv = 256·P. f32 sums of 128 and 256 equal terms: a few ulp each, and
    // exp multiplies the error of x (11.3·2^-24) into P: 1e-6 relative covers the ten or so roundings, twice over.
    const double x = scale * D;
    for (std::int64_t k = 0; k < out.count(); k += 97) {
        if (row.gradient) {
            EXPECT_NEAR(dq.at(k), 0, 256 * std::exp(x - 3) / 3 * 1e-6);
            EXPECT_NEAR(dk.at(k), 0, 256 * std::exp(x - 3) / 3 * 1e-6);
            const double expected = 256 * std::exp(x - 3) / 3;
            EXPECT_NEAR(expected, 348109.9, 0.1) << "the number the samples' documentation implies";
            EXPECT_NEAR(dv.at(k), expected, expected * 2e-6);
        } else {
            EXPECT_NEAR(out.at(k), 1, 2e-6);
        }
    }
    if (!row.gradient) {
        EXPECT_NEAR(max.at(8 * 255 + 7), x, x * 1e-6);
        EXPECT_NEAR(sum.at(8 * 255 + 7), 256, 256 * 2e-6);
    }
}

// SBH (packed: TND), FP16, statistics 3: against the formulas with those statistics, in float64.
TEST_P(EveryVersion, TakesStatisticsAsTheyAre) {
    const VersionRow& row = GetParam();
    if (!row.gradient) return;
    const Layout layout = packed(row) ? Layout::TND : Layout::SBH;
    Problem problem(layout);
    problem.attention_out.vary(9);
    problem.softmax_max.fill(3);
    problem.softmax_sum.fill(3);
    ASSERT_EQ(run(row, problem.given()), 0) << last_error();

    // Element (b, n, s, d) of a tensor with N heads in the layout; packed: b chooses the sequence.
    const auto at = [&](const Data& data, std::int64_t N, std::int64_t D, std::int64_t b, std::int64_t n,
                        std::int64_t s, std::int64_t d, const std::vector<std::int64_t>& ends) {
        if (layout == Layout::TND) return data.at((((b == 0 ? 0 : ends[0]) + s) * N + n) * D + d);
        return data.at((s * Problem::B + b) * N * D + n * D + d);
    };
    constexpr std::int64_t N1 = Problem::N1, N2 = Problem::N2, D = Problem::D, Dv = Problem::Dv;
    for (std::int64_t b = 0; b < 2; ++b) {
        const auto length = [&](const std::vector<std::int64_t>& ends, std::int64_t otherwise) {
            if (ends.empty()) return otherwise;
            return b == 0 ? ends[0] : ends[1] - ends[0];
        };
        const std::int64_t S1 = length(problem.ends_q, Problem::S1), S2 = length(problem.ends_kv, Problem::S2);
        for (std::int64_t h = 0; h < N2; ++h) {
            std::vector<double> dk(static_cast<std::size_t>(S2 * D)), dv(static_cast<std::size_t>(S2 * Dv));
            double largest = 0;
            for (std::int64_t n = 2 * h; n < 2 * h + 2; ++n) {
                for (std::int64_t i = 0; i < S1; ++i) {
                    double delta = 0;
                    for (std::int64_t c = 0; c < Dv; ++c) {
                        delta += at(problem.dy, N1, Dv, b, n, i, c, problem.ends_q) *
                                 at(problem.attention_out, N1, Dv, b, n, i, c, problem.ends_q);
                    }
                    std::vector<double> dq(static_cast<std::size_t>(D));
                    for (std::int64_t j = 0; j < S2; ++j) {
                        double raw = 0, dP = 0;
                        for (std::int64_t d = 0; d < D; ++d) {
                            raw += at(problem.query, N1, D, b, n, i, d, problem.ends_q) *
                                   at(problem.key, N2, D, b, h, j, d, problem.ends_kv);
                        }
                        for (std::int64_t c = 0; c < Dv; ++c) {
                            dP += at(problem.dy, N1, Dv, b, n, i, c, problem.ends_q) *
                                  at(problem.value, N2, Dv, b, h, j, c, problem.ends_kv);
                        }
                        const double P = std::exp(raw * Problem::scale - 3) / 3;
                        const double dS = P * (dP - delta) * Problem::scale;
                        for (std::int64_t d = 0; d < D; ++d) {
                            dq[static_cast<std::size_t>(d)] += dS * at(problem.key, N2, D, b, h, j, d, problem.ends_kv);
                            dk[static_cast<std::size_t>(j * D + d)] +=
                                dS * at(problem.query, N1, D, b, n, i, d, problem.ends_q);
                        }
                        for (std::int64_t c = 0; c < Dv; ++c) {
                            dv[static_cast<std::size_t>(j * Dv + c)] +=
                                P * at(problem.dy, N1, Dv, b, n, i, c, problem.ends_q);
                        }
                    }
                    for (std::int64_t d = 0; d < D; ++d) {
                        // f16 results (2^-11) of products whose terms may have been rounded to f16 as well.
                        const double wanted = dq[static_cast<std::size_t>(d)];
                        EXPECT_NEAR(at(problem.dq, N1, D, b, n, i, d, problem.ends_q), wanted,
                                    std::abs(wanted) * 0x1p-10 + 0x1p-14);
                        largest = std::max(largest, std::abs(wanted));
                    }
                }
            }
            EXPECT_GT(largest, 0.01) << "the test has something to see";
            for (std::int64_t j = 0; j < S2; ++j) {
                for (std::int64_t d = 0; d < D; ++d) {
                    const double wanted = dk[static_cast<std::size_t>(j * D + d)];
                    EXPECT_NEAR(at(problem.dk, N2, D, b, h, j, d, problem.ends_kv), wanted,
                                std::abs(wanted) * 0x1p-10 + 0x1p-13);
                }
                for (std::int64_t c = 0; c < Dv; ++c) {
                    const double wanted = dv[static_cast<std::size_t>(j * Dv + c)];
                    EXPECT_NEAR(at(problem.dv, N2, Dv, b, h, j, c, problem.ends_kv), wanted,
                                std::abs(wanted) * 0x1p-10 + 0x1p-13);
                }
            }
        }
    }
}

// ---- the operator's worked examples ----
//
// B = 1, N1 = 2, N2 = 1, Sq = 3, Skv = 4, D = Dv = 2, scale = 0.5; values of seven digits.

struct Example {
    Layout layout = Layout::BNSD;
    Data query, key, value, dy, pse, mask, max, sum, out, dq, dk, dv, dpse;
    explicit Example(bool is_packed) {
        if (is_packed) layout = Layout::TND;
        const auto shape = [&](std::int64_t N, std::int64_t S) { return shape_in(layout, 1, N, S, 2); };
        const auto fill = [&](Data& data, std::int64_t N, std::int64_t S, const auto& value_of) {
            data = Data(ACL_FLOAT, shape(N, S));
            for (std::int64_t n = 0; n < N; ++n) {
                for (std::int64_t s = 0; s < S; ++s) {
                    for (std::int64_t d = 0; d < 2; ++d)
                        data.set(place(N, S, n, s, d), static_cast<double>(value_of(n, s, d)));
                }
            }
        };
        using I = std::int64_t;
        fill(query, 2, 3, [](I n, I i, I d) { return static_cast<double>((7 * n + 3 * i + 5 * d) % 11 - 5) / 4; });
        fill(key, 1, 4, [](I, I j, I d) { return static_cast<double>((4 * j + 3 * d) % 9 - 4) / 4; });
        fill(value, 1, 4, [](I, I j, I c) { return static_cast<double>((3 * j + 5 * c) % 7 - 3) / 2; });
        fill(dy, 2, 3, [](I n, I i, I c) { return static_cast<double>((3 * n + 2 * i + 4 * c) % 5 - 2) / 2; });
        for (Data* data : {&out, &dq}) *data = Data(ACL_FLOAT, shape(2, 3));
        for (Data* data : {&dk, &dv}) *data = Data(ACL_FLOAT, shape(1, 4));
        max = Data(ACL_FLOAT, is_packed ? Data::Shape{3, 2, 8} : Data::Shape{1, 2, 3, 8});
        sum = Data(ACL_FLOAT, max.shape());
        mask = Data(ACL_BOOL, {2048, 2048});
        mask.clear();
    }
    [[nodiscard]] std::int64_t place(std::int64_t N, std::int64_t S, std::int64_t n, std::int64_t s,
                                     std::int64_t d) const {
        return layout == Layout::TND ? (s * N + n) * 2 + d : (n * S + s) * 2 + d;
    }
    [[nodiscard]] Given given() {
        Given g;
        g.query = query.handle(), g.key = key.handle(), g.value = value.handle(), g.dy = dy.handle();
        g.softmax_max = max.handle(), g.softmax_sum = sum.handle(), g.attention_out = out.handle();
        g.dq = dq.handle(), g.dk = dk.handle(), g.dv = dv.handle();
        g.atten_mask = mask.handle();
        g.scale = 0.5;
        g.head_num = 2;
        g.layout_text = std::string(fascore::name(layout));
        return g;
    }
    // `expected` in head-row-column order.
    void expect(const char* what, const Data& data, std::int64_t N, std::int64_t S,
                const std::vector<double>& expected) const {
        std::size_t k = 0;
        for (std::int64_t n = 0; n < N; ++n) {
            for (std::int64_t s = 0; s < S; ++s) {
                for (std::int64_t d = 0; d < 2; ++d, ++k) {
                    // Seven digits after the point, and a few f32 roundings of values up to 3.
                    EXPECT_NEAR(data.at(place(N, S, n, s, d)), expected[k], 1e-6)
                        << what << " n " << n << " s " << s << " d " << d;
                }
            }
        }
        ASSERT_EQ(k, expected.size());
    }
    // Per-sequence order is [N1, Sq, 8] for a single sequence in either family.
    static void expect_rows(const char* what, const Data& data, const std::vector<double>& expected) {
        for (std::size_t row = 0; row < expected.size(); ++row) {
            for (std::int64_t lane = 0; lane < 8; ++lane) {
                EXPECT_NEAR(data.at(static_cast<std::int64_t>(row) * 8 + lane) / expected[row], 1, 1e-6)
                    << what << " row " << row << " copy " << lane;
            }
        }
    }
};

struct Pair {
    const char* forward;
    const char* gradient;
};

// A: mode 3, nothing else. Every pair of versions.
TEST(WorkedExamples, CausalThroughEveryPair) {
    for (const auto& [forward, gradient] :
         {Pair{"aclnnFlashAttentionScore", "aclnnFlashAttentionScoreGrad"},
          Pair{"aclnnFlashAttentionScoreV2", "aclnnFlashAttentionScoreGradV2"},
          Pair{"aclnnFlashAttentionScoreV3", "aclnnFlashAttentionScoreGradV3"},
          Pair{"aclnnFlashAttentionScoreV4", "aclnnFlashAttentionScoreGradV4"},
          Pair{"aclnnFlashAttentionVarLenScore", "aclnnFlashAttentionUnpaddingScoreGrad"},
          Pair{"aclnnFlashAttentionVarLenScoreV2", "aclnnFlashAttentionUnpaddingScoreGradV2"},
          Pair{"aclnnFlashAttentionVarLenScoreV3", "aclnnFlashAttentionUnpaddingScoreGradV3"},
          Pair{"aclnnFlashAttentionVarLenScoreV4", "aclnnFlashAttentionUnpaddingScoreGradV4"},
          Pair{"aclnnFlashAttentionVarLenScoreV5", "aclnnFlashAttentionUnpaddingScoreGradV5"}}) {
        SCOPED_TRACE(forward);
        Example example(packed(version(forward)));
        Given given = example.given();
        given.sparse_mode = 3;
        const Array lengths_q({3}), lengths_kv({4});
        given.actual_seq_qlen = lengths_q;
        given.actual_seq_kvlen = lengths_kv;
        ASSERT_EQ(run(version(forward), given), 0) << last_error();
        example.expect("O", example.out, 2, 3,
                       {-0.9770323, 0.3027097, -0.2501010, 0.0532426, 0.1075421, 0.0298088, -0.8432648, 0.1243530,
                        0.6242872, 0.1842998, -0.3984344, -0.3171043});
        Example::expect_rows("max", example.max, {0.625, 0.28125, 0.4375, -0.125, 0.6875, 0.3125});
        Example::expect_rows("sum", example.sum, {1.5352614, 2.3698580, 2.5280135, 1.7788008, 1.7355233, 3.2367546});
        ASSERT_EQ(run(version(gradient), given), 0) << last_error();
        example.expect("dQ", example.dq, 2, 3,
                       {-0.3974105, -0.3974105, 0.0651704, 0.1168504, 0.5008581, -0.2234251, 0.0923003, 0.0923003,
                        -0.3965425, -0.0335315, 0.0529278, 0.1159402});
        example.expect("dK", example.dk, 1, 4,
                       {-0.1655118, 0.1013858, 0.3476806, 0.0949473, -0.0887083, -0.3932744, -0.0934606, 0.1969413});
        example.expect("dV", example.dv, 1, 4,
                       {-0.2667654, 0.6024432, -0.2337110, 0.3450509, -0.1806276, 0.6026057, 0.1811040, -0.0500997});
    }
}

// B: mode 3, pse_type 1, keep_prob 0.5, through the mask and (V4) through seed 2; dpse.
TEST(WorkedExamples, BiasAndDropout) {
    for (const auto& [forward, gradient] :
         {Pair{"aclnnFlashAttentionScore", "aclnnFlashAttentionScoreGrad"},
          Pair{"aclnnFlashAttentionScoreV2", "aclnnFlashAttentionScoreGradV2"},
          Pair{"aclnnFlashAttentionScoreV4", "aclnnFlashAttentionScoreGradV4"},
          Pair{"aclnnFlashAttentionVarLenScore", "aclnnFlashAttentionUnpaddingScoreGrad"},
          Pair{"aclnnFlashAttentionVarLenScoreV4", "aclnnFlashAttentionUnpaddingScoreGradV4"}}) {
        SCOPED_TRACE(forward);
        const bool is_packed = packed(version(forward));
        const bool draws = version(forward).family == Family::whole;
        Example example(is_packed);
        const Data::Shape pse_shape = is_packed ? Data::Shape{24} : Data::Shape{1, 2, 3, 4};
        Data pse(ACL_FLOAT, pse_shape), dpse(ACL_FLOAT, pse_shape), bits(ACL_UINT8, {3});
        pse.fill([](std::int64_t k) {
            const std::int64_t n = k / 12, i = k / 4 % 3, j = k % 4;
            return static_cast<double>((n + 2 * i + 3 * j) % 5 - 2) / 4;
        });
        bits.set(0, 0xC3), bits.set(1, 0xB7), bits.set(2, 0xCB);
        Given given = example.given();
        given.sparse_mode = 3;
        given.pse = pse.handle();
        given.dpse = dpse.handle();
        given.keep_prob = 0.5;
        given.seed = 2;
        given.drop_mask = draws ? nullptr : bits.handle();
        const Array lengths_q({3}), lengths_kv({4});
        given.actual_seq_qlen = lengths_q;
        given.actual_seq_kvlen = lengths_kv;
        ASSERT_EQ(run(version(forward), given), 0) << last_error();
        example.expect("O", example.out, 2, 3,
                       {-1.6865295, 0.2487060, 0.7484616, 0.2494872, -0.0898067, 0.6575809, -1.4063719, -0.1248375,
                        -0.4713535, -0.0892509, 0.0017064, -0.9329919});
        Example::expect_rows("max", example.max, {0.375, 0.15625, 0.28125, -0.125, 0.9375, 0.46875});
        ASSERT_EQ(run(version(gradient), given), 0) << last_error();
        example.expect("dQ", example.dq, 2, 3,
                       {-0.8614693, -0.8614693, -0.0716772, 0.0336472, 0.8771655, -0.2402257, 0.1867695, 0.1867695,
                        -0.4852674, -0.2096640, -0.0474993, 0.0800027});
        example.expect("dV", example.dv, 1, 4,
                       {-0.3007692, 1.7731031, -0.4318974, 1.4371470, 0.6091577, -0.0621722, 0, -0.3500853});
        const std::vector<double> expected = {0.8614693,  -0.8614693, 0,          0,          0.0248664,  0.0219445,
                                              -0.0468108, 0,          -0.3744862, -0.0978880, 0.4966183,  -0.0242441,
                                              -0.1867695, 0.1867695,  0,          0,          0.3627770,  -0.2402866,
                                              -0.1224904, 0,          -0.0543951, -0.0698447, -0.0566675, 0.1809073};
        for (std::size_t k = 0; k < expected.size(); ++k) {
            EXPECT_NEAR(dpse.at(static_cast<std::int64_t>(k)), expected[k], 1e-6) << "dpse " << k;
        }
    }
}

// D: a row that sees nothing.
TEST(WorkedExamples, ARowThatSeesNothing) {
    Example example(false);
    Given given = example.given();
    given.sparse_mode = 4;
    given.pre_tokens = 3;
    given.next_tokens = -2;
    ASSERT_EQ(run(version("aclnnFlashAttentionScoreV2"), given), 0) << last_error();
    example.expect("O", example.out, 2, 3,
                   {0, 0, -1.5, 1, -0.9336890, 0.2449187, 0, 0, -1.5, 1, -0.7968141, 0.0624187});
    Example::expect_rows("max", example.max, {-3.402823466e38, 0.15625, 0.03125, -3.402823466e38, -0.59375, 0.3125});
    Example::expect_rows("sum", example.sum, {3.402823466e38, 1, 1.6065307, 3.402823466e38, 1, 1.8824969});
    ASSERT_EQ(run(version("aclnnFlashAttentionScoreGradV2"), given), 0) << last_error();
    example.expect("dQ", example.dq, 2, 3, {0, 0, 0, 0, 0.0587509, 0.0587509, 0, 0, 0, 0, 0.1245130, 0.1245130});
    example.expect("dV", example.dv, 1, 4, {-0.3775407, 0.5456250, 0.3775407, -0.0456250, 0, 0, 0, 0});
}

// ---- features against the C++ call ----

// Slopes with both origins, and a sink, through the versions that have them.
TEST(Features, SlopesStartsAndSink) {
    for (const auto& [forward, gradient] :
         {Pair{"aclnnFlashAttentionScoreV2", "aclnnFlashAttentionScoreGradV2"},
          Pair{"aclnnFlashAttentionScoreV3", "aclnnFlashAttentionScoreGradV3"},
          Pair{"aclnnFlashAttentionScoreV4", "aclnnFlashAttentionScoreGradV4"},
          Pair{"aclnnFlashAttentionVarLenScoreV2", "aclnnFlashAttentionUnpaddingScoreGradV2"},
          Pair{"aclnnFlashAttentionVarLenScoreV3", "aclnnFlashAttentionUnpaddingScoreGradV3"},
          Pair{"aclnnFlashAttentionVarLenScoreV5", "aclnnFlashAttentionUnpaddingScoreGradV5"}}) {
        SCOPED_TRACE(forward);
        const VersionRow& row = version(forward);
        const bool sinks = row.family == Family::whole || row.number == 5 || (row.number == 3 && !packed(row));
        const Layout layout = packed(row) ? Layout::TND : Layout::BSND;
        Problem problem(layout, ACL_BF16), expected(layout, ACL_BF16);
        // Slopes need S1 = S2 outside TND: the keys are cut to the queries' number.
        if (!packed(row)) {
            for (Problem* one : {&problem, &expected}) {
                for (Data* data : {&one->key, &one->value, &one->dk, &one->dv}) {
                    Data::Shape shape = data->shape();
                    shape[1] = Problem::S1;
                    *data = Data(ACL_BF16, shape);
                    data->vary(static_cast<std::uint64_t>(shape[3]));
                }
            }
        }
        Data slopes(ACL_FLOAT, {Problem::N1}), sink(ACL_FLOAT, {Problem::N1}), dsink(ACL_FLOAT, {Problem::N1}),
            dsink_expected(ACL_FLOAT, {Problem::N1});
        slopes.fill([](std::int64_t n) { return 0.125 * static_cast<double>(n + 1); });
        sink.fill([](std::int64_t n) { return 0.5 - static_cast<double>(n); });
        const Array q_start({3}), kv_start({1});
        Given given = problem.given();
        given.pse = slopes.handle();
        given.pse_type = 3;
        given.q_start_idx = q_start;
        given.kv_start_idx = kv_start;
        given.sink = sink.handle();
        given.dsink = dsink.handle();
        AttentionParams params = expected.params();
        params.pse_type = 3;
        params.q_start_idx = 3;
        params.kv_start_idx = 1;
        ForwardInputs in = expected.forward_inputs();
        in.pse = slopes.view();
        if (sinks) in.sink = sink.view();
        Status status = attention_forward(params, in, expected.forward_outputs());
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(run(row, given), 0) << last_error();
        EXPECT_EQ(problem.attention_out.element_bytes(), expected.attention_out.element_bytes());
        EXPECT_EQ(problem.softmax_sum.element_bytes(), expected.softmax_sum.element_bytes());
        BackwardInputs back = expected.backward_inputs();
        back.pse = slopes.view();
        BackwardOutputs gradients = expected.backward_outputs();
        if (sinks) {
            back.sink = sink.view();
            gradients.dsink = dsink_expected.out();
        }
        status = attention_backward(params, back, gradients);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(run(version(gradient), given), 0) << last_error();
        EXPECT_EQ(problem.dq.element_bytes(), expected.dq.element_bytes());
        EXPECT_EQ(dsink.element_bytes(), dsink_expected.element_bytes());
        EXPECT_EQ(dsink.untouched(), !sinks);
    }
}

// Rope parts are more columns: the call with the columns appended is the truth (equal sums in another order: bf16
// ulps).
TEST(Features, RopeParts) {
    for (const auto& [forward, gradient] :
         {Pair{"aclnnFlashAttentionVarLenScoreV3", "aclnnFlashAttentionUnpaddingScoreGradV3"},
          Pair{"aclnnFlashAttentionVarLenScoreV5", "aclnnFlashAttentionUnpaddingScoreGradV5"},
          Pair{"aclnnFlashAttentionScoreV4", "aclnnFlashAttentionScoreGradV4"}}) {
        SCOPED_TRACE(forward);
        const VersionRow& row = version(forward);
        const Layout layout = packed(row) ? Layout::TND : Layout::BNSD;
        Problem problem(layout, ACL_BF16), expected(layout, ACL_BF16);
        constexpr std::int64_t Dr = 8;
        const Data::Shape query_shape = shape_in(layout, Problem::B, Problem::N1, Problem::S1, Dr);
        const Data::Shape key_shape = shape_in(layout, Problem::B, Problem::N2, Problem::S2, Dr);
        Data query_rope(ACL_BF16, query_shape), key_rope(ACL_BF16, key_shape), mask(ACL_BOOL, {2048, 2048});
        Data dq_rope(ACL_BF16, query_shape), dk_rope(ACL_BF16, key_shape), dq_expected(ACL_BF16, query_shape),
            dk_expected(ACL_BF16, key_shape);
        query_rope.vary(21);
        key_rope.vary(22);
        mask.clear();
        Given given = problem.given();
        given.query_rope = query_rope.handle();
        given.key_rope = key_rope.handle();
        given.dq_rope = dq_rope.handle();
        given.dk_rope = dk_rope.handle();
        given.atten_mask = mask.handle();
        given.sparse_mode = 3;
        AttentionParams params = expected.params();
        params.sparse_mode = 3;
        const auto add = [&](AttentionInputs& in) {
            in.query_rope = query_rope.view();
            in.key_rope = key_rope.view();
            in.atten_mask = mask.view();
        };
        ForwardInputs in = expected.forward_inputs();
        add(in);
        Status status = attention_forward(params, in, expected.forward_outputs());
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(run(row, given), 0) << last_error();
        EXPECT_EQ(problem.attention_out.element_bytes(), expected.attention_out.element_bytes());
        BackwardInputs back = expected.backward_inputs();
        add(back);
        BackwardOutputs gradients = expected.backward_outputs();
        gradients.dq_rope = dq_expected.out();
        gradients.dk_rope = dk_expected.out();
        status = attention_backward(params, back, gradients);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(run(version(gradient), given), 0) << last_error();
        EXPECT_EQ(problem.dk.element_bytes(), expected.dk.element_bytes());
        EXPECT_EQ(dq_rope.element_bytes(), dq_expected.element_bytes());
        EXPECT_EQ(dk_rope.element_bytes(), dk_expected.element_bytes());
        EXPECT_FALSE(dq_rope.untouched());
    }
}

// 8-bit inputs with scales; results in outDtype.
TEST(Features, EightBitInputs) {
    for (const aclDataType type : {ACL_FLOAT8_E4M3FN, ACL_FLOAT8_E5M2}) {
        for (const aclDataType out : {ACL_FLOAT16, ACL_BF16}) {
            SCOPED_TRACE(std::to_string(type) + " to " + std::to_string(out));
            const auto shape = [](std::int64_t N, std::int64_t S, std::int64_t D) {
                return shape_in(Layout::BNSD, 2, N, S, D);
            };
            using P = Problem;
            Data query(type, shape(P::N1, P::S1, P::D)), key(type, shape(P::N2, P::S2, P::D)),
                value(type, shape(P::N2, P::S2, P::Dv)), dy(type, shape(P::N1, P::S1, P::Dv));
            std::uint8_t bits = 0;
            for (Data* data : {&query, &key, &value, &dy}) {
                for (std::byte& byte : data->bytes()) {
                    bits = static_cast<std::uint8_t>(bits * 5 + 37);
                    byte = std::byte{static_cast<std::uint8_t>((bits & 0x80U) | (0x30U + bits % 12))};  // around 1
                }
            }
            Data scale_q(ACL_FLOAT, {2, P::N1, 1, 1}), scale_k(ACL_FLOAT, {2, P::N2, 1, 1}),
                scale_v(ACL_FLOAT, {2, P::N2, 1, 1}), scale_dy(ACL_FLOAT, {2, P::N1, 1, 1});
            double factor = 0.5;
            for (Data* data : {&scale_q, &scale_k, &scale_v, &scale_dy}) data->fill(factor += 0.125);
            Problem problem(Layout::BNSD, out), expected(Layout::BNSD, out);
            Given given = problem.given();
            given.query = query.handle(), given.key = key.handle(), given.value = value.handle(),
            given.dy = dy.handle();
            given.d_scale_q = scale_q.handle(), given.d_scale_k = scale_k.handle(), given.d_scale_v = scale_v.handle();
            given.d_scale_dy = scale_dy.handle();
            given.out_dtype = out == ACL_BF16 ? 1 : 0;
            const auto replace = [&](AttentionInputs& in) {
                in.query = query.view(), in.key = key.view(), in.value = value.view();
                in.d_scale_q = scale_q.view(), in.d_scale_k = scale_k.view(), in.d_scale_v = scale_v.view();
            };
            ForwardInputs in = expected.forward_inputs();
            replace(in);
            Status status = attention_forward(expected.params(), in, expected.forward_outputs());
            ASSERT_TRUE(status.ok()) << status.message();
            ASSERT_EQ(run(version("aclnnFlashAttentionScoreV4"), given), 0) << last_error();
            EXPECT_EQ(problem.attention_out.element_bytes(), expected.attention_out.element_bytes());
            BackwardInputs back = expected.backward_inputs();
            replace(back);
            back.dy = dy.view();
            back.d_scale_dy = scale_dy.view();
            status = attention_backward(expected.params(), back, expected.backward_outputs());
            ASSERT_TRUE(status.ok()) << status.message();
            ASSERT_EQ(run(version("aclnnFlashAttentionScoreGradV4"), given), 0) << last_error();
            EXPECT_EQ(problem.dq.element_bytes(), expected.dq.element_bytes());
            EXPECT_EQ(problem.dv.element_bytes(), expected.dv.element_bytes());
            given.out_dtype = 1 - given.out_dtype;
            EXPECT_EQ(run(version("aclnnFlashAttentionScoreGradV4"), given), 161002);
            given.out_dtype = 2;
            EXPECT_EQ(run(version("aclnnFlashAttentionScoreGradV4"), given), 161002);
        }
    }
}

// Both orders of the statistics, in the versions that have the string; forward and gradient agree in either.
TEST(Features, OrderOfStatistics) {
    for (const auto& [forward, gradient] :
         {Pair{"aclnnFlashAttentionVarLenScoreV4", "aclnnFlashAttentionUnpaddingScoreGradV4"},
          Pair{"aclnnFlashAttentionVarLenScoreV5", "aclnnFlashAttentionUnpaddingScoreGradV5"},
          Pair{"aclnnFlashAttentionScoreV4", "aclnnFlashAttentionScoreGradV4"}}) {
        SCOPED_TRACE(forward);
        Problem by_sequence(Layout::TND), by_token(Layout::TND), declared(Layout::TND);
        Given given = by_sequence.given();
        ASSERT_EQ(run(version(forward), given), 0) << last_error();
        ASSERT_EQ(run(version(gradient), given), 0) << last_error();
        given = by_token.given();
        given.softmax_layout_text = "same_as_input";
        ASSERT_EQ(run(version(forward), given), 0) << last_error();
        ASSERT_EQ(run(version(gradient), given), 0) << last_error();
        EXPECT_NE(by_sequence.softmax_max.element_bytes(), by_token.softmax_max.element_bytes());
        EXPECT_EQ(by_sequence.dk.element_bytes(), by_token.dk.element_bytes());
        // Token t, head n: sequence 0 holds tokens 0, 1.
        for (std::int64_t n = 0; n < Problem::N1; ++n) {
            for (std::int64_t t = 0; t < Problem::S1; ++t) {
                const std::int64_t place = t < 2 ? n * 2 + t : 2 * Problem::N1 + n * 4 + (t - 2);
                EXPECT_EQ(by_sequence.softmax_max.at(place * 8), by_token.softmax_max.at((t * Problem::N1 + n) * 8));
            }
        }
        // Declared [N1, T1, 8]: the same bytes.
        declared.softmax_max = Data(ACL_FLOAT, {Problem::N1, Problem::S1, 8});
        declared.softmax_sum = Data(ACL_FLOAT, {Problem::N1, Problem::S1, 8});
        given = declared.given();
        ASSERT_EQ(run(version(forward), given), 0) << last_error();
        EXPECT_EQ(declared.softmax_max.element_bytes(), by_sequence.softmax_max.element_bytes());
        ASSERT_EQ(run(version(gradient), given), 0) << last_error();
        EXPECT_EQ(declared.dk.element_bytes(), by_sequence.dk.element_bytes());
    }
}

// A bit mask whose bytes do not lie side by side.
TEST(Features, StridedDropMask) {
    Problem plain(Layout::BSH), strided(Layout::BSH);
    const std::int64_t bytes = Problem::B * Problem::N1 * Problem::S1 * Problem::S2 / 8;
    Data mask(ACL_UINT8, {bytes}), apart(ACL_UINT8, {bytes}, {3}, 1, 3 * bytes + 1);
    for (std::int64_t k = 0; k < bytes; ++k) {
        mask.set(k, static_cast<double>((k * 73 + 19) % 256));
        apart.set(k, mask.at(k));
    }
    Given given = plain.given();
    given.keep_prob = 0.75;
    given.drop_mask = mask.handle();
    ASSERT_EQ(run(version("aclnnFlashAttentionScore"), given), 0) << last_error();
    given = strided.given();
    given.keep_prob = 0.75;
    given.drop_mask = apart.handle();
    ASSERT_EQ(run(version("aclnnFlashAttentionScore"), given), 0) << last_error();
    EXPECT_EQ(strided.attention_out.element_bytes(), plain.attention_out.element_bytes());
    Problem undropped(Layout::BSH);
    undropped.run_forward();
    EXPECT_NE(undropped.attention_out.element_bytes(), plain.attention_out.element_bytes()) << "the mask matters";
}

// ---- empty tensors ----

TEST(Empty, NothingToDoIsDone) {
    for (const char* name : {"aclnnFlashAttentionScoreV2", "aclnnFlashAttentionScoreGradV2"}) {
        const Data none(ACL_FLOAT16, {2, 4, 0, 16}), none_key(ACL_FLOAT16, {2, 4, 0, 16}),
            statistics(ACL_FLOAT, {2, 4, 0, 8});
        Given given;
        given.query = given.key = given.value = given.dy = none.handle();
        given.attention_out = given.dq = given.dk = given.dv = none.handle();
        given.softmax_max = given.softmax_sum = statistics.handle();
        std::uint64_t size = 99;
        aclOpExecutor* executor = nullptr;
        ASSERT_EQ(version(name).first(given, &size, &executor), 0) << last_error();
        EXPECT_EQ(size, 0U);
        EXPECT_NE(executor, nullptr);
        EXPECT_EQ(version(name).second(nullptr, 0, executor, nullptr), 0) << last_error();
        EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    }
}

TEST(Empty, NoKeysGiveZeros) {
    Problem problem(Layout::BNSD);
    for (Data* data : {&problem.key, &problem.value, &problem.dk, &problem.dv}) {
        *data = Data(ACL_FLOAT16, {Problem::B, Problem::N2, 0, data->shape()[3]});
    }
    const Given given = problem.given();
    ASSERT_EQ(run(version("aclnnFlashAttentionScoreV2"), given), 0) << last_error();
    EXPECT_EQ(problem.attention_out.values(),
              std::vector<double>(static_cast<std::size_t>(problem.attention_out.count()), 0));
    EXPECT_EQ(problem.softmax_sum.at(0), 0);
    ASSERT_EQ(run(version("aclnnFlashAttentionScoreGradV2"), given), 0) << last_error();
    EXPECT_EQ(problem.dq.values(), std::vector<double>(static_cast<std::size_t>(problem.dq.count()), 0));
}

}  // namespace

}  // namespace fascore::aclnn_test
