// SPDX-License-Identifier: Apache-2.0
//
// What an 8-bit call does to the two matrices that meet an 8-bit operand (all else stays in the type of the sums):
//
//   R   →  fp8(R)                                        no scale: R lies in [0, 1/keep_prob]
//   dx  →  fp8(dx · u) / u   per 128 × 128 block          u = F / max|dx| if max|dx| ≥ 1e-8, else the block is 0
//
//   with F the largest number of the type. fp8() rounds once to nearest, ties to even; beyond F it saturates.
//   A NaN has no part in max|dx| and stays a NaN.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "fascore/tensor.h"
#include "reference/matrix.h"

namespace fascore::reference {

inline constexpr std::int64_t quantised_side = 128;

/// The largest finite number.
[[nodiscard]] double largest_fp8(DType dtype);

/// The nearest number of the type, the largest beyond it.
[[nodiscard]] double to_fp8(double value, DType dtype);

/// Replaces the elements of `columns[r]` in each row r < count, block by block along the row; count ≤ 128 rows that
/// belong to one block of rows.
template <class Real>
void quantise_blocks(Matrix<Real>& matrix, std::int64_t count, const std::vector<std::vector<std::int64_t>>& columns,
                     DType dtype) {
    const std::int64_t blocks = (matrix.columns + quantised_side - 1) / quantised_side;
    std::vector<Real> largest(static_cast<std::size_t>(blocks), Real{0});
    const auto each = [&](auto visit) {
        for (std::int64_t r = 0; r < count; ++r) {
            for (const std::int64_t j : columns[static_cast<std::size_t>(r)]) {
                visit(matrix.row(r)[j], largest[static_cast<std::size_t>(j / quantised_side)]);
            }
        }
    };
    each([](const Real& value, Real& most) {
        if (std::fabs(value) > most) most = std::fabs(value);
    });
    each([&](Real& value, const Real& most) {
        const Real u = most >= Real{1e-8F} ? static_cast<Real>(largest_fp8(dtype)) / most : Real{0};
        const Real w = u == Real{0} ? Real{0} : Real{1} / u;
        value = static_cast<Real>(to_fp8(static_cast<double>(value * u), dtype)) * w;
    });
}

}  // namespace fascore::reference
