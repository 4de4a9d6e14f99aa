// SPDX-License-Identifier: Apache-2.0
//
// Between strided tensors and the reference's own matrices: rows of one head in, rows of one head out. Rope parts are
// more columns of the same row, 8-bit rows come multiplied by their scale, and nobody else knows either.
//
//   row i of query, D columns   [ query[i,0] … query[i,D−Dr−1] | query_rope[i,0] … query_rope[i,Dr−1] ] · scale[i/128]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "problem/problem.h"
#include "reference/matrix.h"

namespace fascore::reference {

inline constexpr std::int64_t rows_per_scale = 128;

inline std::byte* element(const Result& result, std::int64_t offset) {
    return result.data + offset * size_of(result.dtype);
}

/// result[offset] += value, in Real.
template <class Real>
void add_to(const Result& result, std::int64_t offset, Real value) {
    std::byte* at = element(result, offset);
    const Real sum = static_cast<Real>(load_scalar(at, result.dtype)) + value;
    store_scalar(at, result.dtype, static_cast<double>(sum));
}

template <class Real>
Real row_scale(const RowScale& scale, std::int64_t n, std::int64_t s) {
    if (scale.data == nullptr) return Real{1};
    const std::int64_t offset = n * scale.stride.n + s / rows_per_scale * scale.stride.s;
    return static_cast<Real>(load_scalar(scale.data + offset * size_of(DType::f32), DType::f32));
}

/// `columns` columns of `count` rows from `first`, into columns from `at`.
template <class Real>
void load_columns(const Operand& operand, std::int64_t n, std::int64_t first, std::int64_t count, std::int64_t columns,
                  std::int64_t at, Matrix<Real>& into) {
    if (operand.data == nullptr) return;
    const std::int64_t bytes = size_of(operand.dtype);
    const Strides& stride = operand.stride;
    for (std::int64_t r = 0; r < count; ++r) {
        const Real scale = row_scale<Real>(operand.scale, n, first + r);
        Real* row = into.row(r) + at;
        for (std::int64_t d = 0; d < columns; ++d) {
            const std::int64_t offset = n * stride.n + (first + r) * stride.s + d * stride.d;
            row[d] = static_cast<Real>(load_scalar(operand.data + offset * bytes, operand.dtype)) * scale;
        }
    }
}

/// Whole rows of a tensor without a rope part.
template <class Real>
void load(const Operand& operand, std::int64_t n, std::int64_t first, std::int64_t count, Matrix<Real>& into) {
    load_columns(operand, n, first, count, into.columns, 0, into);
}

/// Whole rows of query or key: its own columns, then the rope's.
template <class Real>
void load(const Operand& operand, const Operand& rope, std::int64_t rope_columns, std::int64_t n, std::int64_t first,
          std::int64_t count, Matrix<Real>& into) {
    const std::int64_t own = into.columns - rope_columns;
    load_columns(operand, n, first, count, own, 0, into);
    load_columns(rope, n, first, count, rope_columns, own, into);
}

template <class Real>
void store_row(const Result& result, std::int64_t n, std::int64_t s, const Real* row, std::int64_t columns) {
    if (!result.wanted) return;
    const Strides& stride = result.stride;
    for (std::int64_t d = 0; d < columns; ++d) {
        store_scalar(element(result, n * stride.n + s * stride.s + d * stride.d), result.dtype,
                     static_cast<double>(row[d]));
    }
}

/// A row of dq or dk: its own columns, then the rope's.
template <class Real>
void store_row(const Result& result, const Result& rope, std::int64_t rope_columns, std::int64_t n, std::int64_t s,
               const Real* row, std::int64_t columns) {
    store_row(result, n, s, row, columns - rope_columns);
    store_row(rope, n, s, row + (columns - rope_columns), rope_columns);
}

inline std::byte* element(const Statistic& statistic, std::int64_t n, std::int64_t i, std::int64_t copy) {
    const Strides& stride = statistic.stride;
    return statistic.data + (n * stride.n + i * stride.s + copy * stride.d) * size_of(statistic.dtype);
}

inline void store_statistic(const Statistic& statistic, std::int64_t n, std::int64_t i, double value) {
    if (!statistic.wanted) return;
    for (std::int64_t copy = 0; copy < statistic.copies; ++copy) {
        store_scalar(element(statistic, n, i, copy), statistic.dtype, value);
    }
}

template <class Real>
Real load_statistic(const Statistic& statistic, std::int64_t n, std::int64_t i) {
    return static_cast<Real>(load_scalar(element(statistic, n, i, 0), statistic.dtype));
}

/// Zeros in every row of a data tensor of the whole call: B batches of S rows, or T rows.
inline void zero(const Problem& problem, const Result& result, std::int64_t N, std::int64_t S, std::int64_t columns) {
    if (!result.wanted) return;
    const std::vector<double> zeros(static_cast<std::size_t>(std::max<std::int64_t>(columns, 0)), 0.0);
    Result here = result;
    for (std::int64_t b = 0; b < (problem.packed ? 1 : problem.B); ++b) {
        for (std::int64_t n = 0; n < N; ++n) {
            for (std::int64_t s = 0; s < S; ++s) store_row(here, n, s, zeros.data(), columns);
        }
        here.data += result.stride.b * size_of(result.dtype);
    }
}

inline void zero(const Problem& problem, const Statistic& statistic, std::int64_t N, std::int64_t S) {
    if (!statistic.wanted) return;
    Statistic here = statistic;
    for (std::int64_t b = 0; b < (problem.packed ? 1 : problem.B); ++b) {
        for (std::int64_t n = 0; n < N; ++n) {
            for (std::int64_t i = 0; i < S; ++i) store_statistic(here, n, i, 0.0);
        }
        here.data += statistic.stride.b * size_of(statistic.dtype);
    }
}

}  // namespace fascore::reference
