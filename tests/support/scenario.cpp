// SPDX-License-Identifier: Apache-2.0
//
// Makes the tensors of a case and runs the library and the references on them.
#include "support/scenario.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <sstream>

#include "support/targets.h"

namespace fascore::test {
namespace {

constexpr std::size_t workspace_guard = 256;
constexpr std::byte guard_byte{0x5A};

double scale_of(const Case& problem) {
    return problem.scale.value_or(1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(problem.D, 1))));
}

/// Bytes that start at an odd address and end at a guard.
class Workspace {
  public:
    Workspace(std::size_t bytes, std::byte fill) : bytes_(bytes), memory_(bytes + 65 + workspace_guard, fill) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
        offset_ = 65 - address % 64;  // one past a multiple of 64
        std::fill_n(memory_.begin() + static_cast<std::ptrdiff_t>(offset_ + bytes_), memory_.size() - offset_ - bytes_,
                    guard_byte);
    }
    [[nodiscard]] std::span<std::byte> span() { return {memory_.data() + offset_, bytes_}; }
    [[nodiscard]] bool guard_intact() const {
        return std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(offset_ + bytes_), memory_.end(),
                           [](std::byte value) { return value == guard_byte; });
    }

  private:
    std::size_t bytes_;
    std::size_t offset_ = 0;
    std::vector<std::byte> memory_;
};

Extents out_extents(const Scenario& s) {
    const Case& c = s.problem;
    return {c.B, c.N1, c.S1, c.Dv};
}

Tensor make_mask(const Case& c, Random& random) {
    if (c.mask == MaskShape::none) return {};
    if (c.mask == MaskShape::compressed) {
        Tensor mask(c.mask_dtype, Form::SS, {1, 1, 2048, 2048});
        return mask.fill([](auto, auto, auto i, auto j) { return j > i ? 1.0 : 0.0; });
    }
    const std::int64_t batches = c.mask == MaskShape::bnss || c.mask == MaskShape::b1ss ? c.B : 1;
    const std::int64_t heads = c.mask == MaskShape::bnss ? c.N1 : 1;
    const Form form = c.mask == MaskShape::ss ? Form::SS : Form::BNSD;
    Tensor mask(c.mask_dtype, form, {batches, heads, c.S1, c.S2}, c.arrangement);
    // Any non-zero byte of a u8 mask hides its pair.
    const double hidden = c.mask_dtype == DType::u8 ? 200.0 : 1.0;
    return mask.fill([&](auto, auto, auto i, auto j) -> double {
        const bool chance = random.uniform() < 0.4;
        switch (c.mask_content) {
            case MaskContent::random: return chance ? hidden : 0.0;
            case MaskContent::random_empty_rows: return chance || i % 3 == 1 ? hidden : 0.0;
            case MaskContent::everything: return hidden;
            case MaskContent::nothing: return 0.0;
            case MaskContent::future: return j > i ? hidden : 0.0;
        }
        return 0.0;
    });
}

Tensor make_statistic(const Case& c, DType dtype, Arrangement arrangement) {
    const Extents extents{c.B, c.N1, c.S1, std::max(c.statistic_copies, 1)};
    return Tensor(dtype, c.statistic_copies == 0 ? Form::BNS : Form::BNSD, extents, arrangement);
}

bool gradient_wanted(const Tensor& tensor) { return tensor.present(); }

void expect_untouched_outside(const Results& results) {
    const auto check = [](const char* what, const Tensor& tensor) {
        EXPECT_TRUE(tensor.untouched_outside()) << what << ": bytes between or around its elements were written";
    };
    check("attention_out", results.attention_out);
    check("softmax_max", results.softmax_max);
    check("softmax_sum", results.softmax_sum);
    check("dq", results.dq);
    check("dk", results.dk);
    check("dv", results.dv);
}

}  // namespace

