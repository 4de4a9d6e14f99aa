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
        case DType::f64: return {52, -1022};
        case DType::f32: return {23, -126};
        case DType::bf16: return {7, -126};
        case DType::f16: return {10, -14};
        default: return {0, 0};
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
    const auto elements = static_cast<double>(std::max<std::size_t>(got.size(), 1));
    error.rms = std::sqrt(square_error / elements);
    error.rms_exact = std::sqrt(square_exact / elements);
    error.relative_frobenius = square_exact > 0.0 ? std::sqrt(square_error / square_exact) : std::sqrt(square_error);
    return error;
}

double budget(const Tensor& result, const Tensor& exact, const Tensor& plain, double floor) {
    if (result.dtype() == DType::f64) return std::max(1e-12 * exact.max_abs(), floor);
    const ErrorMeasure theirs = measure(plain, exact);
    if (!theirs.finite) return std::numeric_limits<double>::infinity();
    const double factor = result.dtype() == DType::f32 ? 6.0 : 1.1;
    return std::max(factor * theirs.max_abs + ulp(theirs.max_exact, result.dtype()), floor);
}

::testing::AssertionResult within_budget(const std::string& what, const Tensor& result, const Tensor& exact,
                                         const Tensor& plain, double floor) {
    if (!(result.extents() == exact.extents())) return ::testing::AssertionFailure() << what << ": shapes differ";
    const ErrorMeasure ours = measure(result, exact);
    const ErrorMeasure theirs = measure(plain, exact);
    const double allowed = budget(result, exact, plain, floor);
    if (!ours.finite || ours.max_abs > allowed) {
        return ::testing::AssertionFailure()
               << what << ": max error " << ours.max_abs << ", allowed " << allowed << " (plain evaluation "
               << theirs.max_abs << ", max |exact| " << ours.max_exact << (ours.finite ? "" : ", NOT FINITE") << ")";
    }
    if (result.dtype() != DType::f32 || !theirs.finite) return ::testing::AssertionSuccess();
    const Extents& extents = result.extents();
    const auto rows = static_cast<double>(std::max<std::int64_t>(extents.b * extents.n * extents.s, 1));
    const double allowed_rms =
        std::max((1.1 + 3.0 / std::sqrt(rows)) * theirs.rms + ulp(ours.rms_exact, DType::f32) / std::sqrt(12.0), floor);
    if (ours.rms <= allowed_rms) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << what << ": rms error " << ours.rms << ", allowed " << allowed_rms
                                         << " (plain evaluation " << theirs.rms << ", rms exact " << ours.rms_exact
                                         << ")";
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
