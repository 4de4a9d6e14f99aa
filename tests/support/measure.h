// SPDX-License-Identifier: Apache-2.0
//
// How far a result is from the truth, and how far it may be.
//
//   BUDGET   bf16, f16   max |result − exact|  ≤  1.1 · max |plain − exact|  +  1 ulp of max |exact|
//            f32         rms (result − exact)  ≤  (1.1 + 3/√rows) · rms (plain − exact)  +  1 rounding of rms exact
//                        and max |result − exact|  ≤  6 · max |plain − exact|  +  1 ulp of max |exact|
//            exact: the float64 reference from the same, already rounded inputs
//            plain: every step of the formulas evaluated unfused in the inputs' dtype (reference.h, Evaluation::plain)
//   FP64     for f64 results:  max |result − exact|  ≤  1e-12 · max |exact|
//
// Why 1.1 and 1 ulp: the last rounding of the result is common to both evaluations; the factor covers the scatter of
// two errors of one size, the ulp a plain result that happens to be exact. Why f32 is judged by its rms: in 16 bits a
// fused evaluation keeps f32 where the plain one rounds, and its errors are a third as large. In f32 both round as
// often, so both errors are draws from one distribution. The rms over all elements tells whether ours is larger; the
// maximum does not: it sits in the row with the largest scores, whose elements share one error (that of the row's
// exponent), so it is a single draw. A draw |N(0, σ)| lies between 0.67 σ (median) and 4 σ (1 in 16000), hence the 6
// for the maximum, which is there to catch a wrong element. One rounding has rms ulp/√12. Elements of one row share
// much of their error, so rows count as the independent draws: an rms of N draws has a relative standard deviation of
// 1/√(2N), the ratio of two 1/√N, and three of those are allowed on top of 1.1. Why 1e-12: the sums here have at most
// some 10^3 terms, each with 2^-53 = 1.1e-16 relative error against the largest.
//
// Some results are differences that cancel completely (a row that sees one key has no gradient for its score). What is
// left depends on the order of two sums; `floor` allows it where a caller can derive it (scenario.h does).
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "support/tensor.h"

namespace fascore::test {

/// Distance from |value| to the next larger number of the dtype (the smallest subnormal near 0).
[[nodiscard]] double ulp(double value, DType dtype) noexcept;

/// Half an ulp of 1: the relative error of one rounding.
[[nodiscard]] double unit_roundoff(DType dtype) noexcept;

struct ErrorMeasure {
    double max_abs = 0;             ///< max |result − exact|
    double rms = 0;                 ///< root of the mean square of result − exact
    double rms_exact = 0;           ///< and of the exact values
    double relative_frobenius = 0;  ///< ‖result − exact‖ / ‖exact‖
    double max_ulp = 0;             ///< max |result − exact| / ulp(exact) in the result's dtype
    double max_exact = 0;           ///< max |exact|
    bool finite = true;             ///< no NaN or Inf in the result where the exact value is finite
};

[[nodiscard]] ErrorMeasure measure(const Tensor& result, const Tensor& exact);

/// What BUDGET (FP64 for an f64 result) allows as a maximum, see above; infinite when the plain evaluation itself has
/// no finite answer where the exact one is finite.
[[nodiscard]] double budget(const Tensor& result, const Tensor& exact, const Tensor& plain, double floor = 0.0);

/// The whole verdict.
[[nodiscard]] ::testing::AssertionResult within_budget(const std::string& what, const Tensor& result,
                                                       const Tensor& exact, const Tensor& plain, double floor = 0.0);

/// max |result − expected| ≤ tolerance, shapes equal, no NaN.
[[nodiscard]] ::testing::AssertionResult within(const std::string& what, const Tensor& result, const Tensor& expected,
                                                double tolerance);

/// 1e-12 of max |expected|.
[[nodiscard]] ::testing::AssertionResult within_fp64(const std::string& what, const Tensor& result,
                                                     const Tensor& expected);

[[nodiscard]] ::testing::AssertionResult equal_bits(const std::string& what, const Tensor& result,
                                                    const Tensor& expected);

}  // namespace fascore::test
