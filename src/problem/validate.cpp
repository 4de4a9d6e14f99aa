// SPDX-License-Identifier: Apache-2.0
//
// Every rule of the public structs, once. A rule that is broken names the parameter, what was given and what is
// allowed; the first one broken wins, in this order:
//
//   1  parameters          layout, modes, head_num's sign, scale, options of later versions
//   2  tensors on their own    present, rank, extents, dtype set, addressable
//   3  query, key, value together: B, N, S, D, dtype; limits of size
//   4  the tensors that follow from them: dy, attention_out, gradients, statistics, mask
//   5  the band
//   6  outputs: their own strides, and addresses shared with other tensors
//
// Nothing is written before all of them hold. Texts are built only when a rule is broken: a good call allocates
// nothing here. docs/errors.md lists the texts; tests/problem/validate_test.cpp holds them.
#include "problem/validate.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "problem/layout.h"
#include "problem/mask.h"

namespace fascore {

namespace {

constexpr std::int64_t most_batches = std::int64_t{2} << 20;  // 2M
constexpr std::int64_t most_rows = std::int64_t{1} << 20;     // 1M
constexpr std::int64_t most_heads = 256;
constexpr std::int64_t most_columns = 768;
constexpr std::int64_t compressed_side = 2048;  // rows and columns of the mask of modes 2, 3 and 4

// ---- words ---------------------------------------------------------------------------------------------------------

std::string text(std::int64_t value) { return std::to_string(value); }

std::string text(double value) {
    std::array<char, 32> digits{};
    const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    return {digits.data(), result.ptr};
}

std::string text(Layout layout) {
    const std::string_view known = name(layout);
    return known == "unknown" ? "value " + text(static_cast<std::int64_t>(layout)) : std::string(known);
}

std::string text(DType dtype) {
    const std::string_view known = name(dtype);
    return known == "unknown" ? "value " + text(static_cast<std::int64_t>(dtype)) : std::string(known);
}

// "[2, 4, 5, 8]"; a rank that is not one shows what there is.
template <class Extents>
std::string shape_text(const Extents& extents, int rank) {
    std::string words = "[";
    for (int axis = 0; axis < std::min(rank, static_cast<int>(extents.size())); ++axis) {
        if (axis > 0) words += ", ";
        words += text(std::int64_t{extents[static_cast<std::size_t>(axis)]});
    }
    return words + "]";
}

// "a", "a or b", "a, b or c"
std::string either(const std::vector<std::string>& words) {
    std::string sentence;
    for (std::size_t k = 0; k < words.size(); ++k) {
        if (k > 0) sentence += k + 1 == words.size() ? " or " : ", ";
        sentence += words[k];
    }
    return sentence;
}

Status refuse(std::string_view parameter, const std::string& given, const std::string& allowed) {
    return {StatusCode::invalid_argument, std::string(parameter) + ": " + given + ", " + allowed};
}

// ---- shapes --------------------------------------------------------------------------------------------------------

// A small list of extents to compare a tensor's shape with.
struct Shape {
    std::array<std::int64_t, 4> extents{};
    int rank = 0;

    Shape(std::initializer_list<std::int64_t> values) {
        for (const std::int64_t value : values) extents[static_cast<std::size_t>(rank++)] = value;
    }
    [[nodiscard]] bool matches(const TensorDims& dims) const {
        if (dims.rank != rank) return false;
        for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
            if (dims.shape[axis] != extents[axis]) return false;
        }
        return true;
    }
    [[nodiscard]] std::string words() const { return shape_text(extents, rank); }
};

bool one_of(DType dtype, std::initializer_list<DType> allowed) {
    for (const DType candidate : allowed) {
        if (dtype == candidate) return true;
    }
    return false;
}

// Some extent is 0. (The product of unchecked extents may overflow, and an unchecked rank may be anything.)
bool is_empty(const TensorDims& dims) {
    const int axes = std::clamp(dims.rank, 0, max_rank);
    return std::find(dims.shape.begin(), dims.shape.begin() + axes, 0) != dims.shape.begin() + axes;
}

// True when no element's byte offset leaves an int64: Σ (extent − 1) · |stride| · size stays below 2^62.
bool addressable(const TensorDims& dims) {
    constexpr std::int64_t limit = std::int64_t{1} << 62;
    std::int64_t reach = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(dims.rank); ++axis) {
        if (dims.shape[axis] <= 1) continue;
        std::int64_t stride = dims.stride[axis];
        if (stride == std::numeric_limits<std::int64_t>::min()) return false;
        if (stride < 0) stride = -stride;
        std::int64_t step = 0;
        if (__builtin_mul_overflow(stride, (dims.shape[axis] - 1) * size_of(dims.dtype), &step)) return false;
        if (step > limit - reach) return false;
        reach += step;
    }
    return true;
}