std::string describe(const Case& c) {
    std::ostringstream text;
    text << c.name << ": B=" << c.B << " N1=" << c.N1 << " N2=" << c.N2 << " S1=" << c.S1 << " S2=" << c.S2
         << " D=" << c.D << " Dv=" << c.Dv << ' ' << fascore::name(c.dtype) << ' ' << fascore::name(c.layout)
         << " scale=" << scale_of(c) << " mode=" << c.sparse_mode << ' ' << name(c.arrangement);
    return text.str();
}

std::string command_line(const Case& c, std::uint64_t seed) {
    std::ostringstream text;
    text.precision(17);
    text << "fascore verify --shape " << c.B << ',' << c.N1 << ':' << c.N2 << ',' << c.S1 << ':' << c.S2 << ',' << c.D
         << ':' << c.Dv << " --dtype " << fascore::name(c.dtype) << " --layout " << fascore::name(c.layout)
         << " --scale " << scale_of(c) << " --seed " << seed;
    switch (c.rule.kind) {
        case MaskRule::Kind::none: break;
        case MaskRule::Kind::causal_top_left: text << " --causal=top-left"; break;
        case MaskRule::Kind::causal_bottom_right: text << " --causal"; break;
        case MaskRule::Kind::window: text << " --window " << c.rule.left << ',' << c.rule.right; break;
    }
    return text.str();
}

Scenario make_scenario(const Case& c, std::uint64_t seed) {
    Scenario s;
    s.problem = c;
    s.params.layout = c.layout;
    s.params.head_num = c.N1;
    s.params.scale = scale_of(c);
    s.params.sparse_mode = c.sparse_mode;
    s.params.pre_tokens = c.pre_tokens;
    s.params.next_tokens = c.next_tokens;
    s.params.rule = c.rule;

    Random random(seed);
    const Form form = form_of(c.layout);
    s.query = Tensor(c.dtype, form, {c.B, c.N1, c.S1, c.D}, c.arrangement);
    s.query.fill_normal(random, c.query_size);
    const auto key_or_value = [&](std::int64_t columns, double size) {
        const Extents extents{c.B, c.N2, c.S2, columns};
        if (!c.broadcast_heads) return Tensor(c.dtype, form, extents, c.arrangement).fill_normal(random, size);
        Steps steps = packed_steps(Form::BNSD, {c.B, 1, c.S2, columns});
        steps.n = 0;
        return Tensor(c.dtype, Form::BNSD, extents, steps).fill_normal(random, size);
    };
    s.key = key_or_value(c.D, c.key_size);
    s.value = key_or_value(c.Dv, c.value_size);
    s.dy = Tensor(c.dtype, form, {c.B, c.N1, c.S1, c.Dv}, c.arrangement);
    s.dy.fill_normal(random, c.dy_size);
    s.mask = make_mask(c, random);
    return s;
}

Scenario make_scenario(const Case& c) { return make_scenario(c, seed_of(c.name)); }

Scenario make_scenario(Tensor query, Tensor key, Tensor value, Tensor dy, double scale) {
    Scenario s;
    Case& c = s.problem;
    c.B = query.extents().b;
    c.N1 = query.extents().n;
    c.S1 = query.extents().s;
    c.D = query.extents().d;
    c.N2 = key.extents().n;
    c.S2 = key.extents().s;
    c.Dv = value.extents().d;
    c.dtype = query.dtype();
    c.scale = scale;
    constexpr Layout layouts[] = {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH};
    c.layout = layouts[static_cast<std::size_t>(query.form())];
    s.params.layout = c.layout;
    s.params.head_num = c.N1;
    s.params.scale = scale;
    s.query = std::move(query);
    s.key = std::move(key);
    s.value = std::move(value);
    s.dy = std::move(dy);
    return s;
}

ForwardInputs forward_inputs(const Scenario& s) {
    ForwardInputs in;
    in.query = s.query.view();
    in.key = s.key.view();
    in.value = s.value.view();
    in.atten_mask = s.mask.view();
    return in;
}

