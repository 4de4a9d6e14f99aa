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
        case DType::f8e4m3: return {3, -6};
        case DType::f8e5m2: return {2, -14};
        default: return {23, -126};
    }
}

double difference(double actual, double reference) noexcept {
    if (actual == reference || (std::isnan(actual) && std::isnan(reference))) return 0.0;
    const double distance = std::abs(actual - reference);
    return std::isnan(distance) ? infinity : distance;
}

bool counts(double reference) noexcept { return std::isfinite(reference) && std::abs(reference) < FLT_MAX; }

/// Of the values a tensor stands for: 8-bit data times their factors.
double rms_of(const HostTensor& tensor, const HostTensor& scale) {
    const double stored = size_of_values(tensor).rms;
    return scale.present() ? stored * size_of_values(scale).rms : stored;
}

double projection(const Problem& problem, const HostTensor& other, const HostTensor& scale) {
    return std::abs(problem.params.scale) * rms_of(other, scale);
}

double no_more(const Problem&) { return 0.0; }

double bias_factor(const Problem& problem) {
    const AttentionParams& params = problem.params;
    if (params.pse_type == 0) return 1.0;
    if (params.pse_type == 1) return std::abs(params.scale);
    const std::int64_t start = params.kv_start_idx - params.q_start_idx;
    const auto farthest =
        static_cast<double>(std::max(problem.extents.S1, problem.extents.S2)) + std::abs(static_cast<double>(start));
    return params.pse_type == 2 ? farthest : std::sqrt(farthest);
}

double bias_terms(const Problem& problem) {
    const Extents& e = problem.extents;
    const double pairs =
        static_cast<double>(e.B) * static_cast<double>(e.N1) * static_cast<double>(e.S1) * static_cast<double>(e.S2);
    return pairs / std::max(static_cast<double>(problem.pse.count()), 1.0);
}

double rows(const Problem& problem) {
    return static_cast<double>(problem.extents.B) * static_cast<double>(problem.extents.S1);
}

/// What an output multiplies dx with, and how many of them it sums.
struct Row {
    std::string_view output;
    double (*factor)(const Problem& problem);
    double (*terms)(const Problem& problem);
};

constexpr Row table[] = {
    {"dq", [](const Problem& p) { return projection(p, p.key, p.d_scale_k); }, no_more},
    {"dk", [](const Problem& p) { return projection(p, p.query, p.d_scale_q); }, no_more},
    {"dq_rope", [](const Problem& p) { return projection(p, p.key_rope, p.d_scale_k); }, no_more},
    {"dk_rope", [](const Problem& p) { return projection(p, p.query_rope, p.d_scale_q); }, no_more},
    {"dpse", bias_factor, bias_terms},
    {"dsink", [](const Problem&) { return 1.0; }, rows},
};

const Row* row_of(std::string_view output) noexcept {
    for (const Row& row : table) {
        if (row.output == output) return &row;
    }
    return nullptr;
}

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
    double slack =
        ulp_of(reference.max_abs, budget.from_8bit && budget.dtype == DType::f32 ? DType::bf16 : budget.dtype);
    double frobenius_slack = slack;
    if (budget.dtype == DType::f64) {
        slack = static_cast<double>(budget.longest_sum) * 0x1p-53 * reference.max_abs;
        frobenius_slack = slack * std::sqrt(static_cast<double>(reference.count));
    }
    const bool draws = budget.dtype == DType::f32 && !budget.from_8bit;
    const double factor = draws ? 6.0 : 1.1;
    const double frobenius_factor =
        draws ? 1.1 + 3.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(budget.rows, 1))) : 1.1;
    return ours.max_abs <= factor * plain.max_abs + slack &&
           ours.frobenius <= frobenius_factor * plain.frobenius + frobenius_slack;
}

std::int64_t longest_sum_of(const Problem& problem, std::string_view output) noexcept {
    const Extents& e = problem.extents;
    const std::int64_t G = e.N2 > 0 ? e.N1 / e.N2 : 1;
    const std::int64_t longest = std::max(e.S1 * G, e.S2) + e.D + e.Dr + e.Dv;
    const Row* row = row_of(output);
    return row == nullptr ? longest : std::max(longest, static_cast<std::int64_t>(row->terms(problem)));
}

double gradient_floor(const Problem& problem, std::string_view output) {
    const Row* row = row_of(output);
    if (row == nullptr) return 0.0;
    const double unit = problem.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
    const double scores = unit * static_cast<double>(problem.extents.Dv) * rms_of(problem.dy, problem.d_scale_dy) *
                          rms_of(problem.value, problem.d_scale_v) / problem.params.keep_prob;
    const double terms = std::max(row->terms(problem), static_cast<double>(longest_sum_of(problem)));
    return 4.0 * scores * row->factor(problem) * std::sqrt(terms);
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
