// SPDX-License-Identifier: Apache-2.0
//
// Cases: things that went wrong in fused attention somewhere, reduced to the smallest problem that shows them, each
// with an outcome that follows from the formulas. A test is named by its case's id (NUM numerics, MSK masks, SHP shapes
// and strides, VAR sequence lengths, GQA grouped heads, DET determinism, API interface, DST distributed, PRF cost) and
// runs on every instruction set of this machine.
//
//   EXACT    same bits, or exact zero       FP64   1e-12 of max |ref|       BUDGET  support/measure.h
//
// Where a case asks for exact equality of sums that may be formed in any order, its values are dyadic (multiples of 1/8
// of small size): every product and sum is then exact and order cannot matter.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "fascore/plan.h"
#include "support/scenario.h"
#include "support/targets.h"

namespace fascore::test {

class Cases : public ForEachIsa {
  protected:
    [[nodiscard]] static Options options(int threads = 1) { return {.isa = isa(), .threads = threads}; }
};

using enum DType;

/// A contiguous BNSD tensor.
[[nodiscard]] Tensor bnsd(DType dtype, std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d);

/// Multiples of 1/8 in [−2, 2]: sums of up to some thousand products are exact in f32.
Tensor& fill_dyadic(Tensor& tensor, Random& random);

/// Ones on the diagonal of (s, d): attention_out then is P itself, and shows which pairs are visible.
[[nodiscard]] Tensor identity_value(DType dtype, std::int64_t S2);

/// Visible pairs of a one-head problem as seen by the library: query 0, value the identity. Rows "1101" joined by '/'.
[[nodiscard]] std::string visible_pairs(const AttentionParams& params, const Tensor& mask, std::int64_t S1,
                                        std::int64_t S2, const Options& options);

/// A [S1, S2] mask (1 = hidden) from a predicate that says what is visible.
[[nodiscard]] Tensor mask_where(std::int64_t S1, std::int64_t S2,
                                const std::function<bool(std::int64_t, std::int64_t)>& visible, DType dtype = boolean);

/// Every element equals `value` exactly.
[[nodiscard]] ::testing::AssertionResult all_equal(const Tensor& tensor, double value);

/// One problem made of the rows of several scenarios' results: attention_out, dq etc. placed one behind another.
[[nodiscard]] Tensor stack_rows(const std::vector<Tensor>& parts);
[[nodiscard]] Tensor stack_heads(const std::vector<Tensor>& parts);

/// Element-wise sum as f64.
[[nodiscard]] Tensor sum_of(const std::vector<Tensor>& parts);

/// f64 copy of the values.
[[nodiscard]] Tensor as_f64(const Tensor& tensor);
/// Copy rounded to a dtype.
[[nodiscard]] Tensor as_dtype(const Tensor& tensor, DType dtype);

/// Both evaluations of the reference.
struct Truth {
    Results exact;
    Results plain;
};
[[nodiscard]] Truth truth_of(const Scenario& scenario);

/// I5: per kv head Σ query·dq (over the group) = Σ key·dk. The allowed difference is what the two budgets allow each
/// element to be off by, weighted with the element it is multiplied by.
void expect_i5(const Scenario& scenario, const Results& got, const Truth& truth);

/// I2: per kv head Σ_j dv_j = Σ over its query heads and rows of dy_i, within `tolerance` of Σ|dy|.
void expect_i2(const Scenario& scenario, const Results& got, double tolerance);

}  // namespace fascore::test
