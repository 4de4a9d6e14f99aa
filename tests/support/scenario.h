// SPDX-License-Identifier: Apache-2.0
//
// A problem as a row of a table, and everything a test does with it: make the tensors, run forward and gradient on one
// instruction set with so many threads, run the two references on the same inputs.
//
//   Case      what (shape, dtype, layout, masks, values): pure data
//   Scenario  Case + its tensors
//   Results   the tensors that come out; a gradient may also be fed with Results made by hand
//
// Every run gives the library a workspace of exactly the size it asked for, filled with 0xFF (NaN in every dtype),
// starting at an odd address, with guard bytes behind it; outputs start as NaN. Both are checked after the run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fascore/attention.h"
#include "fascore/reference.h"
#include "support/measure.h"
#include "support/tensor.h"

namespace fascore::test {

/// Which of its shapes the mask tensor has; compressed is [2048, 2048].
enum class MaskShape : std::uint8_t { none, bnss, b1ss, one1ss, ss, compressed };

/// What an uncompressed mask hides.
enum class MaskContent : std::uint8_t { random, random_empty_rows, everything, nothing, future };

struct Case {
    std::string name;
    std::int64_t B = 1;
    std::int64_t N1 = 1;
    std::int64_t N2 = 1;
    std::int64_t S1 = 16;
    std::int64_t S2 = 16;
    std::int64_t D = 16;
    std::int64_t Dv = 16;
    DType dtype = DType::f32;
    Layout layout = Layout::BNSD;
    std::optional<double> scale{};  ///< absent: 1/√D

    MaskShape mask = MaskShape::none;
    MaskContent mask_content = MaskContent::random;
    DType mask_dtype = DType::boolean;
    int sparse_mode = 0;
    std::int64_t pre_tokens = unlimited_tokens;
    std::int64_t next_tokens = unlimited_tokens;
    MaskRule rule{};

    double query_size = 1.0;  ///< standard deviations
    double key_size = 1.0;
    double value_size = 1.0;
    double dy_size = 1.0;

