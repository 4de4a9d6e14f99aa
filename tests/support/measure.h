// SPDX-License-Identifier: Apache-2.0
//
// How far a result is from the truth, and how far it may be.
//
//   BUDGET   max |result − exact|  ≤  1.1 · max |plain − exact|  +  1 ulp of max |exact| in the result's dtype
//            exact: the float64 reference from the same, already rounded inputs
//            plain: every step of the formulas evaluated unfused in the inputs' dtype (reference.h, Evaluation::plain)
//   FP64     for f64 results:  max |result − exact|  ≤  1e-12 · max |exact|
//
// Why 1.1 and 1 ulp: a fused evaluation keeps f32 where the plain one rounds to the dtype, so it should be better; but
// both are maxima over random rounding errors, and the last rounding of the result is common to both. The factor covers
// the scatter of two maxima over the same elements, the ulp covers a plain result that happens to be exact.
// Why 1e-12: the sums here have at most some 10^3 terms, each with 2^-53 = 1.1e-16 relative error against the largest.
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
    double relative_frobenius = 0;  ///< ‖result − exact‖ / ‖exact‖
    double max_ulp = 0;             ///< max |result − exact| / ulp(exact) in the result's dtype
    double max_exact = 0;           ///< max |exact|
    bool finite = true;             ///< no NaN or Inf in the result where the exact value is finite
};

[[nodiscard]] ErrorMeasure measure(const Tensor& result, const Tensor& exact);

/// What BUDGET (FP64 for an f64 result) allows, see above; infinite when the plain evaluation itself has no finite
/// answer where the exact one is finite.
[[nodiscard]] double budget(const Tensor& result, const Tensor& exact, const Tensor& plain);

/// The verdict by that bound.
[[nodiscard]] ::testing::AssertionResult within_budget(const std::string& what, const Tensor& result,
                                                       const Tensor& exact, const Tensor& plain);

/// max |result − expected| ≤ tolerance, shapes equal, no NaN.
[[nodiscard]] ::testing::AssertionResult within(const std::string& what, const Tensor& result, const Tensor& expected,
                                                double tolerance);

/// 1e-12 of max |expected|.
[[nodiscard]] ::testing::AssertionResult within_fp64(const std::string& what, const Tensor& result,
                                                     const Tensor& expected);

[[nodiscard]] ::testing::AssertionResult equal_bits(const std::string& what, const Tensor& result,
                                                    const Tensor& expected);

}  // namespace fascore::test