BackwardInputs backward_inputs(const Scenario& s, const Results& results) {
    BackwardInputs in;
    in.query = s.query.view();
    in.key = s.key.view();
    in.value = s.value.view();
    in.dy = s.dy.view();
    in.atten_mask = s.mask.view();
    in.softmax_max = results.softmax_max.view();
    in.softmax_sum = results.softmax_sum.view();
    in.attention_out = results.attention_out.view();
    return in;
}

ForwardOutputs forward_outputs(Results& results) {
    ForwardOutputs out;
    out.attention_out = results.attention_out.out();
    out.softmax_max = results.softmax_max.out();
    out.softmax_sum = results.softmax_sum.out();
    return out;
}

BackwardOutputs backward_outputs(Results& results) {
    BackwardOutputs out;
    out.dq = results.dq.out();
    out.dk = results.dk.out();
    out.dv = results.dv.out();
    return out;
}

Execution execution_of(const Options& run) {
    Execution execution;
    execution.threads = run.threads;
    execution.isa = run.isa;
    execution.cancel = run.cancel;
    execution.progress = run.progress;
    return execution;
}

Results make_outputs(const Scenario& s, const Options& run, bool f64) {
    const Case& c = s.problem;
    const Form form = form_of(c.layout);
    const Arrangement arrangement = run.outputs.value_or(c.arrangement);
    const DType gradient = f64 ? DType::f64 : c.dtype;
    const DType out = f64 ? DType::f64 : c.f32_out ? DType::f32 : c.dtype;
    const DType statistic = f64 || c.dtype == DType::f64 ? DType::f64 : DType::f32;
    Results results;
    results.attention_out = Tensor(out, form, out_extents(s), arrangement);
    results.softmax_max = make_statistic(c, statistic, arrangement);
    results.softmax_sum = make_statistic(c, statistic, arrangement);
    if (run.want_dq) results.dq = Tensor(gradient, form, {c.B, c.N1, c.S1, c.D}, arrangement);
    if (run.want_dk) results.dk = Tensor(gradient, form, {c.B, c.N2, c.S2, c.D}, arrangement);
    if (run.want_dv) results.dv = Tensor(gradient, form, {c.B, c.N2, c.S2, c.Dv}, arrangement);
    return results;
}

Status forward(const Scenario& s, Results& results, const Options& run) {
    std::size_t bytes = 0;
    const ForwardInputs in = forward_inputs(s);
    const ForwardOutputs out = forward_outputs(results);
    const Execution execution = execution_of(run);
    if (Status status = forward_workspace_bytes(s.params, in, out, execution, bytes); !status.ok()) return status;
    Workspace workspace(bytes, run.workspace_fill);
    Status status = attention_forward(s.params, in, out, execution, workspace.span());
    EXPECT_TRUE(workspace.guard_intact()) << "forward wrote behind its workspace: " << describe(s.problem);
    return status;
}

Status backward(const Scenario& s, Results& results, const Options& run) {
    std::size_t bytes = 0;
    const BackwardInputs in = backward_inputs(s, results);
    const BackwardOutputs out = backward_outputs(results);
    const Execution execution = execution_of(run);
    if (Status status = backward_workspace_bytes(s.params, in, out, execution, bytes); !status.ok()) return status;
    Workspace workspace(bytes, run.workspace_fill);
    Status status = attention_backward(s.params, in, out, execution, workspace.span());
    EXPECT_TRUE(workspace.guard_intact()) << "backward wrote behind its workspace: " << describe(s.problem);
    return status;
}

Results run_forward(const Scenario& s, const Options& run) {
    Options without = run;
    without.want_dq = without.want_dk = without.want_dv = false;
    Results results = make_outputs(s, without);
    const Status status = forward(s, results, run);
    EXPECT_TRUE(status.ok()) << "forward: " << status.message() << " in " << describe(s.problem);
    expect_untouched_outside(results);
    return results;
}

