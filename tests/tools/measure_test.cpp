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
    // Cancels to nothing: rounding of the terms is allowed, more is not.
    const Size nothing{0.0, 0.0, 100};
    ours.max_abs = 1e-9;
    ours.frobenius = 1e-8;
    EXPECT_FALSE(within_budget(ours, Error{}, nothing, {DType::f32, 100, 0.0}));
    EXPECT_TRUE(within_budget(ours, Error{}, nothing, {DType::f32, 100, 1e-8}));
    EXPECT_FALSE(within_budget(ours, Error{}, nothing, {DType::f32, 100, 1e-10}));
}

TEST(Measure, closeness_is_the_operators_rule) {
    const Closeness close = closeness(tensor({1.0299, 1.0301, 0.02, 0.0201}), tensor({1.0, 1.0, 0.0, 0.0}), 1e-2, 2e-2);
    EXPECT_EQ(close.beyond, 2);
    EXPECT_NEAR(close.max_abs, 0.0301, 1e-12);
}

}  // namespace
}  // namespace fascore::cli
