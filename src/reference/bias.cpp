// SPDX-License-Identifier: Apache-2.0
//
// The table of bias.h, a row each.
#include "reference/bias.h"

#include <cmath>
#include <limits>

namespace fascore::reference {

BiasTerm bias_term(const Batch& batch, const Strides& stride, std::int64_t n, std::int64_t i, std::int64_t j) {
    constexpr std::int64_t kept = 1024;  // rows of a compressed bias
    const Bias& bias = batch.bias;
    const auto at = [&](std::int64_t row, std::int64_t column) {
        return n * stride.n + row * stride.s + column * stride.d;
    };
    // In double: starts may be any integers, and lengths are far below 2^53.
    const auto distance = [&] {
        return std::fabs(static_cast<double>(j - i) +
                         (static_cast<double>(bias.k_start) - static_cast<double>(bias.q_start)));
    };
    switch (bias.kind) {
        case Bias::Kind::none: break;
        case Bias::Kind::tensor: return {at(i, j), bias.factor};
        case Bias::Kind::tail: {
            const std::int64_t threshold = batch.S1 - kept;
            if (i >= threshold) return {at(i - threshold, j), bias.factor};
            const std::int64_t m = i % kept;
            return {at(m, batch.S2 - (i - j) - (kept - m)), bias.factor};
        }
        case Bias::Kind::diagonal: {
            const std::int64_t p = i - j - (bias.longest - kept);
            return {p > 0 ? at(p, 0) : at(0, -p), bias.factor};
        }
        case Bias::Kind::slope: return {n * stride.n, -distance()};
        case Bias::Kind::root_slope: return {n * stride.n, -std::sqrt(distance())};
    }
    return {};
}

double pse_element(const Batch& batch, const BiasTerm& term) {
    return load_scalar(batch.bias.data + term.element * size_of(batch.bias.dtype), batch.bias.dtype);
}

bool hides(const Bias& bias, double element) {
    return !bias.slopes() && element == -std::numeric_limits<double>::infinity();
}

DpseExtents dpse_extents(const Problem& problem) {
    const Bias& bias = problem.bias;
    DpseExtents extents;
    if (bias.placement == Bias::Placement::by_pairs) {
        extents.d = 0;
        for (const Sequence& sequence : problem.sequences) extents.d += problem.N1 * sequence.S1 * sequence.S2;
        return extents;
    }
    if (bias.placement == Bias::Placement::by_keys) {
        extents.d = bias.elements;
        return extents;
    }
    extents.b = bias.over_batches ? 1 : problem.B;
    extents.n = bias.over_heads ? 1 : problem.N1;
    switch (bias.kind) {
        case Bias::Kind::none: return {0, 0, 0, 0};
        case Bias::Kind::tensor:
            extents.s = bias.over_rows ? 1 : problem.S1;
            extents.d = problem.S2;
            break;
        case Bias::Kind::tail:
            extents.s = compressed_rows;
            extents.d = problem.S2;
            break;
        case Bias::Kind::diagonal:
            extents.s = compressed_rows;
            extents.d = bias.longest;
            break;
        case Bias::Kind::slope:
        case Bias::Kind::root_slope: break;
    }
    return extents;
}

}  // namespace fascore::reference