Results run_backward(const Scenario& s, const Results& given, const Options& run) {
    Results results = make_outputs(s, run);
    results.attention_out = given.attention_out;
    results.softmax_max = given.softmax_max;
    results.softmax_sum = given.softmax_sum;
    const Status status = backward(s, results, run);
    EXPECT_TRUE(status.ok()) << "backward: " << status.message() << " in " << describe(s.problem);
    for (const Tensor* tensor : {&results.dq, &results.dk, &results.dv}) {
        if (gradient_wanted(*tensor)) {
            EXPECT_TRUE(tensor->untouched_outside()) << "bytes around a gradient's elements were written";
        }
    }
    return results;
}

Results run_both(const Scenario& s, const Options& run) {
    const Results after_forward = run_forward(s, run);
    return run_backward(s, after_forward, run);
}

Results reference(const Scenario& s, Evaluation evaluation) {
    Results results = make_outputs(s, Options{.outputs = Arrangement::packed}, true);
    Status status = reference_forward(s.params, forward_inputs(s), forward_outputs(results), evaluation);
    EXPECT_TRUE(status.ok()) << "reference forward: " << status.message() << " in " << describe(s.problem);
    // Statistics and output absent: the reference computes its own, so a wrong forward cannot hide a wrong gradient.
    BackwardInputs in = backward_inputs(s, {});
    // The yardstick in f32 is the same operator: its gradient takes delta from attention_out as it was rounded, its
    // own. (From Σ P·dP the error of dP that a row has in common would cancel: 1.4 and 2.1 times better in two of 164
    // rows.)
    Tensor rounded;
    if (evaluation == Evaluation::plain && s.problem.dtype == DType::f32 && results.attention_out.present()) {
        rounded = Tensor(DType::f32, results.attention_out.form(), results.attention_out.extents());
        rounded.fill([&](auto b, auto n, auto i, auto d) { return results.attention_out.get(b, n, i, d); });
        in.attention_out = rounded.view();
    }
    status = reference_backward(s.params, in, backward_outputs(results), evaluation);
    EXPECT_TRUE(status.ok()) << "reference backward: " << status.message() << " in " << describe(s.problem);
    return results;
}

namespace {

// The largest Euclidean norm of a row.
double largest_row(const Tensor& tensor) {
    const Extents& e = tensor.extents();
    double largest = 0.0;
    for (std::int64_t b = 0; b < e.b; ++b) {
        for (std::int64_t n = 0; n < e.n; ++n) {
            for (std::int64_t r = 0; r < e.s; ++r) {
                double square = 0.0;
                for (std::int64_t d = 0; d < e.d; ++d) square += std::pow(tensor.get(b, n, r, d), 2);
                largest = std::max(largest, std::sqrt(square));
            }
        }
    }
    return largest;
}

}  // namespace

Floors floors_of(const Scenario& s) {
    const Case& c = s.problem;
    const double u = c.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
    const double scale = std::abs(s.params.scale);
    const double score_error = static_cast<double>(c.D + 4) * u * scale * largest_row(s.query) * largest_row(s.key);
    const double ds = scale * 2.0 * static_cast<double>(c.Dv + 2) * u * largest_row(s.dy) * largest_row(s.value);
    const auto group_rows = static_cast<double>(c.S1 * (c.N2 > 0 ? c.N1 / c.N2 : 1));
    return {4.0 * score_error, ds * s.key.max_abs(), ds * s.query.max_abs() * group_rows};
}