// ---- the rules -----------------------------------------------------------------------------------------------------

// One call's worth of rules: what was given, who asks, and the Problem as far as it is known.
class Validator {
  public:
    Validator(const AttentionParams& params, Pointers pointers, Audience audience, Problem& problem)
        : params_(params), pointers_(pointers), audience_(audience), problem_(problem) {}

    Status forward(const ForwardInputs& in, const ForwardOutputs& out);
    Status backward(const BackwardInputs& in, const BackwardOutputs& out);

  private:
    // An extent, where it must come from, and the words for both.
    struct Extent {
        std::int64_t value = 0;
        const char* owner = "query";
    };
    struct Expected {
        Extent B, N, S, D;
    };

    Status parameters() const;
    Status window_bound(std::string_view parameter, std::int64_t bound) const;
    Status later_versions(const ConstTensorView& pse) const;
    Status required(std::string_view parameter, const ConstTensorView& view) const;
    Status extents(std::string_view parameter, const TensorDims& dims) const;
    Status data_tensor(std::string_view parameter, const ConstTensorView& view) const;
    Status inputs(const ConstTensorView& query, const ConstTensorView& key, const ConstTensorView& value,
                  const TensorDims& output);
    Status heads_of(const ConstTensorView& query, const ConstTensorView& key, const ConstTensorView& value,
                    const TensorDims& output);
    Status agreement() const;
    Status sizes() const;
    Status same_as(std::string_view parameter, const TensorDims& dims, const Expected& expected, Strides& stride) const;
    Status input_dtype(std::string_view parameter, DType dtype) const;
    Status output_dtype(std::string_view parameter, DType dtype, bool also_f32) const;
    Status statistic(std::string_view parameter, const ConstTensorView& view, Statistic& statistic) const;
    Status mask(const ConstTensorView& view);
    Status tokens() const;
    Status result(std::string_view parameter, const TensorView& view, const Expected& expected, bool also_f32,
                  Result& result) const;
    Status own_strides(std::string_view parameter, const TensorDims& dims) const;
    void finish();

    // Passed by the caller: some optional tensors may be left out, by rank 0 or by a null pointer.
    [[nodiscard]] bool given(const ConstTensorView& view) const {
        return view.rank != 0 && (pointers_ == Pointers::ignored || view.data != nullptr || is_empty(view));
    }

    [[nodiscard]] Expected like_query() const {
        return {{query_.B, "query"}, {query_.N, "query"}, {query_.S, "query"}, {query_.D, "query"}};
    }
    [[nodiscard]] Expected like_key() const {
        return {{key_.B, "key"}, {key_.N, "key"}, {key_.S, "key"}, {key_.D, "key"}};
    }
    [[nodiscard]] Expected like_value() const {
        return {{value_.B, "value"}, {value_.N, "value"}, {value_.S, "value"}, {value_.D, "value"}};
    }
    // dy and attention_out: rows and heads of query, columns of value.
    [[nodiscard]] Expected like_output() const {
        return {{query_.B, "query"}, {query_.N, "query"}, {query_.S, "query"}, {value_.D, "value"}};
    }
    [[nodiscard]] bool from_reference() const { return audience_ == Audience::reference; }

    const AttentionParams& params_;
    Pointers pointers_;
    Audience audience_;
    Problem& problem_;
    Placed query_;
    Placed key_;
    Placed value_;
};

// Addresses of the tensors of a call, for the last rule.
struct Named {
    std::string_view parameter;
    const void* data;
};

// Two non-empty tensors with one base address share their first element at least. (Views that merely interleave, such
// as slices of one fused gradient buffer, are legal, so spans of addresses decide nothing.)
Status apart(std::initializer_list<Named> outputs, std::initializer_list<Named> inputs) {
    for (const Named* output = outputs.begin(); output != outputs.end(); ++output) {
        if (output->data == nullptr) continue;
        for (const Named& input : inputs) {
            if (input.data == output->data) {
                return refuse(output->parameter, "data is " + std::string(input.parameter) + "'s",
                              "must not overlap an input");
            }
        }
        for (const Named* earlier = outputs.begin(); earlier != output; ++earlier) {
            if (earlier->data == output->data) {
                return refuse(output->parameter, "data is " + std::string(earlier->parameter) + "'s",
                              "must not overlap another output");
            }
        }
    }
    return {};
}

