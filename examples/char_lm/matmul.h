// SPDX-License-Identifier: Apache-2.0
//
// C[M×N] (+)= A[M×K] · B[K×N] for the dense layers of this example, f32 and f64.
//
// This is the example's own product, not the library's: fascore computes attention and nothing else. How it works, and
// how fast, stands at the top of matmul.cpp.
#pragma once

#include <cstdint>

#include "common.h"

namespace char_lm {

/// A matrix that is only read: element (i, j) lies at data[i·row_stride + j·column_stride].
template <class Real>
struct Matrix {
    const Real* data = nullptr;
    Index rows = 0;
    Index columns = 0;
    Index row_stride = 0;
    Index column_stride = 1;

    Matrix(const Real* where, Index row_count, Index column_count)
        : data(where), rows(row_count), columns(column_count), row_stride(column_count) {}

    /// The same memory with rows and columns exchanged.
    [[nodiscard]] Matrix transposed() const {
        Matrix other(data, columns, rows);
        other.row_stride = column_stride;
        other.column_stride = row_stride;
        return other;
    }
};

/// replace: C = A·B and C is never read. add: C += A·B.
enum class Write : std::uint8_t { replace, add };

/// C is row-major [A.rows, B.columns] and overlaps neither A nor B.
template <class Real>
void matmul(const Matrix<Real>& A, const Matrix<Real>& B, Real* C, Write write);

/// The instruction set matmul uses on this machine: "avx512", "avx2" or "portable".
const char* matmul_isa();

}  // namespace char_lm
