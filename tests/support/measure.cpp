// SPDX-License-Identifier: Apache-2.0
//
// Error measures and the verdicts made of them.
#include "support/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fascore::test {
namespace {

struct Format {
    int fraction_bits;
    int lowest_exponent;  ///< of the smallest normal number
};

Format format_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::f64:
            return {52, -1022};
        case DType::f32:
            return {23, -126};
        case DType::bf16:
            return {7, -126};
        case DType::f16:
            return {10, -14};
        default:
            return {0, 0};
    }
}

}  // namespace

double ulp(double value, DType dtype) noexcept {
    const Format format = format_of(dtype);
    int exponent = format.lowest_exponent;
    if (value != 0.0 && std::isfinite(value)) exponent = std::max(exponent, std::ilogb(value));
    return std::ldexp(1.0, exponent - format.fraction_bits);
}

double unit_roundoff(DType dtype) noexcept { return std::ldexp(0.5, -format_of(dtype).fraction_bits); }

ErrorMeasure measure(const Tensor& result, const Tensor& exact) {
    ErrorMeasure error;
    const std::vector<double> got = result.values();
    const std::vector<double> want = exact.values();
    double square_error = 0.0;
    double square_exact = 0.0;
    for (std::size_t at = 0; at < std::min(got.size(), want.size()); ++at) {
        const double difference = std::abs(got[at] - want[at]);
        if (!std::isfinite(difference)) {
            error.finite = error.finite && !std::isfinite(want[at]);
            continue;
        }
        error.max_abs = std::max(error.max_abs, difference);
        error.max_exact = std::max(error.max_exact, std::abs(want[at]));
        error.max_ulp = std::max(error.max_ulp, difference / ulp(want[at], result.dtype()));
        square_error += difference * difference;
        square_exact += want[at] * want[at];
    }
    error.relative_frobenius = square_exact > 0.0 ? std::sqrt(square_error / square_exact) : std::sqrt(square_error);
    return error;
}

double budget(const Tensor& result, const Tensor& exact, const Tensor& plain) {
    if (result.dtype() == DType::f64) return 1e-12 * exact.max_abs();
    const ErrorMeasure theirs = measure(plain, exact);
    if (!theirs.finite) return std::numeric_limits<double>::infinity();
    return 1.1 * theirs.max_abs + ulp(theirs.max_exact, result.dtype());
}

::testing::AssertionResult within_budget(const std::string& what, const Tensor& result, const Tensor& exact,
                                         const Tensor& plain) {
    if (!(result.extents() == exact.extents())) return ::testing::AssertionFailure() << what << ": shapes differ";
    const ErrorMeasure ours = measure(result, exact);
    const double allowed = budget(result, exact, plain);
    if (ours.finite && ours.max_abs <= allowed) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << what << ": max error " << ours.max_abs << ", allowed " << allowed
                                         << " (plain evaluation " << measure(plain, exact).max_abs << ", max |exact| "
                                         << ours.max_exact << (ours.finite ? "" : ", NOT FINITE") << ")";
}

::testing::AssertionResult within(const std::string& what, const Tensor& result, const Tensor& expected,
                                  double tolerance) {
    if (!(result.extents() == expected.extents())) return ::testing::AssertionFailure() << what << ": shapes differ";
    const ErrorMeasure error = measure(result, expected);
    if (error.finite && error.max_abs <= tolerance) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << what << ": max error " << error.max_abs << ", allowed " << tolerance
                                         << " (max |expected| " << error.max_exact
                                         << (error.finite ? "" : ", NOT FINITE") << ")";
}

::testing::AssertionResult within_fp64(const std::string& what, const Tensor& result, const Tensor& expected) {
    return within(what, result, expected, 1e-12 * expected.max_abs());
}

::testing::AssertionResult equal_bits(const std::string& what, const Tensor& result, const Tensor& expected) {
    const std::string difference = first_difference(result, expected);
    if (difference.empty()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << what << ": " << difference;
}

}  // namespace fascore::test
