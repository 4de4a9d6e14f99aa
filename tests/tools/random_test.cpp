// SPDX-License-Identifier: Apache-2.0
//
// Drawn data: the values are fixed for ever (a published seed must mean the same numbers on every machine) and they are
// normal.
#include "random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace fascore::cli {
namespace {

TEST(Random, agrees_with_the_formula_in_long_double) {
    // random.h's formula with the C library's functions in more digits. Bound: the series leave out less than 6e-15 in
    // the logarithm and 2e-14 in the circle; r ≤ 8.6, so a value is off by at most 8.6·2e-14 + 6e-15·r'(…) < 1e-12.
    const auto mix = [](std::uint64_t w) {
        w = (w ^ (w >> 30)) * 0xBF58476D1CE4E5B9U;
        w = (w ^ (w >> 27)) * 0x94D049BB133111EBU;
        return w ^ (w >> 31);
    };
    constexpr std::uint64_t gamma = 0x9E3779B97F4A7C15U;
    for (std::uint64_t seed : {0U, 1U, 12345U}) {
        for (std::uint64_t stream = 0; stream < 3; ++stream) {
            const std::uint64_t start = mix(seed + (stream + 1) * gamma);
            const NormalStream values(seed, stream);
            for (std::uint64_t pair = 0; pair < 20000; ++pair) {
                const auto word = [&](std::uint64_t index) { return mix(start + (index + 1) * gamma) >> 11; };
                const long double v = std::ldexp(static_cast<long double>(word(2 * pair) + 1), -53);
                const long double u = std::ldexp(static_cast<long double>(word(2 * pair + 1)), -53);
                const long double r = std::sqrt(-2.0L * std::log(v));
                const long double angle = 2.0L * 3.14159265358979323846264338L * u;
                ASSERT_NEAR(values.at(2 * pair), static_cast<double>(r * std::cos(angle)), 1e-12);
                ASSERT_NEAR(values.at(2 * pair + 1), static_cast<double>(r * std::sin(angle)), 1e-12);
            }
        }
    }
}

TEST(Random, moments_are_those_of_a_normal) {
    // n values: mean within 5/√n, variance within 5·√(2/n), fourth moment within 5·√(96/n): five standard deviations.
    constexpr int n = 200000;
    const NormalStream values(7, 0);
    double sum = 0, squares = 0, fourths = 0;
    for (std::uint64_t index = 0; index < n; ++index) {
        const double x = values.at(index);
        sum += x;
        squares += x * x;
        fourths += x * x * x * x;
    }
    EXPECT_NEAR(sum / n, 0.0, 5.0 / std::sqrt(n));
    EXPECT_NEAR(squares / n, 1.0, 5.0 * std::sqrt(2.0 / n));
    EXPECT_NEAR(fourths / n, 3.0, 5.0 * std::sqrt(96.0 / n));
}

}  // namespace
}  // namespace fascore::cli