Named named(std::string_view parameter, const ConstTensorView& view) {
    return {parameter, is_empty(view) || view.rank == 0 ? nullptr : view.data};
}

// ---- 1 parameters ----

Status Validator::window_bound(std::string_view parameter, std::int64_t bound) const {
    if (params_.rule.kind != MaskRule::Kind::window && bound != -1) {
        return refuse(parameter, "given " + text(bound), "must be -1 unless rule.kind is window");
    }
    if (bound < -1) return refuse(parameter, "given " + text(bound), "must be 0 or more, or -1 for no bound");
    return {};
}

Status Validator::parameters() const {
    const AttentionParams& p = params_;
    switch (p.layout) {
        case Layout::BNSD:
        case Layout::BSND:
        case Layout::BSH:
        case Layout::SBH: break;
        default: return refuse("layout", "given " + text(p.layout), "must be BNSD, BSND, BSH or SBH");
    }
    if (p.head_num < 0 || (p.head_num == 0 && heads_are_fused(p.layout))) {
        return refuse("head_num", "given " + text(p.head_num),
                      heads_are_fused(p.layout) ? "must be 1 to 256 for layout " + text(p.layout)
                                                : "must be query's head count, or 0 for not given");
    }
    if (p.sparse_mode < 0 || p.sparse_mode > 4) {
        return refuse("sparse_mode", "given " + text(std::int64_t{p.sparse_mode}),
                      p.sparse_mode >= 5 && p.sparse_mode <= 8 ? "must be 0 to 4 (5 to 8 are not in this version)"
                                                               : "must be 0 to 4");
    }
    if (p.rule.kind > MaskRule::Kind::window) {
        return refuse("rule.kind", "given value " + text(static_cast<std::int64_t>(p.rule.kind)),
                      "must be none, causal_top_left, causal_bottom_right or window");
    }
    if (Status s = window_bound("rule.left", p.rule.left); !s.ok()) return s;
    if (Status s = window_bound("rule.right", p.rule.right); !s.ok()) return s;
    if (!std::isfinite(p.scale)) return refuse("scale", "given " + text(p.scale), "must be a finite number");
    if (p.inner_precise < 0 || p.inner_precise > 2) {
        return refuse("inner_precise", "given " + text(std::int64_t{p.inner_precise}), "must be 0, 1 or 2");
    }
    return {};
}

Status Validator::later_versions(const ConstTensorView& pse) const {
    const AttentionParams& p = params_;
    if (p.keep_prob != 1.0) {
        return refuse("keep_prob", "given " + text(p.keep_prob), "must be 1 (dropout is not in this version)");
    }
    if (p.softcap != 0.0) {
        return refuse("softcap", "given " + text(p.softcap), "must be 0 (a soft cap is not in this version)");
    }
    if (given(pse)) {
        return refuse("pse", "shape is " + shape_text(pse.shape, pse.rank),
                      "must be absent (position bias is not in this version)");
    }
    // Without a bias, "multiply then add" (0) and "add then multiply" (1) are the same; 2 and 3 need slopes.
    if (p.pse_type != 0 && p.pse_type != 1) {
        return refuse("pse_type", "given " + text(std::int64_t{p.pse_type}), "must be 0 or 1 without pse");
    }
    return {};
}

// ---- 2 tensors on their own ----

Status Validator::extents(std::string_view parameter, const TensorDims& dims) const {
    if (dims.rank < 0 || dims.rank > max_rank) {
        return refuse(parameter, "rank is " + text(std::int64_t{dims.rank}),
                      "must be 0 to " + text(std::int64_t{max_rank}));
    }
    // With every extent at most 2^31, and the ranks and sizes checked later, no product of sizes overflows.
    constexpr std::int64_t most = std::int64_t{1} << 31;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(dims.rank); ++axis) {
        if (dims.shape[axis] < 0 || dims.shape[axis] > most) {
            return refuse(parameter, "shape is " + shape_text(dims.shape, dims.rank),
                          "every extent must be 0 to " + text(most));
        }
    }
    if (!addressable(dims)) {
        return refuse(parameter, "strides are " + shape_text(dims.stride, dims.rank),
                      "every element must lie within 2^62 bytes of the first");
    }
    return {};
}

