// SPDX-License-Identifier: Apache-2.0
//
// Error measures on numbers small enough to check by hand, and budgets on both sides of their edge.
#include "measure.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

namespace fascore::cli {
namespace {

HostTensor tensor(std::vector<double> values) {
    HostTensor made("x", DType::f64, {static_cast<std::int64_t>(values.size())});
    made.allocate();
    for (std::size_t index = 0; index < values.size(); ++index)
        made.store(static_cast<std::int64_t>(index), values[index]);
    return made;
}

TEST(Measure, ulp) {
    EXPECT_EQ(ulp_of(1.0, DType::bf16), 0x1p-7);
    EXPECT_EQ(ulp_of(1.99, DType::bf16), 0x1p-7);
    EXPECT_EQ(ulp_of(-2.0, DType::f16), 0x1p-9);
    EXPECT_EQ(ulp_of(1.0, DType::f32), 0x1p-23);
    EXPECT_EQ(ulp_of(1.0, DType::f64), 0x1p-52);
    EXPECT_EQ(ulp_of(0.0, DType::f32), 0x1p-149) << "the smallest subnormal";
    EXPECT_EQ(ulp_of(1e-300, DType::f32), 0x1p-149);
    EXPECT_EQ(ulp_of(1e-7, DType::f16), 0x1p-24);
}

TEST(Measure, error) {
    const Error error = measure_error(tensor({3.0, 4.5, 0.0, 1.0}), tensor({3.0, 4.0, 0.0, 1.0}), DType::bf16);
    EXPECT_EQ(error.max_abs, 0.5);
    EXPECT_EQ(error.frobenius, 0.5);
    EXPECT_DOUBLE_EQ(error.relative_frobenius, 0.5 / std::sqrt(26.0));
    EXPECT_EQ(error.ulp, 16.0) << "ulp of 4 in bf16 is 2^-5";
    // Near-zero element: judged at the output's rms (about 2.83, ulp 2^-6), not at its own ulp.
    EXPECT_EQ(measure_error(tensor({4.0, 1e-9 + 0x1p-6}), tensor({4.0, 1e-9}), DType::bf16).ulp, 1.0);
}

TEST(Measure, flags_nan_and_infinity) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    const Error agree = measure_error(tensor({nan, inf, -FLT_MAX, 2.0}), tensor({nan, inf, -FLT_MAX, 2.0}), DType::f32);
    EXPECT_EQ(agree.max_abs, 0.0);
    EXPECT_EQ(agree.relative_frobenius, 0.0);
    for (const double wrong : {nan, inf}) {
        const Error error = measure_error(tensor({wrong, 1.0}), tensor({1.0, 1.0}), DType::f32);
        EXPECT_EQ(error.max_abs, inf);
        EXPECT_FALSE(within_budget(error, Error{}, size_of_values(tensor({1.0, 1.0})), {DType::f32, 1, 0.0}));
        EXPECT_EQ(closeness(tensor({wrong, 1.0}), tensor({1.0, 1.0}), 1e-2, 2e-2).beyond, 1);
    }
    EXPECT_EQ(size_of_values(tensor({-FLT_MAX, 2.0})).max_abs, 2.0) << "an empty row's flag is no size";
}

TEST(Measure, budget) {
    const Size size{1.0, 0.5, 100};
    const Budget budget{DType::bf16, 100, 0.0};
    Error plain;
    plain.max_abs = 0.1;
    plain.frobenius = 0.2;
    Error ours = plain;
    EXPECT_TRUE(within_budget(ours, plain, size, budget));
    ours.max_abs = 1.1 * 0.1 + 0x1p-7;
    EXPECT_TRUE(within_budget(ours, plain, size, budget));
    ours.max_abs *= 1.0001;
    EXPECT_FALSE(within_budget(ours, plain, size, budget));
    ours.max_abs = 0.0;
    ours.frobenius = (1.1 * 0.2 + 0x1p-7) * 1.0001;
    EXPECT_FALSE(within_budget(ours, plain, size, budget));
    // f32: the maximum is a single draw, the norm one of `rows`.
    ours.frobenius = (1.1 + 3.0 / 10) * 0.2;
    ours.max_abs = 6 * 0.1;
    EXPECT_TRUE(within_budget(ours, plain, size, {DType::f32, 100, 0.0, false, 100}));
    EXPECT_FALSE(within_budget(ours, plain, size, {DType::f32, 100, 0.0, false, 200}));
    ours.max_abs = 6 * 0.1 * 1.0001;
    EXPECT_FALSE(within_budget(ours, plain, size, {DType::f32, 100, 0.0, false, 100}));
    // 8-bit problems: f32 results are judged with the slack of bf16 ones.
    ours.frobenius = 0.0;
    ours.max_abs = 0.11 + 0x1p-7;
    EXPECT_TRUE(within_budget(ours, plain, size, {DType::f32, 100, 0.0, true}));
    ours.max_abs *= 1.0001;
    EXPECT_FALSE(within_budget(ours, plain, size, {DType::f32, 100, 0.0, true}));
    // Cancels to nothing: rounding of the terms is allowed, more is not.
    const Size nothing{0.0, 0.0, 100};
    ours.max_abs = 1e-9;
    ours.frobenius = 1e-8;
    EXPECT_FALSE(within_budget(ours, Error{}, nothing, {DType::f32, 100, 0.0}));
    EXPECT_TRUE(within_budget(ours, Error{}, nothing, {DType::f32, 100, 1e-8}));
    EXPECT_FALSE(within_budget(ours, Error{}, nothing, {DType::f32, 100, 1e-10}));
}

TEST(Measure, floors) {
    // All ones: rms 1. u·Dv·1·1 / keep_prob, times scale (2) or the distance, 4·√(longest sum).
    Problem problem;
    problem.dtype = DType::f32;
    problem.extents = {3, 2, 2, 5, 7, 11, 13, 0, 0, 0};
    problem.params.scale = -2.0;
    problem.params.keep_prob = 0.5;
    problem.query = tensor({1.0, 1.0});
    problem.key = tensor({3.0, 3.0});
    problem.value = tensor({1.0});
    problem.dy = tensor({1.0});
    problem.pse = tensor({1.0, 1.0});
    const double sum = 7 + 11 + 13;
    EXPECT_EQ(longest_sum_of(problem), 31);
    const double scores = 0x1p-24 * 13 / 0.5;
    EXPECT_DOUBLE_EQ(gradient_floor(problem, "dq"), 4.0 * scores * 6.0 * std::sqrt(sum));
    EXPECT_DOUBLE_EQ(gradient_floor(problem, "dk"), 4.0 * scores * 2.0 * std::sqrt(sum));
    EXPECT_EQ(gradient_floor(problem, "dv"), 0.0);
    EXPECT_EQ(gradient_floor(problem, "attention_out"), 0.0);
    EXPECT_DOUBLE_EQ(gradient_floor(problem, "dsink"), 4.0 * scores * std::sqrt(sum)) << "B·S1 = 15 is less";
    // pse of two elements stands for 3·2·5·7 pairs.
    EXPECT_EQ(longest_sum_of(problem, "dpse"), 105);
    EXPECT_DOUBLE_EQ(gradient_floor(problem, "dpse"), 4.0 * scores * 2.0 * std::sqrt(105.0));
    problem.params.pse_type = 0;
    EXPECT_DOUBLE_EQ(gradient_floor(problem, "dpse"), 4.0 * scores * std::sqrt(105.0));
    problem.params.pse_type = 2;
    problem.params.q_start_idx = 2;
    EXPECT_DOUBLE_EQ(gradient_floor(problem, "dpse"), 4.0 * scores * 9.0 * std::sqrt(105.0));
    problem.params.pse_type = 3;
    EXPECT_DOUBLE_EQ(gradient_floor(problem, "dpse"), 4.0 * scores * 3.0 * std::sqrt(105.0));
    // 8-bit data are worth their factor.
    problem.d_scale_k = tensor({0.25});
    EXPECT_DOUBLE_EQ(gradient_floor(problem, "dq"), 4.0 * scores * 1.5 * std::sqrt(sum));
}

TEST(Measure, closeness_is_the_operators_rule) {
    const Closeness close = closeness(tensor({1.0299, 1.0301, 0.02, 0.0201}), tensor({1.0, 1.0, 0.0, 0.0}), 1e-2, 2e-2);
    EXPECT_EQ(close.beyond, 2);
    EXPECT_NEAR(close.max_abs, 0.0301, 1e-12);
}

}  // namespace
}  // namespace fascore::cli
