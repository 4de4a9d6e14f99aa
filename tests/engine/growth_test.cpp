// SPDX-License-Identifier: Apache-2.0
//
// Long sums stay exact: dk sums over S1 query rows, dq and attention_out over S2 keys. With accumulators in f32 and one
// rounding at the end the relative error does not grow with the length; accumulating in the output's dtype would make
// it grow several times over from 512 to 8192.
#include <gtest/gtest.h>

#include <string>

#include "support/measure.h"
#include "support/scenario.h"
#include "support/targets.h"

namespace fascore::test {
namespace {

class Growth : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(isa, Growth, testing::ValuesIn(runnable_isas()), [](const auto& one) { return one.param; });

struct Errors {
    double attention_out;
    double dq;
    double dk;
    double dv;
};

Errors relative_errors(std::int64_t S1, std::int64_t S2, const std::string& isa) {
    const Case problem{.name = "growth", .S1 = S1, .S2 = S2, .D = 32, .Dv = 32, .dtype = DType::bf16, .f32_out = true};
    const Scenario scenario = make_scenario(problem);
    const Results got = run_both(scenario, {.isa = isa});
    const Results exact = reference(scenario);
    return {measure(got.attention_out, exact.attention_out).relative_frobenius,
            measure(got.dq, exact.dq).relative_frobenius, measure(got.dk, exact.dk).relative_frobenius,
            measure(got.dv, exact.dv).relative_frobenius};
}

// 1.1: the errors are root mean squares over 128 · 32 rounded elements, so their own scatter is 1/√8192, about 1 %; a
// sum whose error grew with the square root of the length would be off by √16 = 4.
constexpr double allowed = 1.1;

TEST_P(Growth, dk_and_dv_over_many_query_rows) {
    const Errors shorter = relative_errors(512, 128, GetParam());
    for (const std::int64_t S1 : {2048, 8192}) {
        const Errors longer = relative_errors(S1, 128, GetParam());
        EXPECT_LE(longer.dk, allowed * shorter.dk) << "S1 = " << S1;
        EXPECT_LE(longer.dv, allowed * shorter.dv) << "S1 = " << S1;
    }
}

TEST_P(Growth, dq_over_many_keys) {
    const Errors shorter = relative_errors(128, 512, GetParam());
    for (const std::int64_t S2 : {2048, 8192}) {
        EXPECT_LE(relative_errors(128, S2, GetParam()).dq, allowed * shorter.dq) << "S2 = " << S2;
    }
}

}  // namespace
}  // namespace fascore::test
