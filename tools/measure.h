// SPDX-License-Identifier: Apache-2.0
//
// How far a result is from the float64 reference, and what may be called right.
//
//   max abs         max_e |a(e) - r(e)|
//   relative Frob   sqrt(Σ(a - r)²) / sqrt(Σ r²)
//   ulp             max_e |a(e) - r(e)| / ulp(max(|r(e)|, rms r)), in units of the output's dtype
//
// The ulp is that of the element, but never finer than at the output's own rms: an element that cancels to nearly
// nothing is not owed more digits than the terms it is summed from have.
//
// Two NaNs agree, so do two equal infinities; a NaN or infinity against a number is an infinite error. The ±FLT_MAX of
// an empty row's statistics is a flag, not a number: equal flags agree and take no part in the norms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "host_tensor.h"
#include "problem.h"

namespace fascore::cli {

struct Error {
    double max_abs = 0;
    double frobenius = 0;  ///< absolute
    double relative_frobenius = 0;
    double ulp = 0;
};

/// What the reference itself looks like.
struct Size {
    double max_abs = 0;
    double rms = 0;
    std::int64_t count = 0;
};

/// Distance from x to the next number away from zero, in a dtype.
[[nodiscard]] double ulp_of(double x, DType dtype) noexcept;

[[nodiscard]] Size size_of_values(const HostTensor& reference);
[[nodiscard]] Error measure_error(const HostTensor& actual, const HostTensor& reference, DType ulp_dtype);

/// Both norms of our error must stay within  factor × plain + slack:
///
///   bf16, f16    1.1 and one ulp of max|ref|: one rounding of one element may fall the other way.
///   f32          the same slack; 6 for the maximum, 1.1 + 3/√rows for the Frobenius norm. Plain rounds as often as we
///                do, so its error is a draw from the distribution of ours. A largest error is a single draw, between
///                0.67 and 4 standard deviations; the norm is an average over rows, whose elements share much of their
///                error (docs/numerics.md).
///   f64          1.1 and n · 2^-53 · max|ref|, √count times it for the Frobenius norm: the reference is rounded as we
///                are; n terms of random sign summed in two orders differ by about √n · 2^-53 · √n · rms(term), which
///                is n · 2^-53 times the size of a term; n is the longest sum.
///   from 8 bits  f32 results: 1.1 and one ulp of bf16. P and dS are rounded to 8 bits on the way, and an f32 P beside
///                a tie may fall the other way than a float64 one. That moves one term by 2^-4 (e5m2: 2^-3) of itself;
///                the largest result is a sum of many, so a term is taken as 2^-4 of it.
///
/// A gradient that cancels to nothing (max|ref| below `floor`, the rounding of its own terms) is right when ours does.
struct Budget {
    DType dtype = DType::f32;  ///< of the output
    std::int64_t longest_sum = 1;
    double floor = 0;
    bool from_8bit = false;  ///< P and dS were rounded to 8 bits
    std::int64_t rows = 1;   ///< of the output
};
[[nodiscard]] bool within_budget(const Error& ours, const Error& plain, const Size& reference, const Budget& budget);

/// What an output of the gradient may hold where its exact value is 0: the rounding of its own terms. All but dv are
/// sums of dx = P·(dP − Δ), a difference of two sums of Dv products in f32 (f64), each off by about
/// u·Dv·rms(dy)·rms(value)/keep_prob; times what the output multiplies dx with, √n of them: four times that.
///   dq, dk, rope parts   scale·rms(key), scale·rms(query), …       n the longest sum of any output
///   dpse                 1, scale, or the largest distance         n that, or the pairs an element stands for
///   dsink                1                                         n that, or B·S1
/// dv has no difference that could cancel: 0.
[[nodiscard]] double gradient_floor(const Problem& problem, std::string_view output);

/// Terms in the longest sum of an output.
[[nodiscard]] std::int64_t longest_sum_of(const Problem& problem, std::string_view output = "") noexcept;

/// The acceptance test of the operator's own levels: |a - r| <= atol + rtol·|r| everywhere.
struct Closeness {
    double max_abs = 0;
    std::int64_t beyond = 0;  ///< elements that are not close
};
[[nodiscard]] Closeness closeness(const HostTensor& actual, const HostTensor& reference, double rtol, double atol);

}  // namespace fascore::cli
