// SPDX-License-Identifier: Apache-2.0
//
// The problem syntax: see problem_options.h. What is checked here is the text and what the tools themselves need to
// know (extents, to size outputs); whether the problem is one the operator allows is the library's to say.
#include "problem_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "command.h"
#include "random.h"

namespace fascore::cli {
namespace {

/// The shape a data tensor with these extents has in a layout.
std::vector<std::int64_t> shape_in(Layout layout, std::int64_t B, std::int64_t N, std::int64_t S, std::int64_t D) {
    std::int64_t fused = 0;
    switch (layout) {
        case Layout::BSND: return {B, S, N, D};
        case Layout::BSH:
        case Layout::SBH:
            if (__builtin_mul_overflow(N, D, &fused)) throw Failure("--shape: N1*D must be below 2^63");
            return layout == Layout::BSH ? std::vector{B, S, fused} : std::vector{S, B, fused};
        default: return {B, N, S, D};
    }
}

/// What a tensor's shape says in a layout, heads known where they share an axis with the columns. Shapes that make no
/// sense give zeros: the library sees the same shapes and refuses them by name.
struct Seen {
    std::int64_t B = 0, N = 0, S = 0, D = 0;
};

Seen see(Layout layout, const std::vector<std::int64_t>& shape, std::int64_t heads) {
    if (layout == Layout::BSH || layout == Layout::SBH) {
        if (shape.size() != 3) return {};
        const std::int64_t D = heads > 0 ? shape[2] / heads : 0;
        return layout == Layout::BSH ? Seen{shape[0], heads, shape[1], D} : Seen{shape[1], heads, shape[0], D};
    }
    if (shape.size() != 4) return {};
    return layout == Layout::BSND ? Seen{shape[0], shape[2], shape[1], shape[3]}
                                  : Seen{shape[0], shape[1], shape[2], shape[3]};
}

Extents extents_of(const Problem& problem) {
    const Layout layout = problem.params.layout;
    const Seen query = see(layout, problem.query.shape(), problem.params.head_num);
    std::int64_t key_heads = 0;
    if (problem.key.rank() == 3 && query.D > 0) key_heads = problem.key.shape()[2] / query.D;
    const Seen key = see(layout, problem.key.shape(), key_heads);
    const Seen value = see(layout, problem.value.shape(), key_heads);
    return {query.B, query.N, key.N, query.S, key.S, query.D, value.D};
}

/// Elements of a tensor in the order of the logical index (b, n, s, d), whatever its layout.
void draw(HostTensor& tensor, Layout layout, const NormalStream& values, std::int64_t N) {
    tensor.allocate();
    const Seen extent = see(layout, tensor.shape(), N);
    const std::int64_t D = extent.D;
    const std::int64_t S = extent.S;
    std::int64_t row = 0;
    std::uint64_t pair = ~std::uint64_t{0};
    std::array<double, 2> both{};
    for (std::int64_t b = 0; b < extent.B; ++b) {
        for (std::int64_t n = 0; n < N; ++n) {
            for (std::int64_t s = 0; s < S; ++s, ++row) {
                std::int64_t at = row;  // BNSD
                if (layout == Layout::BSND || layout == Layout::BSH) at = (b * S + s) * N + n;
                if (layout == Layout::SBH) at = (s * extent.B + b) * N + n;
                for (std::int64_t d = 0; d < D; ++d) {
                    const auto index = static_cast<std::uint64_t>(row * D + d);
                    if (index / 2 != pair) values.pair(pair = index / 2, both[0], both[1]);
                    tensor.store(at * D + d, both[index % 2]);
                }
            }
        }
    }
}

std::string rule_text(const MaskRule& rule) {
    switch (rule.kind) {
        case MaskRule::Kind::none: return "full";
        case MaskRule::Kind::causal_top_left: return "causal top-left";
        case MaskRule::Kind::causal_bottom_right: return "causal bottom-right";
        case MaskRule::Kind::window: return fmt::format("window {},{}", rule.left, rule.right);
    }
    return "?";
}

}  // namespace

void add_execution_options(CLI::App& command, int& threads, std::string& isa) {
    command
        .add_option("--threads", threads, "Threads, 1 to 1024; 0: FASCORE_NUM_THREADS if set, else all of this machine")
        ->type_name("N")
        ->group("Execution");
    command
        .add_option("--isa", isa, "Kernels to use, a name `fascore info` lists; default: FASCORE_ISA, else the best")
        ->type_name("NAME")
        ->group("Execution");
}

void add_problem_options(CLI::App& command, ProblemOptions& options) {
    constexpr const char* group = "Problem";
    command
        .add_option("IN", options.input,
                    "safetensors file with query key value dy, optional atten_mask softmax_max softmax_sum "
                    "attention_out")
        ->group(group);
    command
        .add_option("--shape", options.shape,
                    "Instead of IN: draw seeded normal data; N2 and S2 default to N1 and S1, Dv to D")
        ->type_name("B,N1[:N2],S1[:S2],D[:Dv]")
        ->group(group);
    command.add_option("--dtype", options.dtype, "With --shape: f64, f32, bf16 or f16")
        ->type_name("DTYPE")
        ->capture_default_str()
        ->group(group);
    command.add_option("--seed", options.seed, "With --shape: of the data")
        ->type_name("N")
        ->capture_default_str()
        ->group(group);
    command.add_option("--layout", options.layout, "Axis order: BNSD, BSND, BSH or SBH")
        ->type_name("LAYOUT")
        ->capture_default_str()
        ->group(group);
    command.add_option("--head-num", options.head_num, "Query heads N1; needed for a file in layout BSH or SBH")
        ->type_name("N1")
        ->group(group);
    command
        .add_option("--scale", options.scale,
                    "Factor on query*key; default: 1 for a file (the operator's), 1/sqrt(D) with --shape")
        ->type_name("X")
        ->group(group);
    command
        .add_option("--sparse-mode", options.sparse_mode,
                    "How atten_mask is meant, 0 to 4 (default 0); no effect without that tensor")
        ->type_name("MODE")
        ->group(group);
    command
        .add_option("--pre-tokens", options.pre_tokens,
                    "Keys a row sees to its left in sparse mode 0 and 4; default: no bound")
        ->type_name("N")
        ->group(group);
    command
        .add_option("--next-tokens", options.next_tokens,
                    "Keys a row sees to its right in sparse mode 0 and 4; default: no bound")
        ->type_name("N")
        ->group(group);
    command
        .add_flag("--causal", options.causal,
                  "No mask tensor needed: row i sees keys up to i + S2 - S1 (bottom-right, flash_attn) or, as "
                  "--causal=top-left, up to i (PyTorch)")
        ->type_name("[=bottom-right|top-left]")
        ->group(group);
    command
        .add_option("--window", options.window,
                    "No mask tensor needed: row i sees keys i + S2 - S1 - LEFT to i + S2 - S1 + RIGHT, -1 is no "
                    "bound; with --causal, RIGHT is 0")
        ->type_name("LEFT,RIGHT")
        ->group(group);
    add_execution_options(command, options.threads, options.isa);
}

ProblemOptions parse_problem_line(std::string_view line, const std::string& where) {
    std::istringstream stream{std::string(line)};
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    ProblemOptions options;
    CLI::App app;
    app.set_help_flag();
    add_problem_options(app, options);
    try {
        app.parse(words);
    } catch (const CLI::ParseError& error) {
        throw Failure(fmt::format("{}: {}", where, parse_error_text(error)));
    }
    return options;
}

ForwardInputs Problem::forward_inputs() const {
    ForwardInputs in;
    in.query = query.view();
    in.key = key.view();
    in.value = value.view();
    in.atten_mask = atten_mask.view();
    return in;
}

BackwardInputs Problem::backward_inputs() const {
    BackwardInputs in;
    in.query = query.view();
    in.key = key.view();
    in.value = value.view();
    in.dy = dy.view();
    in.softmax_max = softmax_max.view();
    in.softmax_sum = softmax_sum.view();
    in.attention_out = attention_out.view();
    in.atten_mask = atten_mask.view();
    return in;
}

Execution Problem::execution() const {
    Execution execution;
    execution.threads = threads;
    execution.isa = isa;
    return execution;
}

std::vector<std::int64_t> Problem::attention_shape() const {
    return shape_in(params.layout, extents.B, extents.N1, extents.S1, extents.Dv);
}

std::vector<std::int64_t> Problem::statistic_shape() const { return {extents.B, extents.N1, extents.S1, 8}; }

DType Problem::statistic_dtype() const noexcept { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::string Problem::text() const {
    const Extents& e = extents;
    std::string text =
        fmt::format("B={} N1={} N2={} S1={} S2={} D={} Dv={} {} {} scale {:.6g} {}", e.B, e.N1, e.N2, e.S1, e.S2, e.D,
                    e.Dv, name(dtype), name(params.layout), params.scale, rule_text(params.rule));
    if (atten_mask.present()) {
        text += fmt::format(" sparse_mode {}", params.sparse_mode);
        if (params.pre_tokens != unlimited_tokens) text += fmt::format(" pre_tokens {}", params.pre_tokens);
        if (params.next_tokens != unlimited_tokens) text += fmt::format(" next_tokens {}", params.next_tokens);
        text += fmt::format(" atten_mask {}", shape_text(atten_mask.shape()));
    }
    return text;
}

Problem describe(const ProblemOptions& options, Needs needs) {
    if (options.input.empty() == options.shape.empty()) {
        throw Failure(options.input.empty()
                          ? std::string("IN: absent, must be a safetensors file (or draw a problem with --shape)")
                          : fmt::format("IN: {}, cannot be combined with --shape", options.input));
    }
    Problem problem;
    problem.threads = options.threads;
    problem.isa = options.isa;
    AttentionParams& params = problem.params;
    params.layout = parse_layout(options.layout);
    params.head_num = options.head_num;
    params.rule = parse_rule(options.causal, options.window);
    params.sparse_mode = options.sparse_mode.value_or(params.sparse_mode);
    params.pre_tokens = options.pre_tokens.value_or(params.pre_tokens);
    params.next_tokens = options.next_tokens.value_or(params.next_tokens);

    if (!options.shape.empty()) {
        const Extents e = parse_shape(options.shape);
        problem.dtype = parse_dtype(options.dtype);
        problem.seed = options.seed;
        params.scale = options.scale.value_or(e.D > 0 ? 1.0 / std::sqrt(static_cast<double>(e.D)) : 1.0);
        if (params.head_num == 0 && (params.layout == Layout::BSH || params.layout == Layout::SBH)) {
            params.head_num = e.N1;
        }
        const auto make = [&](const char* tensor, std::int64_t N, std::int64_t S, std::int64_t D) {
            return HostTensor(tensor, problem.dtype, shape_in(params.layout, e.B, N, S, D));
        };
        problem.query = make("query", e.N1, e.S1, e.D);
        problem.key = make("key", e.N2, e.S2, e.D);
        problem.value = make("value", e.N2, e.S2, e.Dv);
        problem.dy = make("dy", e.N1, e.S1, e.Dv);
        problem.extents = e;
        return problem;
    }

    problem.file = std::make_unique<SafetensorsFile>(options.input);
    const SafetensorsFile& file = *problem.file;
    problem.query = file.describe("query");
    problem.key = file.describe("key");
    problem.value = file.describe("value");
    if (needs == Needs::gradient || (needs == Needs::inputs && file.contains("dy"))) problem.dy = file.describe("dy");
    if (file.contains("atten_mask")) problem.atten_mask = file.describe("atten_mask");
    if (needs == Needs::gradient) {
        if (file.contains("softmax_max")) problem.softmax_max = file.describe("softmax_max");
        if (file.contains("softmax_sum")) problem.softmax_sum = file.describe("softmax_sum");
        if (file.contains("attention_out")) problem.attention_out = file.describe("attention_out");
        if (problem.softmax_max.present() != problem.softmax_sum.present()) {
            throw Failure(fmt::format("{}: {}: absent, must be given when {} is", file.path(),
                                      problem.softmax_max.present() ? "softmax_sum" : "softmax_max",
                                      problem.softmax_max.present() ? "softmax_max" : "softmax_sum"));
        }
    }
    problem.dtype = problem.query.dtype();
    params.scale = options.scale.value_or(params.scale);
    problem.extents = extents_of(problem);
    return problem;
}

std::optional<std::string> warning_of(const ProblemOptions& options, const Problem& problem) {
    if (problem.atten_mask.present()) return std::nullopt;
    const char* given = options.sparse_mode   ? "--sparse-mode"
                        : options.pre_tokens  ? "--pre-tokens"
                        : options.next_tokens ? "--next-tokens"
                                              : nullptr;
    if (given == nullptr) return std::nullopt;
    return fmt::format("warning: {} has no effect without an atten_mask tensor; use --causal or --window", given);
}

void load(Problem& problem, Needs needs) {
    if (problem.file != nullptr) {
        for (HostTensor* tensor : {&problem.query, &problem.key, &problem.value, &problem.dy, &problem.atten_mask,
                                   &problem.softmax_max, &problem.softmax_sum, &problem.attention_out}) {
            if (tensor->present()) problem.file->load(*tensor);
        }
        return;
    }
    const Extents& e = problem.extents;
    const Layout layout = problem.params.layout;
    draw(problem.query, layout, NormalStream(problem.seed, 0), e.N1);
    draw(problem.key, layout, NormalStream(problem.seed, 1), e.N2);
    draw(problem.value, layout, NormalStream(problem.seed, 2), e.N2);
    if (needs != Needs::forward) draw(problem.dy, layout, NormalStream(problem.seed, 3), e.N1);
}

}  // namespace fascore::cli