Status Validator::required(std::string_view parameter, const ConstTensorView& view) const {
    if (view.rank == 0) return refuse(parameter, "absent", "must be given");
    if (Status s = extents(parameter, view); !s.ok()) return s;
    if (pointers_ == Pointers::required && view.data == nullptr && !is_empty(view)) {
        return refuse(parameter, "data is null", "must point to shape " + shape_text(view.shape, view.rank));
    }
    return {};
}

// A tensor in the data layout: its rank.
Status Validator::data_tensor(std::string_view parameter, const ConstTensorView& view) const {
    if (Status s = required(parameter, view); !s.ok()) return s;
    if (view.rank != rank_of(params_.layout)) {
        return refuse(parameter, "rank is " + text(std::int64_t{view.rank}),
                      "must be " + text(std::int64_t{rank_of(params_.layout)}) + " for layout " + text(params_.layout) +
                          " " + axes_of(params_.layout));
    }
    return {};
}

// ---- 3 query, key, value together ----

// Splits the last axis of fused layouts: D = H1 / head_num, N2 = H2 / D, Dv = H3 / N2, each without remainder.
Status Validator::heads_of(const ConstTensorView& query, const ConstTensorView& key, const ConstTensorView& value,
                           const TensorDims& output) {
    const Layout layout = params_.layout;
    if (!heads_are_fused(layout)) {
        query_ = place(layout, query, 0);
        key_ = place(layout, key, 0);
        value_ = place(layout, value, 0);
        if (params_.head_num != 0 && params_.head_num != query_.N) {
            return refuse("head_num", "given " + text(params_.head_num),
                          "must be query's head count " + text(query_.N) + " (layout " + text(layout) + " " +
                              axes_of(layout) + ") or 0");
        }
        return {};
    }
    const auto last = [](const TensorDims& dims) { return dims.shape[static_cast<std::size_t>(dims.rank - 1)]; };
    const auto indivisible = [&](std::string_view parameter, const TensorDims& dims, const std::string& divisor) {
        return refuse(parameter, "last axis is " + text(last(dims)),
                      "must be a multiple of " + divisor + " (layout " + text(layout) + " " + axes_of(layout) + ")");
    };
    const std::int64_t N1 = params_.head_num;
    if (last(query) % N1 != 0) return indivisible("query", query, "head_num " + text(N1));
    const std::int64_t D = last(query) / N1;
    // With D = 0 nothing tells N2; an empty key has as many heads as query, for want of another answer.
    if (D == 0 ? last(key) != 0 : last(key) % D != 0) return indivisible("key", key, "query's head_dim " + text(D));
    const std::int64_t N2 = D == 0 ? N1 : last(key) / D;
    if (N2 == 0 ? last(value) != 0 : last(value) % N2 != 0) {
        return indivisible("value", value, "key's head count " + text(N2));
    }
    query_ = place(layout, query, N1);
    key_ = place(layout, key, N2);
    value_ = place(layout, value, N2);
    if (N2 == 0) {
        // No kv head to tell head sizes: key's is query's, value's that of the output (attention_out or dy).
        key_.D = D;
        value_.D = output.rank == rank_of(layout) ? last(output) / N1 : D;
    }
    return {};
}

Status Validator::sizes() const {
    struct Limit {
        const char* parameter;
        const char* what;
        std::int64_t given;
        std::int64_t most;
    };
    const Limit limits[] = {
        {"query", "batch", query_.B, most_batches},    {"query", "length", query_.S, most_rows},
        {"key", "length", key_.S, most_rows},          {"query", "head count", query_.N, most_heads},
        {"key", "head count", key_.N, most_heads},     {"query", "head_dim", query_.D, most_columns},
        {"value", "head_dim", value_.D, most_columns},
    };
    for (const Limit& limit : limits) {
        if (limit.given > limit.most) {
            return refuse(limit.parameter, std::string(limit.what) + " is " + text(limit.given),
                          "must be at most " + text(limit.most));
        }
    }
    if (query_.D == 0) return refuse("query", "head_dim is 0", "must be 1 to " + text(most_columns));
    return {};
}