void expect_budget(const Scenario& s, const Results& got, const Results& exact, const Results& plain) {
    SCOPED_TRACE(describe(s.problem));
    const Floors floors = floors_of(s);
    const auto check = [&](const char* what, const Tensor& result, const Tensor& truth, const Tensor& plainly,
                           double cancelled) {
        if (!result.present()) return;
        const double size = truth.max_abs();
        double floor = size < cancelled ? cancelled : 0.0;
        if (s.problem.dtype == DType::f64) floor = std::max(floor, floors.relative_f64 * size);
        EXPECT_TRUE(within_budget(what, result, truth, plainly, floor));
    };
    check("attention_out", got.attention_out, exact.attention_out, plain.attention_out, 0.0);
    check("dq", got.dq, exact.dq, plain.dq, floors.dq);
    check("dk", got.dk, exact.dk, plain.dk, floors.dk);
    check("dv", got.dv, exact.dv, plain.dv, 0.0);
    EXPECT_TRUE(statistics_right(s, got, exact));
}

::testing::AssertionResult statistics_right(const Scenario& s, const Results& got, const Results& exact) {
    const Case& c = s.problem;
    const double u = c.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
    const std::int64_t group = c.N2 > 0 ? c.N1 / c.N2 : 1;
    for (std::int64_t b = 0; b < c.B; ++b) {
        for (std::int64_t n = 0; n < c.N1; ++n) {
            double largest_key = 0.0;  // max_j |k_j| and |q| bound Σ|q k| by Cauchy-Schwarz: O(S·D), not O(S²·D)
            for (std::int64_t j = 0; j < c.S2; ++j) {
                double square = 0.0;
                for (std::int64_t d = 0; d < c.D; ++d) square += std::pow(s.key.get(b, n / group, j, d), 2);
                largest_key = std::max(largest_key, std::sqrt(square));
            }
            for (std::int64_t i = 0; i < c.S1; ++i) {
                double square = 0.0;
                for (std::int64_t d = 0; d < c.D; ++d) square += std::pow(s.query.get(b, n, i, d), 2);
                const double score_error =
                    static_cast<double>(c.D + 4) * u * std::abs(s.params.scale) * std::sqrt(square) * largest_key;
                const double want_max = exact.softmax_max.get(b, n, i, 0);
                const double want_sum = exact.softmax_sum.get(b, n, i, 0);
                const bool empty_row = std::abs(want_max) >= FLT_MAX || c.S2 == 0;
                const double allowed_max = empty_row ? 0.0 : score_error + std::abs(want_max) * u;
                const double allowed_sum =
                    empty_row ? 0.0 : want_sum * (std::expm1(2.0 * score_error) + static_cast<double>(c.S2 + 8) * u);
                for (std::int64_t copy = 0; copy < got.softmax_max.extents().d; ++copy) {
                    const double max = got.softmax_max.get(b, n, i, copy);
                    const double sum = got.softmax_sum.get(b, n, i, copy);
                    if (!(std::abs(max - want_max) <= allowed_max)) {
                        return ::testing::AssertionFailure()
                               << "softmax_max[" << b << ',' << n << ',' << i << ',' << copy << "] is " << max
                               << ", must be " << want_max << " within " << allowed_max;
                    }
                    if (!(std::abs(sum - want_sum) <= allowed_sum)) {
                        return ::testing::AssertionFailure()
                               << "softmax_sum[" << b << ',' << n << ',' << i << ',' << copy << "] is " << sum
                               << ", must be " << want_sum << " within " << allowed_sum;
                    }
                }
            }
        }
    }
    return ::testing::AssertionSuccess();
}

void expect_same_gradients(const Results& got, const Results& expected) {
    EXPECT_TRUE(equal_bits("dq", got.dq, expected.dq));
    EXPECT_TRUE(equal_bits("dk", got.dk, expected.dk));
    EXPECT_TRUE(equal_bits("dv", got.dv, expected.dv));
}

void expect_same_bits(const Results& got, const Results& expected) {
    EXPECT_TRUE(equal_bits("attention_out", got.attention_out, expected.attention_out));
    EXPECT_TRUE(equal_bits("softmax_max", got.softmax_max, expected.softmax_max));
    EXPECT_TRUE(equal_bits("softmax_sum", got.softmax_sum, expected.softmax_sum));
    expect_same_gradients(got, expected);
}

}  // namespace fascore::test