    int statistic_copies = 8;                       ///< 8, 1, or 0 for rank 3
    bool f32_out = false;                           ///< attention_out in f32 whatever the inputs are
    Arrangement arrangement = Arrangement::packed;  ///< of every tensor, mask included
    bool broadcast_heads = false;                   ///< key and value: one head's memory for all heads (stride 0)
};

[[nodiscard]] std::string describe(const Case& problem);
/// The line that repeats a problem without mask tensor with the command-line tool; the data too when they were drawn as
/// the tool draws them (tests/property does).
[[nodiscard]] std::string command_line(const Case& problem, std::uint64_t seed);

struct Scenario {
    Case problem;
    AttentionParams params;
    Tensor query;
    Tensor key;
    Tensor value;
    Tensor dy;
    Tensor mask;
};

/// Tensors filled with data that depends on the seed alone, in every layout and arrangement alike.
[[nodiscard]] Scenario make_scenario(const Case& problem, std::uint64_t seed);
/// The seed is made from the case's name.
[[nodiscard]] Scenario make_scenario(const Case& problem);
/// Scenario around tensors made by hand; params.layout and head_num are taken from the query's form.
[[nodiscard]] Scenario make_scenario(Tensor query, Tensor key, Tensor value, Tensor dy, double scale);

/// Sets a mask rule that needs no tensor.
inline constexpr MaskRule causal_top_left{MaskRule::Kind::causal_top_left};
inline constexpr MaskRule causal_bottom_right{MaskRule::Kind::causal_bottom_right};
[[nodiscard]] constexpr MaskRule window(std::int64_t left, std::int64_t right) {
    return {MaskRule::Kind::window, left, right};
}

struct Results {
    Tensor attention_out;
    Tensor softmax_max;
    Tensor softmax_sum;
    Tensor dq;
    Tensor dk;
    Tensor dv;
};

/// How a run is done.
struct Options {
    std::string isa{};  ///< empty: what the library chooses
    int threads = 1;
    const CancelToken* cancel = nullptr;
    ProgressCallback progress{};
    bool want_dq = true;
    bool want_dk = true;
    bool want_dv = true;
    std::byte workspace_fill{0xFF};  ///< what the workspace holds before the call
    /// Of the outputs; absent: as the case says.
    std::optional<Arrangement> outputs{};
};

/// Views for direct calls.
[[nodiscard]] ForwardInputs forward_inputs(const Scenario& scenario);
[[nodiscard]] BackwardInputs backward_inputs(const Scenario& scenario, const Results& results);
[[nodiscard]] ForwardOutputs forward_outputs(Results& results);
[[nodiscard]] BackwardOutputs backward_outputs(Results& results);
[[nodiscard]] Execution execution_of(const Options& run);

/// Poisoned output tensors of the right shapes. `f64` makes those the reference writes.
[[nodiscard]] Results make_outputs(const Scenario& scenario, const Options& run = {}, bool f64 = false);

/// Calls into tensors that exist already (made by make_outputs or by hand).
Status forward(const Scenario& scenario, Results& results, const Options& run = {});
Status backward(const Scenario& scenario, Results& results, const Options& run = {});

/// Both, with fresh outputs; adds a test failure when a call is refused, writes outside its outputs or its workspace.
[[nodiscard]] Results run_both(const Scenario& scenario, const Options& run = {});
[[nodiscard]] Results run_forward(const Scenario& scenario, const Options& run = {});
/// The gradient from statistics and attention_out that are given.
[[nodiscard]] Results run_backward(const Scenario& scenario, const Results& given, const Options& run = {});

/// Forward and gradient of the reference (f64 tensors).
[[nodiscard]] Results reference(const Scenario& scenario, Evaluation evaluation = Evaluation::exact);

/// What rounding alone may leave of outputs that are small because something cancels, and what f64 results may be off
/// by. u is the unit roundoff of the sums, E the largest error of a score (below).
///   f64      relatively 4·E: P carries its score's error as a factor, dS that of P and of dP − Δ
///   dq, dk   dS = P·(dP − Δ), where dP and Δ are sums of Dv products, each off by (Dv + 2)·u·Σ|dy·v|. Where the whole
///            exact gradient is smaller than the resulting |scale|·P·2·(Dv + 2)·u·Σ|dy·v|·|k| (or |q|, over the rows of
///            the group that see the key), it is 0 but for the order of summation, and may be that large.
struct Floors {
    double relative_f64 = 0;
    double dq = 0;
    double dk = 0;
};
[[nodiscard]] Floors floors_of(const Scenario& scenario);

/// The four outputs against BUDGET with these floors, the statistics against their derived bound; one failure each.
void expect_budget(const Scenario& scenario, const Results& got, const Results& exact, const Results& plain);

/// softmax_max and softmax_sum. With u the unit roundoff of the accumulation (2^-24, f64: 2^-53) and
///   E = (D + 4)·u·|scale|·|q_i|·max_j |k_j|      the error of one score: D roundings in any order of summation
///   (Cauchy-
///                                               Schwarz bounds Σ|q_d k_jd|), the scaling and a change of base
/// max may be off by E; sum, as Σ exp(x − max), relatively by 2·E + (S2 + 8)·u (each exponent is off by at most 2·E,
/// each exp by 2 ulp, the sum by S2 roundings). Rows that see no key must hold exactly ∓FLT_MAX, or 0 when S2 = 0.
[[nodiscard]] ::testing::AssertionResult statistics_right(const Scenario& scenario, const Results& got,
                                                          const Results& exact);

/// Bits of all six outputs.
void expect_same_bits(const Results& got, const Results& expected);
void expect_same_gradients(const Results& got, const Results& expected);

}  // namespace fascore::test