// Key and value against query, axis by axis.
Status Validator::agreement() const {
    struct Pair {
        const char* parameter;
        const char* what;
        std::int64_t given;
        const char* owner;
        std::int64_t wanted;
    };
    const Pair pairs[] = {
        {"key", "batch", key_.B, "query", query_.B},    {"value", "batch", value_.B, "query", query_.B},
        {"key", "head_dim", key_.D, "query", query_.D}, {"value", "head count", value_.N, "key", key_.N},
        {"value", "length", value_.S, "key", key_.S},
    };
    for (const Pair& pair : pairs) {
        if (pair.given != pair.wanted) {
            return refuse(pair.parameter, std::string(pair.what) + " is " + text(pair.given),
                          std::string("must equal ") + pair.owner + "'s " + text(pair.wanted));
        }
    }
    if (key_.N > 0 && query_.N % key_.N != 0) {
        return refuse("key", "head count is " + text(key_.N), "must divide query's " + text(query_.N));
    }
    return {};
}

Status Validator::input_dtype(std::string_view parameter, DType dtype) const {
    if (dtype == problem_.dtype) return {};
    return refuse(parameter, "dtype is " + text(dtype), "must equal query's " + text(problem_.dtype));
}

Status Validator::inputs(const ConstTensorView& query, const ConstTensorView& key, const ConstTensorView& value,
                         const TensorDims& output) {
    if (Status s = data_tensor("query", query); !s.ok()) return s;
    if (Status s = data_tensor("key", key); !s.ok()) return s;
    if (Status s = data_tensor("value", value); !s.ok()) return s;
    if (!one_of(query.dtype, {DType::f64, DType::f32, DType::bf16, DType::f16})) {
        return refuse("query", "dtype is " + text(query.dtype), "must be f64, f32, bf16 or f16");
    }
    problem_.dtype = query.dtype;
    if (Status s = input_dtype("key", key.dtype); !s.ok()) return s;
    if (Status s = input_dtype("value", value.dtype); !s.ok()) return s;
    if (Status s = heads_of(query, key, value, output); !s.ok()) return s;
    if (Status s = agreement(); !s.ok()) return s;
    if (Status s = sizes(); !s.ok()) return s;

    problem_.B = query_.B;
    problem_.N1 = query_.N;
    problem_.N2 = key_.N;
    problem_.G = key_.N == 0 ? 0 : query_.N / key_.N;
    problem_.S1 = query_.S;
    problem_.S2 = key_.S;
    problem_.D = query_.D;
    problem_.Dv = value_.D;
    const auto operand = [](const ConstTensorView& view, const Placed& placed) {
        return Operand{static_cast<const std::byte*>(view.data), view.dtype, placed.stride};
    };
    problem_.query = operand(query, query_);
    problem_.key = operand(key, key_);
    problem_.value = operand(value, value_);

    problem_.scale = params_.scale;
    if (problem_.dtype != DType::f64) {
        problem_.scale = static_cast<double>(static_cast<float>(params_.scale));
        if (!std::isfinite(problem_.scale)) {
            return refuse("scale", "given " + text(params_.scale), "must be finite in f32 unless the tensors are f64");
        }
    }
    return {};
}

// ---- 4 the tensors that follow ----

// A tensor of the data layout whose extents are known.
Status Validator::same_as(std::string_view parameter, const TensorDims& dims, const Expected& expected,
                          Strides& stride) const {
    const Layout layout = params_.layout;
    if (heads_are_fused(layout)) {
        const std::int64_t given = dims.shape[static_cast<std::size_t>(dims.rank - 1)];
        const std::int64_t wanted = expected.N.value * expected.D.value;
        if (given != wanted) {
            return refuse(parameter, "last axis is " + text(given),
                          "must be " + text(wanted) + " (" + expected.N.owner + "'s head count " +
                              text(expected.N.value) + " times " + expected.D.owner + "'s head_dim " +
                              text(expected.D.value) + ")");
        }
    }
    const Placed placed = place(layout, dims, expected.N.value);
    stride = placed.stride;
    struct Axis {
        const char* what;
        std::int64_t given;
        const Extent& wanted;
        bool told;  // by its own axis
    };
    const bool split = !heads_are_fused(layout);
    const Axis axes[] = {{"batch", placed.B, expected.B, true},
                         {"head count", placed.N, expected.N, split},
                         {"length", placed.S, expected.S, true},
                         {"head_dim", placed.D, expected.D, split}};
    for (const Axis& axis : axes) {
        if (axis.told && axis.given != axis.wanted.value) {
            return refuse(parameter, std::string(axis.what) + " is " + text(axis.given),
                          std::string("must equal ") + axis.wanted.owner + "'s " + text(axis.wanted.value));
        }
    }
    return {};
}

