// SPDX-License-Identifier: Apache-2.0
//
// Row-major matrices and the two loops all the time is spent in. Every sum is one chain in ascending order of its
// index: no reordering, no fusing. For speed the loops are turned so that the innermost one runs over independent sums
// (columns j of a row, columns d of a matrix), which a compiler may do several of at once without changing a bit; one
// operand of a product is therefore kept transposed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fascore::reference {

template <class Real>
struct Matrix {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::vector<Real> elements;

    Matrix() = default;
    Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), elements(static_cast<std::size_t>(r * c), Real{0}) {}
    Real* row(std::int64_t r) { return elements.data() + r * columns; }
    const Real* row(std::int64_t r) const { return elements.data() + r * columns; }
};

template <class Real>
Matrix<Real> transpose(const Matrix<Real>& matrix) {
    Matrix<Real> turned(matrix.columns, matrix.rows);
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
        for (std::int64_t c = 0; c < matrix.columns; ++c) turned.row(c)[r] = matrix.row(r)[c];
    }
    return turned;
}

/// to[c] += factor · from[c]
template <class Real>
void add(Real* __restrict to, Real factor, const Real* __restrict from, std::int64_t columns) {
    for (std::int64_t c = 0; c < columns; ++c) to[c] += factor * from[c];
}

/// The same four times, in the same order.
template <class Real>
void add4(Real* __restrict to, const Real* factor, const Real* __restrict from, std::int64_t row,
          std::int64_t columns) {
    const Real f0 = factor[0], f1 = factor[1], f2 = factor[2], f3 = factor[3];
    const Real* __restrict from1 = from + row;
    const Real* __restrict from2 = from1 + row;
    const Real* __restrict from3 = from2 + row;
    for (std::int64_t c = 0; c < columns; ++c) {
        to[c] = (((to[c] + f0 * from[c]) + f1 * from1[c]) + f2 * from2[c]) + f3 * from3[c];
    }
}

/// products[r][j] = Σ_d rows[r][d] · turned[d][j], for every j: a sum for a hidden pair is computed and never used.
template <class Real>
void dot_products(const Matrix<Real>& rows, std::int64_t count, const Matrix<Real>& turned, Matrix<Real>& products) {
    constexpr std::int64_t columns_at_once = 256;  // a strip of the transposed matrix that stays in cache
    const std::int64_t depth = turned.rows;
    for (std::int64_t j = 0; j < turned.columns; j += columns_at_once) {
        const std::int64_t width = std::min(columns_at_once, turned.columns - j);
        for (std::int64_t r = 0; r < count; ++r) {
            Real* sums = products.row(r) + j;
            std::fill(sums, sums + width, Real{0});
            std::int64_t d = 0;
            for (; d + 4 <= depth; d += 4) add4(sums, rows.row(r) + d, turned.row(d) + j, turned.columns, width);
            for (; d < depth; ++d) add(sums, rows.row(r)[d], turned.row(d) + j, width);
        }
    }
}

}  // namespace fascore::reference
