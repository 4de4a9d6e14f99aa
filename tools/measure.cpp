// SPDX-License-Identifier: Apache-2.0
//
// Error measures and budgets: definitions in measure.h.
#include "measure.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

namespace fascore::cli {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Format {
    int fraction_bits;
    int min_exponent;
};

Format format_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::f64: return {52, -1022};
        case DType::bf16: return {7, -126};
        case DType::f16: return {10, -14};
        default: return {23, -126};
    }
}

double difference(double actual, double reference) noexcept {
    if (actual == reference || (std::isnan(actual) && std::isnan(reference))) return 0.0;
    const double distance = std::abs(actual - reference);
    return std::isnan(distance) ? infinity : distance;
}

bool counts(double reference) noexcept { return std::isfinite(reference) && std::abs(reference) < FLT_MAX; }

double rms_of(const HostTensor& tensor) { return size_of_values(tensor).rms; }

}  // namespace

double ulp_of(double x, DType dtype) noexcept {
    const Format format = format_of(dtype);
    const int exponent = x == 0.0 ? format.min_exponent : std::max(std::ilogb(x), format.min_exponent);
    return std::ldexp(1.0, exponent - format.fraction_bits);
}

Size size_of_values(const HostTensor& reference) {
    Size size;
    double squares = 0.0;
    const std::int64_t count = reference.count();
    for (std::int64_t index = 0; index < count; ++index) {
        const double r = reference.load(index);
        if (!counts(r)) continue;
        size.max_abs = std::max(size.max_abs, std::abs(r));
        squares += r * r;
        ++size.count;
    }
    size.rms = size.count > 0 ? std::sqrt(squares / static_cast<double>(size.count)) : 0.0;
    return size;
}

Error measure_error(const HostTensor& actual, const HostTensor& reference, DType ulp_dtype) {
    const Size size = size_of_values(reference);
    Error error;
    double squares = 0.0;
    const std::int64_t count = reference.count();
    for (std::int64_t index = 0; index < count; ++index) {
        const double r = reference.load(index);
        const double distance = difference(actual.load(index), r);
        if (distance == 0.0) continue;
        error.max_abs = std::max(error.max_abs, distance);
        squares += distance * distance;
        const double magnitude = std::isfinite(r) ? std::max(std::abs(r), size.rms) : size.rms;
        error.ulp = std::max(error.ulp, distance / ulp_of(magnitude, ulp_dtype));
    }
    error.frobenius = std::sqrt(squares);
    const double norm = size.rms * std::sqrt(static_cast<double>(size.count));
    error.relative_frobenius = error.frobenius == 0.0 ? 0.0 : error.frobenius / norm;
    return error;
}

bool within_budget(const Error& ours, const Error& plain, const Size& reference, const Budget& budget) {
    if (reference.max_abs <= budget.floor && ours.max_abs <= budget.floor) return true;
    double slack = ulp_of(reference.max_abs, budget.dtype);
    double frobenius_slack = slack;
    if (budget.dtype == DType::f64) {
        slack = static_cast<double>(budget.longest_sum) * 0x1p-53 * reference.max_abs;
        frobenius_slack = slack * std::sqrt(static_cast<double>(reference.count));
    }
    return ours.max_abs <= 1.1 * plain.max_abs + slack && ours.frobenius <= 1.1 * plain.frobenius + frobenius_slack;
}

std::int64_t longest_sum_of(const Problem& problem) noexcept {
    const Extents& e = problem.extents;
    const std::int64_t G = e.N2 > 0 ? e.N1 / e.N2 : 1;
    return std::max(e.S1 * G, e.S2) + e.D + e.Dv;
}

double gradient_floor(const Problem& problem) {
    const double unit = problem.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
    const Extents& e = problem.extents;
    const double scores = unit * static_cast<double>(e.Dv) * rms_of(problem.dy) * rms_of(problem.value);
    const double factor = std::abs(problem.params.scale) * std::max(rms_of(problem.query), rms_of(problem.key));
    return 4.0 * scores * factor * std::sqrt(static_cast<double>(longest_sum_of(problem)));
}

Closeness closeness(const HostTensor& actual, const HostTensor& reference, double rtol, double atol) {
    Closeness result;
    const std::int64_t count = reference.count();
    for (std::int64_t index = 0; index < count; ++index) {
        const double r = reference.load(index);
        const double distance = difference(actual.load(index), r);
        result.max_abs = std::max(result.max_abs, distance);
        if (!(distance <= atol + rtol * std::abs(r))) ++result.beyond;
    }
    return result;
}

}  // namespace fascore::cli