Status Validator::output_dtype(std::string_view parameter, DType dtype, bool also_f32) const {
    if (from_reference()) {
        if (dtype == DType::f64) return {};
        return refuse(parameter, "dtype is " + text(dtype), "must be f64 for the reference");
    }
    const bool narrow = one_of(problem_.dtype, {DType::bf16, DType::f16});
    if (dtype == problem_.dtype || (also_f32 && narrow && dtype == DType::f32)) return {};
    return refuse(parameter, "dtype is " + text(dtype),
                  also_f32 && narrow ? "must be query's " + text(problem_.dtype) + " or f32"
                                     : "must equal query's " + text(problem_.dtype));
}

// Elements of an output must not share an address. Two ways that are certain to: an axis that does not move, and two
// axes that move by the same distance.
Status Validator::own_strides(std::string_view parameter, const TensorDims& dims) const {
    if (is_empty(dims)) return {};
    for (std::size_t a = 0; a < static_cast<std::size_t>(dims.rank); ++a) {
        if (dims.shape[a] <= 1) continue;
        if (dims.stride[a] == 0) {
            return refuse(parameter, "stride of axis " + text(static_cast<std::int64_t>(a)) + " is 0",
                          "elements of an output must not share an address");
        }
        for (std::size_t b = 0; b < a; ++b) {
            if (dims.shape[b] > 1 && (dims.stride[a] == dims.stride[b] || dims.stride[a] == -dims.stride[b])) {
                return refuse(parameter, "strides are " + shape_text(dims.stride, dims.rank),
                              "elements of an output must not share an address");
            }
        }
    }
    return {};
}

Status Validator::result(std::string_view parameter, const TensorView& view, const Expected& expected, bool also_f32,
                         Result& result) const {
    if (Status s = data_tensor(parameter, view); !s.ok()) return s;
    if (Status s = output_dtype(parameter, view.dtype, also_f32); !s.ok()) return s;
    if (Status s = same_as(parameter, view, expected, result.stride); !s.ok()) return s;
    if (Status s = own_strides(parameter, view); !s.ok()) return s;
    result.data = static_cast<std::byte*>(view.data);
    result.dtype = view.dtype;
    result.wanted = true;
    return {};
}

// softmax_max and softmax_sum, written by the forward and read by the gradient.
Status Validator::statistic(std::string_view parameter, const ConstTensorView& view, Statistic& statistic) const {
    if (Status s = extents(parameter, view); !s.ok()) return s;
    const std::int64_t B = problem_.B;
    const std::int64_t N1 = problem_.N1;
    const std::int64_t S1 = problem_.S1;
    const Shape eight{B, N1, S1, 8};
    const Shape one{B, N1, S1, 1};
    const Shape plain{B, N1, S1};
    if (!eight.matches(view) && !one.matches(view) && !plain.matches(view)) {
        return refuse(parameter, "shape is " + shape_text(view.shape, view.rank),
                      "must be " + either({eight.words(), one.words(), plain.words()}));
    }
    const DType own = problem_.dtype == DType::f64 ? DType::f64 : DType::f32;
    const bool writes = problem_.direction == Direction::forward;
    bool allowed = view.dtype == own;
    if (from_reference()) allowed = view.dtype == DType::f64 || (!writes && view.dtype == DType::f32);
    if (!allowed) {
        const char* reference_rule = writes ? "must be f64 for the reference" : "must be f32 or f64 for the reference";
        return refuse(
            parameter, "dtype is " + text(view.dtype),
            from_reference() ? reference_rule : "must be " + text(own) + " for query's " + text(problem_.dtype));
    }
    if (writes) {
        if (Status s = own_strides(parameter, view); !s.ok()) return s;
    }
    // One type serves both directions; a gradient only ever reads through it.
    statistic.data = static_cast<std::byte*>(const_cast<void*>(view.data));
    statistic.dtype = view.dtype;
    statistic.stride = {view.stride[0], view.stride[1], view.stride[2], view.rank == 4 ? view.stride[3] : 1};
    statistic.copies = view.rank == 4 ? view.shape[3] : 1;
    statistic.wanted = true;
    return {};
}

