// SPDX-License-Identifier: Apache-2.0
//
// Four problems small enough to be worked out elsewhere, with every result written down. Inputs are multiples of 1/4
// below 2, exact in every dtype, so all four dtypes must give the same numbers; and in layout TND one sequence is the
// same problem.
//
//   B = 1, N1 = 2, N2 = 1, S1 = 3, S2 = 4, D = Dv = 2, scale = 1/2
//   query[n][i][d] = (((7n + 3i + 5d) mod 11) − 5) / 4       key[j][d]   = (((4j + 3d) mod 9) − 4) / 4
//   dy[n][i][c]    = (((3n + 2i + 4c) mod 5) − 2) / 2        value[j][c] = (((3j + 5c) mod 7) − 3) / 2
//   pse[n][i][j]   = (((n + 2i + 3j) mod 5) − 2) / 4
#include <cfloat>
#include <cmath>

#include "reference/problem.h"

namespace fascore::test {
namespace {

double grid(std::int64_t number, std::int64_t modulus, std::int64_t shift, double divisor) {
    return static_cast<double>(number % modulus - shift) / divisor;
}

void bias_and_dropout(Attention& a) {
    a.compressed(3);
    a.params.keep_prob = 0.5;
    a.params.seed = 2;
    const DType dtype = a.query.dtype();
    if (a.packed()) {
        a.with_pse(1, dtype, {1, 1, 1, 24}, 1);  // [N1·Sq·Skv]
        a.pse.fill([](auto, auto, auto, auto k) { return grid(k / 12 + 2 * (k / 4 % 3) + 3 * (k % 4), 5, 2, 4.0); });
    } else {
        a.with_pse(1, dtype, {1, 2, 3, 4});
        a.pse.fill([](auto, auto n, auto i, auto j) { return grid(n + 2 * i + 3 * j, 5, 2, 4.0); });
    }
}

struct Expected {
    const char* name;
    void (*features)(Attention&);
    bool only_packed;  // slopes ask for S1 = S2 elsewhere
    std::vector<double> out, max, sum, dq, dk, dv, dpse, dsink;
};

const std::vector<double> biased_out = {-1.6865295, 0.2487060,  0.7484616,  0.2494872,  -0.0898067, 0.6575809,
                                        -1.4063719, -0.1248375, -0.4713535, -0.0892509, 0.0017064,  -0.9329919};
const std::vector<double> biased_dq = {-0.8614693, -0.8614693, -0.0716772, 0.0336472,  0.8771655,  -0.2402257,
                                       0.1867695,  0.1867695,  -0.4852674, -0.2096640, -0.0474993, 0.0800027};
const std::vector<double> biased_dpse = {
    0.8614693,  -0.8614693, 0, 0, 0.0248664, 0.0219445,  -0.0468108, 0, -0.3744862, -0.0978880, 0.4966183,  -0.0242441,
    -0.1867695, 0.1867695,  0, 0, 0.3627770, -0.2402866, -0.1224904, 0, -0.0543951, -0.0698447, -0.0566675, 0.1809073};
const std::vector<double> biased_dk = {-0.7820085, 0.5556352,  0.8868023,  -0.0228018,
                                       0.0369476,  -0.6535922, -0.1417415, 0.1207587};
const std::vector<double> biased_dv = {-0.3007692, 1.7731031,  -0.4318974, 1.4371470,
                                       0.6091577,  -0.0621722, 0,          -0.3500853};

const Expected examples[] = {
    {"bottom_right_causal",
     [](Attention& a) { a.compressed(3); },
     false,
     {-0.9770323, 0.3027097, -0.2501010, 0.0532426, 0.1075421, 0.0298088,  //
      -0.8432648, 0.1243530, 0.6242872, 0.1842998, -0.3984344, -0.3171043},
     {0.625, 0.28125, 0.4375, -0.125, 0.6875, 0.3125},
     {1.5352614, 2.3698580, 2.5280135, 1.7788008, 1.7355233, 3.2367546},
     {-0.3974105, -0.3974105, 0.0651704, 0.1168504, 0.5008581, -0.2234251,  //
      0.0923003, 0.0923003, -0.3965425, -0.0335315, 0.0529278, 0.1159402},
     {-0.1655118, 0.1013858, 0.3476806, 0.0949473, -0.0887083, -0.3932744, -0.0934606, 0.1969413},
     {-0.2667654, 0.6024432, -0.2337110, 0.3450509, -0.1806276, 0.6026057, 0.1811040, -0.0500997},
     {},
     {}},
    {"bias_and_generated_dropout",
     bias_and_dropout,
     false,
     biased_out,
     {0.375, 0.15625, 0.28125, -0.125, 0.9375, 0.46875},
     {1.7788008, 2.5082809, 2.9894076, 1.8824969, 1.5597245, 2.8564470},
     biased_dq,
     biased_dk,
     biased_dv,
     biased_dpse,
     {}},
    {"bias_and_the_same_drop_mask",
     [](Attention& a) {
         bias_and_dropout(a);
         a.params.seed = 77;
         a.with_drop_mask({0xC3, 0xB7, 0xCB});
     },
     false,
     biased_out,
     {0.375, 0.15625, 0.28125, -0.125, 0.9375, 0.46875},
     {1.7788008, 2.5082809, 2.9894076, 1.8824969, 1.5597245, 2.8564470},
     biased_dq,
     biased_dk,
     biased_dv,
     biased_dpse,
     {}},
    {"band_root_slopes_and_sinks",
     [](Attention& a) {
         a.compressed(4, 1, 0);
         a.with_pse(3, DType::f32, {1, 1, 1, 2}, 1);
         a.pse.fill([](auto, auto, auto, auto n) { return n == 0 ? 0.5 : 0.25; });
         a.params.q_start_idx = 2;
         a.with_sink({0.25, -0.5});
     },
     true,
     {-0.4914272, 0.1119037, 0.2522321, -0.1964098, 0.3755236, -0.1062645,  //
      -0.5276945, 0.0479246, 0.8313008, 0.0483289, 0.0770518, -0.6199348},
     {0.25, 0.25, 0.25, -0.4785534, 0.4375, -0.03125},
     {2.1897773, 1.8137031, 1.9297124, 2.8425536, 1.8044010, 2.0652023},
     {-0.3106916, -0.2073710, -0.0292761, 0.0569000, 0.2541176, -0.1782340,  //
      0.0855134, 0.0514442, -0.0601385, 0.0114506, -0.0862066, 0.0830539},
     {-0.4311212, 0.0855134, 0.1770017, 0.0083802, 0.0391447, -0.3117099, -0.1140181, 0.2238516},
     {-0.1517199, 0.3276181, -0.2925499, 0.3042423, -0.2459917, 0.5178413, 0.1735793, -0.1553174},
     {},
     {-0.4967347, 0.1668536}},
    {"band_with_an_empty_row",
     [](Attention& a) { a.compressed(4, 3, -2); },
     false,
     {0, 0, -1.5, 1, -0.9336890, 0.2449187, 0, 0, -1.5, 1, -0.7968141, 0.0624187},
     {-FLT_MAX, 0.15625, 0.03125, -FLT_MAX, -0.59375, 0.3125},
     {FLT_MAX, 1, 1.6065307, FLT_MAX, 1, 1.8824969},
     {0, 0, 0, 0, 0.0587509, 0.0587509, 0, 0, 0, 0, 0.1245130, 0.1245130},
     {0.0786970, 0.0111822, -0.0786970, -0.0111822, 0, 0, 0, 0},
     {-0.3775407, 0.5456250, 0.3775407, -0.0456250, 0, 0, 0, 0},
     {},
     {}},
};

// Seven decimals are written above, so a right result differs by half a unit of the seventh at most.
void expect_written(const std::vector<double>& got, const std::vector<double>& written, const char* what) {
    ASSERT_EQ(got.size(), written.size()) << what;
    for (std::size_t k = 0; k < got.size(); ++k) {
        if (std::fabs(written[k]) == static_cast<double>(FLT_MAX) || written[k] == 0.0) {
            EXPECT_EQ(got[k], written[k]) << what << " element " << k;
        } else {
            EXPECT_NEAR(got[k], written[k], 0.5000001e-7) << what << " element " << k;
        }
    }
}

class WorkedExamples : public ::testing::TestWithParam<std::tuple<Expected, DType, Layout>> {};

TEST_P(WorkedExamples, EveryResultAsWritten) {
    const auto& [expected, dtype, layout] = GetParam();
    if (expected.only_packed && layout != Layout::TND) return;
    Attention a({1, 2, 1, 3, 4, 2, 2}, dtype, layout);
    if (a.packed()) {
        a.q_ends = {3};
        a.k_ends = {4};
        a.params.statistics_order = StatisticsOrder::by_token;  // so that a row stands where its (n, i) says
    }
    a.params.scale = 0.5;
    expected.features(a);
    a.query.fill([](auto, auto n, auto i, auto d) { return grid(7 * n + 3 * i + 5 * d, 11, 5, 4.0); });
    a.key.fill([](auto, auto, auto j, auto d) { return grid(4 * j + 3 * d, 9, 4, 4.0); });
    a.value.fill([](auto, auto, auto j, auto c) { return grid(3 * j + 5 * c, 7, 3, 2.0); });
    a.dy.fill([](auto, auto n, auto i, auto c) { return grid(3 * n + 2 * i + 4 * c, 5, 2, 2.0); });
    ASSERT_NO_FATAL_FAILURE(a.run());
    expect_written(a.attention_out.values(), expected.out, "attention_out");
    expect_written(a.dq.values(), expected.dq, "dq");
    expect_written(a.dk.values(), expected.dk, "dk");
    expect_written(a.dv.values(), expected.dv, "dv");
    if (!expected.dpse.empty()) expect_written(a.dpse.values(), expected.dpse, "dpse");
    if (!expected.dsink.empty()) expect_written(a.dsink.values(), expected.dsink, "dsink");
    for (std::int64_t copy = 0; copy < 8; ++copy) {
        std::vector<double> max;
        std::vector<double> sum;
        for (std::int64_t n = 0; n < 2; ++n) {
            for (std::int64_t i = 0; i < 3; ++i) {
                max.push_back(a.softmax_max.get(0, n, i, copy));
                sum.push_back(a.softmax_sum.get(0, n, i, copy));
            }
        }
        expect_written(max, expected.max, "softmax_max");
        expect_written(sum, expected.sum, "softmax_sum");
    }

    // From the statistics and the output of the forward: the same gradient, to the rounding of a different order.
    const std::vector<double> own = a.dk.values();
    ASSERT_TRUE(a.backward(Attention::Statistics::given).ok());
    for (std::size_t k = 0; k < own.size(); ++k) EXPECT_NEAR(a.dk.values()[k], own[k], 1e-15);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, WorkedExamples,
                         ::testing::Combine(::testing::ValuesIn(examples),
                                            ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(Layout::BNSD, Layout::TND)),
                         [](const auto& row) {
                             return std::string(std::get<0>(row.param).name) + "_" +
                                    std::string(name(std::get<1>(row.param))) + "_" +
                                    std::string(name(std::get<2>(row.param)));
                         });

}  // namespace
}  // namespace fascore::test
