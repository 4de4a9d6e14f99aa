// SPDX-License-Identifier: Apache-2.0
//
// From what was typed to a problem: see problem.h. What is checked here is the text and what the tools themselves need
// to know (extents, to size outputs); whether the problem is one the operator allows is the library's to say.
#include "problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "command.h"
#include "drawn.h"

namespace fascore::cli {
namespace {

/// When a file's tensor is read.
enum class When : std::uint8_t {
    always,    ///< must be there
    given,     ///< where there is one
    gradient,  ///< the gradient must have it, Needs::inputs takes it where there is one
    inputs,    ///< the gradient and Needs::inputs take it where there is one
    results,   ///< the gradient takes it where there is one: what a forward left behind
};

template <class Inputs>
struct Slot {
    const char* name;
    HostTensor Problem::*tensor;
    ConstTensorView Inputs::*view;
    When when;
};

constexpr Slot<AttentionInputs> shared_slots[] = {
    {"query", &Problem::query, &AttentionInputs::query, When::always},
    {"key", &Problem::key, &AttentionInputs::key, When::always},
    {"value", &Problem::value, &AttentionInputs::value, When::always},
    {"query_rope", &Problem::query_rope, &AttentionInputs::query_rope, When::given},
    {"key_rope", &Problem::key_rope, &AttentionInputs::key_rope, When::given},
    {"atten_mask", &Problem::atten_mask, &AttentionInputs::atten_mask, When::given},
    {"pse", &Problem::pse, &AttentionInputs::pse, When::given},
    {"drop_mask", &Problem::drop_mask, &AttentionInputs::drop_mask, When::given},
    {"sink", &Problem::sink, &AttentionInputs::sink, When::given},
    {"d_scale_q", &Problem::d_scale_q, &AttentionInputs::d_scale_q, When::given},
    {"d_scale_k", &Problem::d_scale_k, &AttentionInputs::d_scale_k, When::given},
    {"d_scale_v", &Problem::d_scale_v, &AttentionInputs::d_scale_v, When::given},
};

constexpr Slot<BackwardInputs> gradient_slots[] = {
    {"dy", &Problem::dy, &BackwardInputs::dy, When::gradient},
    {"d_scale_dy", &Problem::d_scale_dy, &BackwardInputs::d_scale_dy, When::inputs},
    {"dlse", &Problem::dlse, &BackwardInputs::dlse, When::inputs},
    {"softmax_max", &Problem::softmax_max, &BackwardInputs::softmax_max, When::results},
    {"softmax_sum", &Problem::softmax_sum, &BackwardInputs::softmax_sum, When::results},
    {"attention_out", &Problem::attention_out, &BackwardInputs::attention_out, When::results},
};

/// Calls f(slot) for every tensor a problem may bring.
template <class F>
void for_each_slot(const F& f) {
    for (const auto& slot : shared_slots) f(slot);
    for (const auto& slot : gradient_slots) f(slot);
}

/// Whether a command reads a tensor with this `when`, and whether it must be there.
bool is_read(When when, Needs needs) {
    if (when == When::gradient || when == When::inputs) return needs != Needs::forward;
    return when != When::results || needs == Needs::gradient;
}
bool is_required(When when, Needs needs) {
    return when == When::always || (when == When::gradient && needs == Needs::gradient);
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
    if (layout == Layout::TND) return shape.size() == 3 ? Seen{0, shape[1], shape[0], shape[2]} : Seen{};
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
    const Seen value = see(layout, problem.value.shape(), key.N);
    const Seen rope = see(layout, problem.query_rope.shape(), query.N);
    Extents e;
    e.B = query.B;
    e.N1 = query.N;
    e.N2 = key.N;
    e.S1 = query.S;
    e.S2 = key.S;
    e.D = query.D;
    e.Dv = value.D;
    e.Dr = rope.D;
    if (problem.packed()) {
        e.T1 = query.S;
        e.T2 = key.S;
        e.B = static_cast<std::int64_t>(problem.q_ends.size());
        e.S1 = problem.query_rows().longest();
        e.S2 = problem.key_rows().longest();
    }
    return e;
}

std::vector<std::int64_t> list_of(const char* option, const std::string& text) {
    return text.empty() ? std::vector<std::int64_t>{} : parse_list(option, text);
}

/// Everything that is no tensor and does not depend on one.
void state(Problem& problem, const ProblemOptions& options) {
    AttentionParams& params = problem.params;
    problem.threads = options.threads;
    problem.isa = options.isa;
    problem.seed = options.seed;
    problem.dbias = options.dbias;
    params.layout = parse_layout(options.layout);
    params.head_num = options.head_num;
    params.rule = parse_rule(options.causal, options.window);
    params.sparse_mode = options.sparse_mode.value_or(params.sparse_mode);
    params.pre_tokens = options.pre_tokens.value_or(params.pre_tokens);
    params.next_tokens = options.next_tokens.value_or(params.next_tokens);
    params.check_mask = options.check_mask;
    params.statistics_order = parse_statistics_order(options.statistics_order);
    params.pse_type = options.pse_type;
    params.q_start_idx = options.q_start;
    params.kv_start_idx = options.kv_start;
    params.keep_prob = options.keep_prob;
    params.seed = options.seed;
    params.offset = options.offset;
    params.softcap = options.softcap;
    params.inner_precise = options.inner_precise;
    problem.prefix = list_of("--prefix", options.prefix);
    problem.q_ends = list_of("--actual-seq-qlen", options.actual_seq_qlen);
    problem.k_ends = list_of("--actual-seq-kvlen", options.actual_seq_kvlen);
    if (problem.q_ends.empty() != problem.k_ends.empty()) {
        const bool no_queries = problem.q_ends.empty();
        throw Failure(fmt::format("--actual-seq-{}: absent, must be given when --actual-seq-{} is",
                                  no_queries ? "qlen" : "kvlen", no_queries ? "kvlen" : "qlen"));
    }
}

void describe_file(Problem& problem, const ProblemOptions& options, Needs needs) {
    if (const std::string option = given_for_drawing(options); !option.empty()) {
        throw Failure(
            fmt::format("{}: given with a file, must be with --shape; a file brings its own tensors", option));
    }
    problem.file = std::make_unique<SafetensorsFile>(options.input);
    const SafetensorsFile& file = *problem.file;
    for_each_slot([&](const auto& slot) {
        const bool wanted = is_read(slot.when, needs) && file.contains(slot.name);
        if (wanted || is_required(slot.when, needs)) problem.*slot.tensor = file.describe(slot.name);
    });
    if (problem.softmax_max.present() != problem.softmax_sum.present()) {
        const bool no_sum = problem.softmax_max.present();
        throw Failure(fmt::format("{}: {}: absent, must be given when {} is", file.path(),
                                  no_sum ? "softmax_sum" : "softmax_max", no_sum ? "softmax_max" : "softmax_sum"));
    }
    problem.dtype = problem.query.dtype();
    problem.params.scale = options.scale.value_or(problem.params.scale);
    problem.extents = extents_of(problem);
}

DType out_dtype_of(const Problem& problem, const ProblemOptions& options) {
    if (options.out_dtype.empty()) return is_8bit(problem.dtype) ? DType::bf16 : problem.dtype;
    if (!is_8bit(problem.dtype)) {
        throw Failure(
            fmt::format("--out-dtype: {}, must not be given: only results of 8-bit problems have a choice, "
                        "these are {}",
                        options.out_dtype, name(problem.dtype)));
    }
    return parse_wide_dtype("--out-dtype", options.out_dtype);
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

bool is_8bit(DType dtype) noexcept { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

std::vector<std::int64_t> shape_in(Layout layout, std::int64_t B, std::int64_t N, std::int64_t S, std::int64_t D,
                                   std::int64_t T) {
    std::int64_t fused = 0;
    switch (layout) {
        case Layout::BSND: return {B, S, N, D};
        case Layout::TND: return {T, N, D};
        case Layout::BSH:
        case Layout::SBH:
            if (__builtin_mul_overflow(N, D, &fused)) throw Failure("--shape: N1*D must be below 2^63");
            return layout == Layout::BSH ? std::vector{B, S, fused} : std::vector{S, B, fused};
        default: return {B, N, S, D};
    }
}

std::int64_t Rows::length(std::int64_t batch) const noexcept {
    if (!packed_) return length_;
    return std::max<std::int64_t>(ends_[static_cast<std::size_t>(batch)] - begin(batch), 0);
}

std::int64_t Rows::total() const noexcept {
    return packed_ ? std::max<std::int64_t>(ends_.empty() ? 0 : *std::max_element(ends_.begin(), ends_.end()), 0)
                   : batches_ * length_;
}

std::int64_t Rows::longest() const noexcept {
    if (!packed_) return length_;
    std::int64_t most = 0;
    for (std::int64_t batch = 0; batch < batches_; ++batch) most = std::max(most, length(batch));
    return most;
}

ForwardInputs Problem::forward_inputs() const {
    ForwardInputs in;
    for (const auto& slot : shared_slots) in.*slot.view = (this->*slot.tensor).view();
    return in;
}

BackwardInputs Problem::backward_inputs() const {
    BackwardInputs in;
    for_each_slot([&](const auto& slot) { in.*slot.view = (this->*slot.tensor).view(); });
    return in;
}

std::vector<const HostTensor*> Problem::own_tensors() const {
    std::vector<const HostTensor*> tensors;
    for_each_slot([&](const auto& slot) {
        const HostTensor& tensor = this->*slot.tensor;
        if (tensor.present() && slot.when != When::results) tensors.push_back(&tensor);
    });
    return tensors;
}

Execution Problem::execution() const {
    Execution execution;
    execution.threads = threads;
    execution.isa = isa;
    return execution;
}

Rows Problem::query_rows() const noexcept { return packed() ? Rows(q_ends) : Rows(extents.B, extents.S1); }
Rows Problem::key_rows() const noexcept { return packed() ? Rows(k_ends) : Rows(extents.B, extents.S2); }

std::vector<std::int64_t> Problem::attention_shape() const {
    return shape_in(params.layout, extents.B, extents.N1, extents.S1, extents.Dv, extents.T1);
}

std::vector<std::int64_t> Problem::statistic_shape() const {
    if (packed()) return {extents.T1, extents.N1, 8};
    return {extents.B, extents.N1, extents.S1, 8};
}

DType Problem::statistic_dtype() const noexcept { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::string Problem::text() const {
    const Extents& e = extents;
    std::string text =
        fmt::format("B={} N1={} N2={} S1={} S2={} D={} Dv={} {} {} scale {:.6g} {}", e.B, e.N1, e.N2, e.S1, e.S2, e.D,
                    e.Dv, name(dtype), name(params.layout), params.scale, rule_text(params.rule));
    const auto add = [&](bool said, const std::string& part) {
        if (said) text += " " + part;
    };
    const auto shape = [](const HostTensor& tensor) {
        return fmt::format("{} {} {}", tensor.name(), shape_text(tensor.shape()), name(tensor.dtype()));
    };
    add(packed(), fmt::format("T1={} T2={}", e.T1, e.T2));
    add(query_rope.present(), fmt::format("rope {}", e.Dr));
    add(is_8bit(dtype), fmt::format("out {}", name(out_dtype)));
    if (atten_mask.present()) {
        add(true, fmt::format("sparse_mode {}", params.sparse_mode));
        add(params.pre_tokens != unlimited_tokens, fmt::format("pre_tokens {}", params.pre_tokens));
        add(params.next_tokens != unlimited_tokens, fmt::format("next_tokens {}", params.next_tokens));
        add(true, fmt::format("atten_mask {}", shape_text(atten_mask.shape())));
    }
    if (pse.present()) add(true, fmt::format("pse_type {} {}", params.pse_type, shape(pse)));
    add(params.softcap != 0.0, fmt::format("softcap {:.6g}", params.softcap));
    add(params.keep_prob < 1.0, fmt::format("keep_prob {:.6g}", params.keep_prob));
    add(params.keep_prob < 1.0 && drop_mask.present(), "drop_mask");
    add(params.keep_prob < 1.0 && !drop_mask.present(), fmt::format("seed {} offset {}", params.seed, params.offset));
    add(sink.present(), "sink");
    add(dlse.present(), "dlse");
    return text;
}

Problem describe(const ProblemOptions& options, Needs needs) {
    if (options.input.empty() == options.shape.empty()) {
        throw Failure(options.input.empty()
                          ? std::string("IN: absent, must be a safetensors file (or draw a problem with --shape)")
                          : fmt::format("IN: {}, cannot be combined with --shape", options.input));
    }
    Problem problem;
    state(problem, options);
    if (options.shape.empty()) {
        describe_file(problem, options, needs);
        problem.out_dtype = out_dtype_of(problem, options);
    } else {
        problem.dtype = parse_dtype(options.dtype);
        problem.out_dtype = out_dtype_of(problem, options);
        describe_drawn(problem, options);
    }
    if (problem.dbias && !problem.pse.present()) {
        throw Failure("--dbias: given without pse, must be with one (a file's, or drawn with --bias)");
    }
    problem.params.prefix = problem.prefix;
    problem.params.actual_seq_qlen = problem.q_ends;
    problem.params.actual_seq_kvlen = problem.k_ends;
    return problem;
}

std::optional<std::string> warning_of(const ProblemOptions& options, const Problem& problem) {
    if (problem.atten_mask.present()) return std::nullopt;
    const std::pair<bool, const char*> given[] = {
        {options.sparse_mode.has_value(), "--sparse-mode"},
        {options.pre_tokens.has_value(), "--pre-tokens"},
        {options.next_tokens.has_value(), "--next-tokens"},
        {!options.prefix.empty(), "--prefix"},
        {options.check_mask, "--check-mask"},
    };
    for (const auto& [is_given, option] : given) {
        if (!is_given) continue;
        return fmt::format("warning: {} has no effect without an atten_mask tensor; use --causal or --window{}", option,
                           problem.file == nullptr ? ", or draw one with --mask" : "");
    }
    return std::nullopt;
}

void load(Problem& problem, Needs needs) {
    if (problem.file == nullptr) {
        draw(problem, needs);
        return;
    }
    for_each_slot([&](const auto& slot) {
        HostTensor& tensor = problem.*slot.tensor;
        if (tensor.present()) problem.file->load(tensor);
    });
}

}  // namespace fascore::cli