Status Validator::mask(const ConstTensorView& view) {
    problem_.mask_given = given(view);
    if (!problem_.mask_given) return {};
    if (Status s = extents("atten_mask", view); !s.ok()) return s;
    if (!one_of(view.dtype, {DType::boolean, DType::u8})) {
        return refuse("atten_mask", "dtype is " + text(view.dtype), "must be bool or u8");
    }
    const auto wrong = [&](const std::vector<std::string>& allowed) {
        return refuse("atten_mask", "shape is " + shape_text(view.shape, view.rank),
                      "must be " + either(allowed) + " in sparse_mode " + text(std::int64_t{params_.sparse_mode}));
    };
    if (params_.sparse_mode >= 2) {
        // A template by contract: the band says the same, for any length, so its elements are not read.
        const Shape flat{compressed_side, compressed_side};
        const Shape leading{1, 1, compressed_side, compressed_side};
        if (!flat.matches(view) && !leading.matches(view)) return wrong({flat.words(), leading.words()});
        return {};
    }
    const std::int64_t B = problem_.B;
    const std::int64_t N1 = problem_.N1;
    const std::int64_t S1 = problem_.S1;
    const std::int64_t S2 = problem_.S2;
    const Shape shapes[] = {{B, N1, S1, S2}, {B, 1, S1, S2}, {1, 1, S1, S2}, {S1, S2}};
    bool known = false;
    for (const Shape& shape : shapes) known = known || shape.matches(view);
    if (!known) return wrong({shapes[0].words(), shapes[1].words(), shapes[2].words(), shapes[3].words()});

    MaskTensor& mask = problem_.mask;
    const std::size_t row = view.rank == 4 ? 2 : 0;
    mask.data = static_cast<const std::uint8_t*>(view.data);
    mask.present = true;
    mask.stride_b = view.rank == 4 && view.shape[0] > 1 ? view.stride[0] : 0;
    mask.stride_n = view.rank == 4 && view.shape[1] > 1 ? view.stride[1] : 0;
    mask.stride_i = view.stride[row];
    mask.stride_j = view.stride[row + 1];
    return {};
}

// ---- 5 the band ----

// Only what no reading of the operator allows is refused. A band that misses the matrix is defined: its rows see
// nothing.
Status Validator::tokens() const {
    const int mode = params_.sparse_mode;
    if (!problem_.mask_given || (mode != 0 && mode != 4)) return {};
    const std::int64_t pre = params_.pre_tokens;
    const std::int64_t next = params_.next_tokens;
    const auto refused = [&](const char* allowed) {
        return refuse("pre_tokens", "given " + text(pre) + " with next_tokens " + text(next),
                      std::string(allowed) + " in sparse_mode " + text(std::int64_t{mode}));
    };
    if (mode == 0 && pre < 0 && next < 0) return refused("must not both be negative");
    // In mode 4 both are measured from the other corner, pre − δ and next + δ: the sum is the same.
    const auto saturate = [](std::int64_t tokens) { return std::clamp(tokens, -unlimited_tokens, unlimited_tokens); };
    if (saturate(pre) + saturate(next) < 0) return refused("must add up to 0 or more");
    return {};
}

void Validator::finish() {
    problem_.band = make_band(params_, problem_.mask_given, problem_.S1, problem_.S2);
    problem_.stated = params_;
}

// ---- the two operators ----

Status Validator::forward(const ForwardInputs& in, const ForwardOutputs& out) {
    problem_.direction = Direction::forward;
    if (Status s = parameters(); !s.ok()) return s;
    if (Status s = later_versions(in.pse); !s.ok()) return s;
    if (Status s = inputs(in.query, in.key, in.value, out.attention_out); !s.ok()) return s;
    if (Status s = result("attention_out", out.attention_out, like_output(), true, problem_.attention_out); !s.ok()) {
        return s;
    }
    if (given(out.softmax_max)) {
        if (Status s = statistic("softmax_max", out.softmax_max, problem_.softmax_max); !s.ok()) return s;
    }
    if (given(out.softmax_sum)) {
        if (Status s = statistic("softmax_sum", out.softmax_sum, problem_.softmax_sum); !s.ok()) return s;
    }
    if (Status s = mask(in.atten_mask); !s.ok()) return s;
    if (Status s = tokens(); !s.ok()) return s;
    if (pointers_ == Pointers::required) {
        Status s = apart({named("attention_out", out.attention_out), named("softmax_max", out.softmax_max),
                          named("softmax_sum", out.softmax_sum)},
                         {named("query", in.query), named("key", in.key), named("value", in.value),
                          named("atten_mask", in.atten_mask)});
        if (!s.ok()) return s;
    }
    finish();
    return {};
}

