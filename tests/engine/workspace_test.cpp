// SPDX-License-Identifier: Apache-2.0
//
// The contract around a call: how much workspace, what happens with too little, which outputs may be absent, statistics
// taken as given, and which kernels run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <vector>

#include "fascore/plan.h"
#include "support/scenario.h"
#include "support/targets.h"

namespace fascore::test {
namespace {

using enum DType;

struct Bytes {
    std::size_t forward = 0;
    std::size_t backward = 0;
};

/// Views of the case's shapes over no memory: a query must not look at data.
struct Shapes {
    AttentionParams params;
    ForwardInputs forward_in;
    ForwardOutputs forward_out;
    BackwardInputs backward_in;
    BackwardOutputs backward_out;
};

Shapes shapes_of(DType dtype, std::int64_t B, std::int64_t N1, std::int64_t N2, std::int64_t S, std::int64_t D) {
    Shapes s;
    const auto wide = [&](std::int64_t heads) { return TensorView(nullptr, dtype, {B, heads, S, D}); };
    const TensorView statistic(nullptr, dtype == f64 ? f64 : f32, {B, N1, S, 8});
    s.forward_in.query = s.backward_in.query = wide(N1);
    s.forward_in.key = s.backward_in.key = wide(N2);
    s.forward_in.value = s.backward_in.value = wide(N2);
    s.backward_in.dy = s.backward_in.attention_out = wide(N1);
    s.backward_in.softmax_max = s.backward_in.softmax_sum = statistic;
    s.forward_out = {wide(N1), statistic, statistic};
    s.backward_out = {wide(N1), wide(N2), wide(N2)};
    return s;
}

Bytes bytes_of(const Shapes& s, const Execution& execution) {
    Bytes bytes;
    Status status = forward_workspace_bytes(s.params, s.forward_in, s.forward_out, execution, bytes.forward);
    EXPECT_TRUE(status.ok()) << status.message();
    status = backward_workspace_bytes(s.params, s.backward_in, s.backward_out, execution, bytes.backward);
    EXPECT_TRUE(status.ok()) << status.message();
    return bytes;
}

class Workspace : public ForEachIsa {
  protected:
    [[nodiscard]] static Execution execution(int threads = 1) {
        Execution execution;
        execution.threads = threads;
        execution.isa = isa();
        return execution;
    }
};

TEST_P(Workspace, grows_linearly_with_the_length) {
    for (const MaskRule rule : {MaskRule{}, causal_top_left, window(100, 0)}) {
        for (const DType dtype : {f64, f32, bf16, f16}) {
            std::vector<Bytes> bytes;
            for (const std::int64_t S : {1 << 14, 1 << 15, 1 << 16, 1 << 17}) {
                Shapes shapes = shapes_of(dtype, 1, 1, 1, S, 64);
                shapes.params.rule = rule;
                bytes.push_back(bytes_of(shapes, execution()));
            }
            // Linear: each doubling adds twice what the one before added. A quadratic term of one byte a pair would add
            // four times as much (2^34 bytes at the end). 5 % is for rounding up to whole tiles and cache lines.
            for (std::size_t at = 2; at < bytes.size(); ++at) {
                const auto growth = [&](auto member) {
                    const auto last = static_cast<double>(bytes[at].*member - bytes[at - 1].*member);
                    const auto before = static_cast<double>(bytes[at - 1].*member - bytes[at - 2].*member);
                    EXPECT_LE(last, 2.1 * before + 65536) << name(dtype);
                };
                growth(&Bytes::forward);
                growth(&Bytes::backward);
            }
            // O(S·D) with a constant one can afford: at most a dozen f64 copies of one operand.
            EXPECT_LE(bytes.back().backward, std::size_t{12} * 8 * (1 << 17) * 64 + (1 << 24));
        }
    }
}

TEST_P(Workspace, plan_and_query_agree) {
    for (const int threads : thread_counts) {
        const Shapes shapes = shapes_of(bf16, 2, 4, 2, 777, 64);
        const Bytes bytes = bytes_of(shapes, execution(threads));
        PlanInfo plan;
        ASSERT_TRUE(plan_forward(shapes.params, shapes.forward_in, shapes.forward_out, execution(threads), plan).ok());
        EXPECT_EQ(plan.workspace_bytes, bytes.forward);
        ASSERT_TRUE(
            plan_backward(shapes.params, shapes.backward_in, shapes.backward_out, execution(threads), plan).ok());
        EXPECT_EQ(plan.workspace_bytes, bytes.backward);
        // The ledger's lines add up to the total, alignment apart (64 bytes a buffer and 64 for the whole).
        std::int64_t booked = 0;
        std::int64_t slack = 64;
        for (const WorkspaceLine& line : plan.workspace) {
            booked += line.bytes_each * line.copies;
            slack += 64 * line.copies;
        }
        EXPECT_LE(booked, static_cast<std::int64_t>(bytes.backward));
        EXPECT_GE(booked + slack, static_cast<std::int64_t>(bytes.backward));
    }
}

TEST_P(Workspace, one_byte_too_few_is_refused_and_nothing_is_written) {
    const Scenario scenario =
        make_scenario({.name = "too_small", .N1 = 2, .N2 = 2, .S1 = 100, .S2 = 130, .D = 32, .Dv = 32, .dtype = bf16});
    const Options run{.isa = isa(), .threads = 2};
    const Execution execution = execution_of(run);
    Results results = make_outputs(scenario, run);
    std::size_t bytes = 0;
    const ForwardInputs in = forward_inputs(scenario);
    ASSERT_TRUE(forward_workspace_bytes(scenario.params, in, forward_outputs(results), execution, bytes).ok());
    if (bytes > 0) {
        std::vector<std::byte> workspace(bytes - 1);
        const Status status = attention_forward(scenario.params, in, forward_outputs(results), execution, workspace);
        EXPECT_EQ(status.code(), StatusCode::workspace_too_small);
        EXPECT_NE(status.message().find("workspace"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(std::to_string(bytes - 1)), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(std::to_string(bytes)), std::string::npos) << status.message();
        EXPECT_TRUE(results.attention_out.still_poisoned());
        EXPECT_TRUE(results.softmax_max.still_poisoned());
        EXPECT_TRUE(results.softmax_sum.still_poisoned());
    }
    ASSERT_TRUE(forward(scenario, results, run).ok());
    const BackwardInputs back = backward_inputs(scenario, results);
    ASSERT_TRUE(backward_workspace_bytes(scenario.params, back, backward_outputs(results), execution, bytes).ok());
    ASSERT_GT(bytes, 0U);
    std::vector<std::byte> workspace(bytes - 1);
    Status status = attention_backward(scenario.params, back, backward_outputs(results), execution, workspace);
    EXPECT_EQ(status.code(), StatusCode::workspace_too_small);
    EXPECT_NE(status.message().find(std::to_string(bytes)), std::string::npos) << status.message();
    status = attention_backward(scenario.params, back, backward_outputs(results), execution, {});
    EXPECT_EQ(status.code(), StatusCode::workspace_too_small);
    EXPECT_TRUE(results.dq.still_poisoned());
    EXPECT_TRUE(results.dk.still_poisoned());
    EXPECT_TRUE(results.dv.still_poisoned());
}

TEST_P(Workspace, any_address_will_do_and_only_its_own_bytes_are_written) {
    // scenario.cpp's runs use an odd address and check a guard; here every offset within a cache line, bit for bit.
    const Scenario scenario =
        make_scenario({.name = "addresses", .N1 = 2, .N2 = 2, .S1 = 60, .S2 = 70, .D = 16, .Dv = 16, .dtype = bf16});
    const Options options{.isa = isa()};
    const Execution execution = execution_of(options);
    const Results expected = run_both(scenario, options);
    Results results = make_outputs(scenario);
    results.attention_out = expected.attention_out;
    results.softmax_max = expected.softmax_max;
    results.softmax_sum = expected.softmax_sum;
    std::size_t bytes = 0;
    const BackwardInputs in = backward_inputs(scenario, results);
    ASSERT_TRUE(backward_workspace_bytes(scenario.params, in, backward_outputs(results), execution, bytes).ok());
    for (std::size_t offset = 0; offset <= 64; offset += 7) {
        std::vector<std::byte> memory(bytes + 128, std::byte{0x5A});
        const Status status = attention_backward(scenario.params, in, backward_outputs(results), execution,
                                                 {memory.data() + offset, bytes});
        ASSERT_TRUE(status.ok()) << status.message();
        expect_same_gradients(results, expected);
        for (std::size_t at = 0; at < memory.size(); ++at) {
            if (at >= offset && at < offset + bytes) continue;
            ASSERT_EQ(memory[at], std::byte{0x5A}) << "byte " << at << " outside the workspace was written";
        }
    }
}

TEST_P(Workspace, the_convenience_forms_give_the_same_bits) {
    const Scenario scenario =
        make_scenario({.name = "own", .N1 = 2, .N2 = 2, .S1 = 90, .S2 = 110, .D = 32, .Dv = 32, .dtype = bf16});
    const Options run{.isa = isa()};
    const Results expected = run_both(scenario, run);
    Results results = make_outputs(scenario, run);
    ASSERT_TRUE(
        attention_forward(scenario.params, forward_inputs(scenario), forward_outputs(results), execution_of(run)).ok());
    ASSERT_TRUE(attention_backward(scenario.params, backward_inputs(scenario, results), backward_outputs(results),
                                   execution_of(run))
                    .ok());
    expect_same_bits(results, expected);
}

TEST_P(Workspace, forward_writes_only_the_statistics_that_are_wanted) {
    const Scenario scenario =
        make_scenario({.name = "no_statistics", .N1 = 2, .N2 = 2, .S1 = 90, .S2 = 110, .dtype = bf16});
    const Results expected = run_both(scenario, {.isa = isa()});
    for (const bool want_max : {false, true}) {
        Results results = make_outputs(scenario);
        (want_max ? results.softmax_sum : results.softmax_max) = Tensor{};
        const Status status = forward(scenario, results, {.isa = isa()});
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(equal_bits("attention_out", results.attention_out, expected.attention_out));
        const Tensor& wanted = want_max ? results.softmax_max : results.softmax_sum;
        EXPECT_TRUE(equal_bits("statistic", wanted, want_max ? expected.softmax_max : expected.softmax_sum));
    }
}

TEST_P(Workspace, absent_gradients_leave_the_others_as_they_are) {
    for (const DType dtype : {f32, bf16}) {
        Case problem{.name = "subsets", .N1 = 4, .N2 = 2, .S1 = 150, .S2 = 170, .D = 32, .Dv = 24};
        problem.dtype = dtype;
        const Scenario scenario = make_scenario(problem);
        const Results expected = run_both(scenario, {.isa = isa(), .threads = 2});
        for (unsigned subset = 1; subset < 8; ++subset) {
            Options run{.isa = isa(), .threads = 2};
            run.want_dq = (subset & 1U) != 0;
            run.want_dk = (subset & 2U) != 0;
            run.want_dv = (subset & 4U) != 0;
            SCOPED_TRACE(subset);
            const Results got = run_backward(scenario, expected, run);
            if (run.want_dq) {
                EXPECT_TRUE(equal_bits("dq", got.dq, expected.dq));
            }
            if (run.want_dk) {
                EXPECT_TRUE(equal_bits("dk", got.dk, expected.dk));
            }
            if (run.want_dv) {
                EXPECT_TRUE(equal_bits("dv", got.dv, expected.dv));
            }
        }
        Results none = make_outputs(scenario, {.want_dq = false, .want_dk = false, .want_dv = false});
        none.attention_out = expected.attention_out;
        none.softmax_max = expected.softmax_max;
        none.softmax_sum = expected.softmax_sum;
        EXPECT_EQ(backward(scenario, none, {.isa = isa()}).code(), StatusCode::invalid_argument);
    }
}

/// A sum in float64 and a bound for the error an engine makes in it.
struct Bounded {
    std::vector<double> value;
    std::vector<double> bound;

    explicit Bounded(std::int64_t elements)
        : value(static_cast<std::size_t>(elements)), bound(static_cast<std::size_t>(elements)) {}
    void add(std::int64_t at, double term, double error) {
        value[static_cast<std::size_t>(at)] += term;
        bound[static_cast<std::size_t>(at)] += error;
    }
};

struct Formula {
    Bounded dq;
    Bounded dk;
    Bounded dv;
};

/// The gradient's formulas in float64 with statistics as given, written out here so that neither the library's
/// reference nor its engine is trusted. One batch, one head, every pair visible, attention_out = 0.5 throughout.
///
/// Bounds, with u the unit roundoff of the sums (f32, or f64) and w that of the dtype: a dot of D terms in any order is
/// off by at most D·u·Σ|terms|, P relatively by its exponent's error and 4 u (exp, division), and P and dS are rounded
/// once more (w) where they feed a product; the outer sums add u a term and the output w. Twice the first-order sum
/// covers the higher orders.
Formula gradient_by_formula(const Scenario& s, double max, double sum) {
    const Case& c = s.problem;
    const double u = c.dtype == f64 ? 0x1p-53 : 0x1p-24;
    const double w = unit_roundoff(c.dtype);
    const auto outer = [&](std::int64_t terms) { return static_cast<double>(terms + 2) * u + 2 * w; };
    Formula result{Bounded(c.S1 * c.D), Bounded(c.S2 * c.D), Bounded(c.S2 * c.Dv)};
    for (std::int64_t i = 0; i < c.S1; ++i) {
        for (std::int64_t j = 0; j < c.S2; ++j) {
            double score = 0.0;
            double score_terms = 0.0;
            for (std::int64_t d = 0; d < c.D; ++d) {
                const double term = s.params.scale * s.query.get(0, 0, i, d) * s.key.get(0, 0, j, d);
                score += term;
                score_terms += std::abs(term);
            }
            double dp_minus_delta = 0.0;
            double dp_terms = 0.0;
            for (std::int64_t d = 0; d < c.Dv; ++d) {
                const double dy = s.dy.get(0, 0, i, d);
                dp_minus_delta += dy * (s.value.get(0, 0, j, d) - 0.5);
                dp_terms += std::abs(dy * s.value.get(0, 0, j, d)) + std::abs(dy * 0.5);
            }
            const double p = std::exp(score - max) / sum;
            const double p_error = p * (static_cast<double>(c.D + 4) * u * (score_terms + std::abs(max)) + 4 * u);
            const double ds = p * dp_minus_delta * s.params.scale;
            const double ds_error = std::abs(s.params.scale) * (p_error * std::abs(dp_minus_delta) +
                                                                p * static_cast<double>(c.Dv + 2) * u * dp_terms) +
                                    4 * u * std::abs(ds);
            for (std::int64_t d = 0; d < c.Dv; ++d) {
                const double dy = s.dy.get(0, 0, i, d);
                result.dv.add(j * c.Dv + d, p * dy, 2 * (p_error + p * outer(c.S1)) * std::abs(dy));
            }
            for (std::int64_t d = 0; d < c.D; ++d) {
                const double q = s.query.get(0, 0, i, d);
                const double k = s.key.get(0, 0, j, d);
                result.dq.add(i * c.D + d, ds * k, 2 * (ds_error + std::abs(ds) * outer(c.S2)) * std::abs(k));
                result.dk.add(j * c.D + d, ds * q, 2 * (ds_error + std::abs(ds) * outer(c.S1)) * std::abs(q));
            }
        }
    }
    return result;
}

void expect_bounded(const char* what, const Tensor& got, const Bounded& want) {
    const std::vector<double> values = got.values();
    ASSERT_EQ(values.size(), want.value.size());
    for (std::size_t at = 0; at < values.size(); ++at) {
        // The smallest subnormal is for results that underflow in f16.
        ASSERT_LE(std::abs(values[at] - want.value[at]), want.bound[at] + ulp(0.0, got.dtype()))
            << what << " element " << at << " is " << values[at] << ", must be " << want.value[at];
    }
}

TEST_P(Workspace, statistics_are_taken_as_given) {
    // max = sum = 3 belongs to no forward: P is exp(x − 3)/3, which sums to anything, and the gradient must be the
    // formula with these numbers.
    for (const DType dtype : {f64, f32, bf16, f16}) {
        SCOPED_TRACE(name(dtype));
        Case problem{.name = "as_given", .S1 = 37, .S2 = 53, .D = 20, .Dv = 12};
        problem.dtype = dtype;
        const Scenario scenario = make_scenario(problem);
        Results given = make_outputs(scenario);
        given.attention_out.fill(0.5);
        given.softmax_max.fill(3.0);
        given.softmax_sum.fill(3.0);
        const Results got = run_backward(scenario, given, {.isa = isa()});
        const Formula want = gradient_by_formula(scenario, 3.0, 3.0);
        expect_bounded("dq", got.dq, want.dq);
        expect_bounded("dk", got.dk, want.dk);
        expect_bounded("dv", got.dv, want.dv);
    }
}

TEST_P(Workspace, the_isa_asked_for_is_the_isa_planned) {
    for (const DType dtype : {f64, f32, bf16, f16}) {
        const Shapes shapes = shapes_of(dtype, 1, 2, 2, 300, 64);
        PlanInfo plan;
        ASSERT_TRUE(plan_forward(shapes.params, shapes.forward_in, shapes.forward_out, execution(), plan).ok());
        EXPECT_EQ(plan.isa, isa());
        ASSERT_TRUE(plan_backward(shapes.params, shapes.backward_in, shapes.backward_out, execution(), plan).ok());
        EXPECT_EQ(plan.isa, isa());
        std::string selected;
        std::string why;
        ASSERT_TRUE(select_isa(isa(), selected, why).ok());
        EXPECT_EQ(selected, isa());
        EXPECT_FALSE(why.empty());
    }
}

/// Half of the next test: runs in a process of its own that was started with FASCORE_ISA set.
TEST_P(Workspace, child_process_plans_what_the_environment_says) {
    const char* expected = std::getenv("FASCORE_TEST_EXPECT_ISA");
    if (expected == nullptr || isa() != expected) GTEST_SKIP() << "only as a child of the_environment_chooses";
    const Shapes shapes = shapes_of(f32, 1, 2, 2, 300, 64);
    PlanInfo plan;
    const Status status = plan_forward(shapes.params, shapes.forward_in, shapes.forward_out, {}, plan);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(plan.isa, expected);
}

TEST_P(Workspace, the_environment_chooses) {
    if (std::getenv("FASCORE_TEST_EXPECT_ISA") != nullptr) GTEST_SKIP() << "this is the child";
    const std::string self = "/proc/self/exe";
    char path[4096] = {};
    if (realpath(self.c_str(), path) == nullptr) GTEST_SKIP() << "no /proc";
    const std::string command = "FASCORE_ISA=" + isa() + " FASCORE_TEST_EXPECT_ISA=" + isa() + " '" + path +
                                "' --gtest_filter='*child_process_plans_what_the_environment_says/" + isa() +
                                "' > /dev/null 2>&1";
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127)) {
        GTEST_SKIP() << "this program cannot start itself (emulated)";
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command;
}

FASCORE_FOR_EACH_ISA(Workspace);

TEST(Isa, an_unknown_one_is_refused_with_the_list) {
    const Scenario scenario = make_scenario({.name = "isa"});
    Results results = make_outputs(scenario);
    const Status status = forward(scenario, results, {.isa = "sse9"});
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_NE(status.message().find("sse9"), std::string::npos) << status.message();
    for (const IsaInfo& known : built_isas()) {
        EXPECT_NE(status.message().find(known.name), std::string::npos) << status.message();
    }
    EXPECT_TRUE(results.attention_out.still_poisoned());
}

TEST(Isa, baseline_is_always_there_and_last) {
    const std::vector<IsaInfo> built = built_isas();
    ASSERT_FALSE(built.empty());
    EXPECT_EQ(built.back().name, "baseline");
    EXPECT_TRUE(built.back().runnable);
}

TEST(Isa, the_default_is_runnable_and_explained) {
    // The list is ordered, but a CPU on which the first one is slow may be given the next; then the reason says so.
    std::string selected;
    std::string why;
    ASSERT_TRUE(select_isa({}, selected, why).ok());
    const std::vector<std::string> runnable = runnable_isas();
    EXPECT_NE(std::find(runnable.begin(), runnable.end(), selected), runnable.end()) << selected;
    EXPECT_FALSE(why.empty());
    const Shapes shapes = shapes_of(bf16, 1, 2, 2, 300, 64);
    PlanInfo plan;
    ASSERT_TRUE(plan_forward(shapes.params, shapes.forward_in, shapes.forward_out, {}, plan).ok());
    EXPECT_EQ(plan.isa, selected);
}

}  // namespace
}  // namespace fascore::test
