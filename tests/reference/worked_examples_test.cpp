// SPDX-License-Identifier: Apache-2.0
//
// Two problems small enough to be worked out elsewhere, with every result written down. Inputs are multiples of 1/4
// below 2, exact in every dtype, so all four dtypes must give the same numbers.
//
//   B = 1, N1 = 2, N2 = 1, S1 = 3, S2 = 4, D = Dv = 2, scale = 1/2
//   query[n][i][d] = (((7n + 3i + 5d) mod 11) − 5) / 4       key[j][d]   = (((4j + 3d) mod 9) − 4) / 4
//   dy[n][i][c]    = (((3n + 2i + 4c) mod 5) − 2) / 2        value[j][c] = (((3j + 5c) mod 7) − 3) / 2
#include <cfloat>
#include <cmath>

#include "reference/problem.h"

namespace fascore::test {
namespace {

struct Expected {
    const char* name;
    int sparse_mode;
    std::int64_t pre;
    std::int64_t next;
    std::vector<double> out, max, sum, dq, dk, dv;
};

const Expected examples[] = {
    {"bottom_right_causal",
     3,
     unlimited_tokens,
     unlimited_tokens,
     {-0.9770323, 0.3027097, -0.2501010, 0.0532426, 0.1075421, 0.0298088,  //
      -0.8432648, 0.1243530, 0.6242872, 0.1842998, -0.3984344, -0.3171043},
     {0.625, 0.28125, 0.4375, -0.125, 0.6875, 0.3125},
     {1.5352614, 2.3698580, 2.5280135, 1.7788008, 1.7355233, 3.2367546},
     {-0.3974105, -0.3974105, 0.0651704, 0.1168504, 0.5008581, -0.2234251,  //
      0.0923003, 0.0923003, -0.3965425, -0.0335315, 0.0529278, 0.1159402},
     {-0.1655118, 0.1013858, 0.3476806, 0.0949473, -0.0887083, -0.3932744, -0.0934606, 0.1969413},
     {-0.2667654, 0.6024432, -0.2337110, 0.3450509, -0.1806276, 0.6026057, 0.1811040, -0.0500997}},
    {"band_with_an_empty_row",
     4,
     3,
     -2,
     {0, 0, -1.5, 1, -0.9336890, 0.2449187, 0, 0, -1.5, 1, -0.7968141, 0.0624187},
     {-FLT_MAX, 0.15625, 0.03125, -FLT_MAX, -0.59375, 0.3125},
     {FLT_MAX, 1, 1.6065307, FLT_MAX, 1, 1.8824969},
     {0, 0, 0, 0, 0.0587509, 0.0587509, 0, 0, 0, 0, 0.1245130, 0.1245130},
     {0.0786970, 0.0111822, -0.0786970, -0.0111822, 0, 0, 0, 0},
     {-0.3775407, 0.5456250, 0.3775407, -0.0456250, 0, 0, 0, 0}},
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

class WorkedExamples : public ::testing::TestWithParam<std::tuple<Expected, DType>> {};

TEST_P(WorkedExamples, EveryResultAsWritten) {
    const auto& [expected, dtype] = GetParam();
    Attention a({1, 2, 1, 3, 4, 2, 2}, dtype);
    a.params.scale = 0.5;
    a.compressed(expected.sparse_mode, expected.pre, expected.next);
    const auto quarter = [](std::int64_t number, std::int64_t modulus, std::int64_t shift, double divisor) {
        return static_cast<double>(number % modulus - shift) / divisor;
    };
    a.query.fill([&](auto, auto n, auto i, auto d) { return quarter(7 * n + 3 * i + 5 * d, 11, 5, 4.0); });
    a.key.fill([&](auto, auto, auto j, auto d) { return quarter(4 * j + 3 * d, 9, 4, 4.0); });
    a.value.fill([&](auto, auto, auto j, auto c) { return quarter(3 * j + 5 * c, 7, 3, 2.0); });
    a.dy.fill([&](auto, auto n, auto i, auto c) { return quarter(3 * n + 2 * i + 4 * c, 5, 2, 2.0); });
    a.run();
    expect_written(a.attention_out.values(), expected.out, "attention_out");
    expect_written(a.dq.values(), expected.dq, "dq");
    expect_written(a.dk.values(), expected.dk, "dk");
    expect_written(a.dv.values(), expected.dv, "dv");
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
                                            ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16)),
                         [](const auto& row) {
                             return std::string(std::get<0>(row.param).name) + "_" +
                                    std::string(name(std::get<1>(row.param)));
                         });

}  // namespace
}  // namespace fascore::test