Status Validator::backward(const BackwardInputs& in, const BackwardOutputs& out) {
    problem_.direction = Direction::backward;
    if (Status s = parameters(); !s.ok()) return s;
    if (Status s = later_versions(in.pse); !s.ok()) return s;
    if (Status s = inputs(in.query, in.key, in.value, in.dy); !s.ok()) return s;

    if (Status s = data_tensor("dy", in.dy); !s.ok()) return s;
    if (Status s = input_dtype("dy", in.dy.dtype); !s.ok()) return s;
    if (Status s = same_as("dy", in.dy, like_output(), problem_.dy.stride); !s.ok()) return s;
    problem_.dy.data = static_cast<const std::byte*>(in.dy.data);
    problem_.dy.dtype = in.dy.dtype;

    // The reference computes what it is not given.
    struct Stored {
        const char* parameter;
        const ConstTensorView& view;
        Statistic& statistic;
    };
    for (const Stored& stored : {Stored{"softmax_max", in.softmax_max, problem_.softmax_max},
                                 Stored{"softmax_sum", in.softmax_sum, problem_.softmax_sum}}) {
        if (from_reference() && !given(stored.view)) continue;
        if (Status s = required(stored.parameter, stored.view); !s.ok()) return s;
        if (Status s = statistic(stored.parameter, stored.view, stored.statistic); !s.ok()) return s;
    }
    if (problem_.softmax_max.wanted != problem_.softmax_sum.wanted) {
        return problem_.softmax_max.wanted ? refuse("softmax_sum", "absent", "must be given when softmax_max is")
                                           : refuse("softmax_max", "absent", "must be given when softmax_sum is");
    }
    if (!from_reference() || given(in.attention_out)) {
        if (Status s = data_tensor("attention_out", in.attention_out); !s.ok()) return s;
        const DType dtype = in.attention_out.dtype;
        const bool wide = dtype == DType::f32 && problem_.dtype != DType::f64;
        if (dtype != problem_.dtype && !wide && !(from_reference() && dtype == DType::f64)) {
            return refuse("attention_out", "dtype is " + text(dtype),
                          problem_.dtype == DType::f64   ? std::string("must equal query's f64")
                          : problem_.dtype == DType::f32 ? std::string("must equal query's f32")
                                                         : "must be query's " + text(problem_.dtype) + " or f32");
        }
        if (Status s = same_as("attention_out", in.attention_out, like_output(), problem_.attention_in.stride);
            !s.ok()) {
            return s;
        }
        problem_.attention_in.data = static_cast<const std::byte*>(in.attention_out.data);
        problem_.attention_in.dtype = dtype;
    }

    if (given(out.dq)) {
        if (Status s = result("dq", out.dq, like_query(), false, problem_.dq); !s.ok()) return s;
    }
    if (given(out.dk)) {
        if (Status s = result("dk", out.dk, like_key(), false, problem_.dk); !s.ok()) return s;
    }
    if (given(out.dv)) {
        if (Status s = result("dv", out.dv, like_value(), false, problem_.dv); !s.ok()) return s;
    }
    if (!problem_.dq.wanted && !problem_.dk.wanted && !problem_.dv.wanted) {
        return refuse("dq", "absent, and so are dk and dv", "at least one of the three must be given");
    }

    if (Status s = mask(in.atten_mask); !s.ok()) return s;
    if (Status s = tokens(); !s.ok()) return s;
    if (pointers_ == Pointers::required) {
        Status s = apart({named("dq", out.dq), named("dk", out.dk), named("dv", out.dv)},
                         {named("query", in.query), named("key", in.key), named("value", in.value), named("dy", in.dy),
                          named("softmax_max", in.softmax_max), named("softmax_sum", in.softmax_sum),
                          named("attention_out", in.attention_out), named("atten_mask", in.atten_mask)});
        if (!s.ok()) return s;
    }
    finish();
    return {};
}

}  // namespace

Status make_problem(const AttentionParams& params, const ForwardInputs& in, const ForwardOutputs& out,
                    Pointers pointers, Audience audience, Problem& problem) {
    problem = Problem();
    return Validator(params, pointers, audience, problem).forward(in, out);
}

Status make_problem(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out,
                    Pointers pointers, Audience audience, Problem& problem) {
    problem = Problem();
    return Validator(params, pointers, audience, problem).backward(in, out);
}

}  // namespace fascore
