// SPDX-License-Identifier: Apache-2.0
//
// query, key and value together: B, N, S, D, dtype and the limits of size; the rope parts; the dequantisation factors
// of 8-bit tensors; and the numbers that are narrowed with query's dtype.
#include <cmath>

#include "base/dtype.h"
#include "problem/rules.h"

namespace fascore {

namespace {

constexpr std::int64_t most_batches = std::int64_t{2} << 20;  // 2M
constexpr std::int64_t most_rows = std::int64_t{1} << 20;     // 1M
constexpr std::int64_t most_heads = 256;
constexpr std::int64_t scale_rows = 128;  // rows of an 8-bit tensor that share a dequantisation factor

std::int64_t last_extent(const TensorDims& dims) { return dims.shape[static_cast<std::size_t>(dims.rank - 1)]; }

Status indivisible(const Call& call, std::string_view parameter, const TensorDims& dims, const std::string& divisor) {
    const Layout layout = call.params.layout;
    return refuse(parameter, "last axis is " + text(last_extent(dims)),
                  "must be a multiple of " + divisor + " (layout " + text(layout) + " " + axes_of(layout) + ")");
}

// Splits the last axis of fused layouts: D = H1 / head_num, N2 = H2 / D, Dv = H3 / N2, each without remainder.
Status heads_of(Call& call, const AttentionInputs& in, const TensorDims& output) {
    const Layout layout = call.params.layout;
    if (!heads_are_fused(layout)) {
        call.query = place(layout, in.query, 0);
        call.key = place(layout, in.key, 0);
        call.value = place(layout, in.value, 0);
        if (call.params.head_num != 0 && call.params.head_num != call.query.N) {
            return refuse("head_num", "given " + text(call.params.head_num),
                          "must be query's head count " + text(call.query.N) + " (layout " + text(layout) + " " +
                              axes_of(layout) + ") or 0");
        }
        return {};
    }
    const std::int64_t N1 = call.params.head_num;
    if (last_extent(in.query) % N1 != 0) return indivisible(call, "query", in.query, "head_num " + text(N1));
    const std::int64_t D = last_extent(in.query) / N1;
    // With D = 0 nothing tells N2; an empty key has as many heads as query, for want of another answer.
    if (D == 0 ? last_extent(in.key) != 0 : last_extent(in.key) % D != 0) {
        return indivisible(call, "key", in.key, "query's head_dim " + text(D));
    }
    const std::int64_t N2 = D == 0 ? N1 : last_extent(in.key) / D;
    if (N2 == 0 ? last_extent(in.value) != 0 : last_extent(in.value) % N2 != 0) {
        return indivisible(call, "value", in.value, "key's head count " + text(N2));
    }
    call.query = place(layout, in.query, N1);
    call.key = place(layout, in.key, N2);
    call.value = place(layout, in.value, N2);
    if (N2 == 0) {
        // No kv head to tell head sizes: key's is query's, value's that of the output (attention_out or dy).
        call.key.D = D;
        call.value.D = output.rank == rank_of(layout) ? last_extent(output) / N1 : D;
    }
    return {};
}

// Key and value against query, axis by axis.
Status agreement(const Call& call) {
    const Placed& query = call.query;
    const Placed& key = call.key;
    const Placed& value = call.value;
    struct Pair {
        const char* parameter;
        const char* what;
        std::int64_t given;
        const char* owner;
        std::int64_t wanted;
    };
    const Pair pairs[] = {
        {"key", "batch", key.B, "query", query.B},    {"value", "batch", value.B, "query", query.B},
        {"key", "head_dim", key.D, "query", query.D}, {"value", "head count", value.N, "key", key.N},
        {"value", "length", value.S, "key", key.S},
    };
    for (const Pair& pair : pairs) {
        if (pair.given != pair.wanted) {
            return refuse(pair.parameter, std::string(pair.what) + " is " + text(pair.given),
                          std::string("must equal ") + pair.owner + "'s " + text(pair.wanted));
        }
    }
    if (key.N > 0 && query.N % key.N != 0) {
        return refuse("key", "head count is " + text(key.N), "must divide query's " + text(query.N));
    }
    return {};
}

Status sizes(const Call& call) {
    struct Limit {
        const char* parameter;
        const char* what;
        std::int64_t given;
        std::int64_t most;
    };
    const Limit limits[] = {
        {"query", "batch", call.query.B, most_batches},    {"query", "length", call.query.S, most_rows},
        {"key", "length", call.key.S, most_rows},          {"query", "head count", call.query.N, most_heads},
        {"key", "head count", call.key.N, most_heads},     {"query", "head_dim", call.query.D, most_columns},
        {"value", "head_dim", call.value.D, most_columns},
    };
    for (const Limit& limit : limits) {
        if (limit.given > limit.most) {
            return refuse(limit.parameter, std::string(limit.what) + " is " + text(limit.given),
                          "must be at most " + text(limit.most));
        }
    }
    // Scores without columns would be 0 and have an output: an empty query is let through only with an empty output.
    if (call.query.D == 0 && call.value.D != 0) {
        return refuse("query", "head_dim is 0", "must be 1 to " + text(most_columns) + ", or value's must be 0 too");
    }
    return {};
}

Operand operand(const ConstTensorView& view, const Strides& stride) {
    return {static_cast<const std::byte*>(view.data), view.dtype, stride, {}};
}

// A rope part: the leading axes of `rows`, columns of its own.
Status rope_part(const Call& call, std::string_view parameter, const ConstTensorView& view, const Placed& rows,
                 const char* owner, std::optional<std::int64_t> columns, std::int64_t& found, Operand& part) {
    const Status status = in_order([&] { return data_tensor(call, parameter, view); },
                                   [&] { return input_dtype(call, parameter, view.dtype); });
    if (!status.ok()) return status;
    found = last_extent(view);
    if (heads_are_fused(call.params.layout)) {
        if (rows.N == 0 ? found != 0 : found % rows.N != 0) {
            return indivisible(call, parameter, view, std::string(owner) + "'s head count " + text(rows.N));
        }
        found = rows.N == 0 ? columns.value_or(0) : found / rows.N;
    }
    Expected expected = like(rows, owner);
    expected.D = columns ? Extent{*columns, "query_rope"} : Extent{found, "query_rope"};
    if (Status s = same_as(call, parameter, view, expected, part.stride); !s.ok()) return s;
    part = operand(view, part.stride);
    return {};
}

Status rope_rules(Call& call, const AttentionInputs& in) {
    const bool query_rope = call.given(in.query_rope);
    const bool key_rope = call.given(in.key_rope);
    if (!query_rope && !key_rope) return {};
    if (!query_rope) return refuse("query_rope", "absent", "must be given when key_rope is");
    if (!key_rope) return refuse("key_rope", "absent", "must be given when query_rope is");
    Problem& p = call.problem;
    std::int64_t columns = 0;
    std::int64_t of_key = 0;
    const Status status = in_order(
        [&] { return rope_part(call, "query_rope", in.query_rope, call.query, "query", {}, columns, p.query_rope); },
        [&] { return rope_part(call, "key_rope", in.key_rope, call.key, "key", columns, of_key, p.key_rope); });
    if (!status.ok()) return status;
    const std::int64_t most = call.query.D == 0 ? 0 : most_columns - call.query.D;
    if (columns > most) {
        return refuse("query_rope", "head_dim is " + text(columns),
                      "must be at most " + text(most) + " beside query's head_dim " + text(call.query.D));
    }
    call.rope_columns = columns;
    if (columns == 0) p.query_rope = p.key_rope = Operand();
    return {};
}

}  // namespace

Status input_rules(Call& call, const AttentionInputs& in, const TensorDims& output) {
    Problem& p = call.problem;
    Status status =
        in_order([&] { return data_tensor(call, "query", in.query); }, [&] { return data_tensor(call, "key", in.key); },
                 [&] { return data_tensor(call, "value", in.value); });
    if (!status.ok()) return status;
    if (!one_of(in.query.dtype, {DType::f64, DType::f32, DType::bf16, DType::f16, DType::f8e4m3, DType::f8e5m2})) {
        return refuse("query", dtype_is(in.query.dtype), "must be f64, f32, bf16, f16, f8e4m3 or f8e5m2");
    }
    p.dtype = in.query.dtype;
    status =
        in_order([&] { return input_dtype(call, "key", in.key.dtype); },
                 [&] { return input_dtype(call, "value", in.value.dtype); }, [&] { return heads_of(call, in, output); },
                 [&] { return agreement(call); }, [&] { return sizes(call); }, [&] { return rope_rules(call, in); });
    if (!status.ok()) return status;

    p.B = call.query.B;
    p.N1 = call.query.N;
    p.N2 = call.key.N;
    p.G = p.N2 == 0 ? 0 : p.N1 / p.N2;
    p.S1 = call.query.S;
    p.S2 = call.key.S;
    p.Dr = call.rope_columns;
    p.D = call.query.D + p.Dr;
    p.Dv = call.value.D;
    p.query = operand(in.query, call.query.stride);
    p.key = operand(in.key, call.key.stride);
    p.value = operand(in.value, call.value.stride);
    return {};
}

Status precision_rules(Call& call) {
    const AttentionParams& params = call.params;
    Problem& p = call.problem;
    const bool narrowed = p.dtype != DType::f64;
    const auto narrow = [&](double number) { return narrowed ? narrowed_to_f32(number) : number; };
    p.scale = narrow(params.scale);
    p.softcap = narrow(params.softcap);
    p.dropout.keep_prob = narrow(params.keep_prob);
    if (!std::isfinite(p.scale)) {
        return refuse("scale", "given " + text(params.scale), "must be finite in f32 unless the tensors are f64");
    }
    // 1 / softcap and 1 / keep_prob are formed.
    const double least = narrowed ? 0x1p-126 : 0x1p-1022;
    if (params.softcap != 0.0 && (!std::isfinite(p.softcap) || p.softcap < least)) {
        return refuse("softcap", "given " + text(params.softcap),
                      narrowed ? "must be 0, or a normal number in f32 unless the tensors are f64"
                               : "must be 0 or a normal number");
    }
    if (p.dropout.keep_prob < least) {
        return refuse(
            "keep_prob", "given " + text(params.keep_prob),
            narrowed ? "must be a normal number in f32 unless the tensors are f64" : "must be a normal number");
    }
    return {};
}

// [B, N1, ⌈S/128⌉, 1] or [B, N2, G, ⌈S/128⌉, 1], on the key side [B, N2, ⌈S/128⌉, 1] or [B, N2, 1, ⌈S/128⌉, 1]. In TND
// B counts sequences and S is the longest.
Status scale_rule(const Call& call, std::string_view parameter, const ConstTensorView& view, bool of_query_rows,
                  RowScale& scale) {
    if (!call.given(view)) return {};
    const Problem& p = call.problem;
    if (!is_8bit(p.dtype)) {
        return refuse(parameter, shape_is(view), "must be absent unless query is f8e4m3 or f8e5m2");
    }
    const std::int64_t heads = of_query_rows ? p.N1 : p.N2;
    const std::int64_t group = of_query_rows ? p.G : 1;
    const std::int64_t blocks = ((of_query_rows ? p.S1 : p.S2) + scale_rows - 1) / scale_rows;
    const Status status =
        in_order([&] { return extents(parameter, view); },
                 [&] {
                     return shape_rule(parameter, view, {{p.B, heads, blocks, 1}, {p.B, p.N2, group, blocks, 1}});
                 });
    if (!status.ok()) return status;
    if (view.dtype != DType::f32) return refuse(parameter, dtype_is(view.dtype), "must be f32");
    scale.data = static_cast<const std::byte*>(view.data);
    scale.stride = {view.stride[0], view.stride[1], view.stride[2], 0};
    if (view.rank == 5) {
        // Head h·G + g lies at h·stride[1] + g·stride[2]: one step a head where both axes are longer than 1.
        if (p.N2 > 1 && p.G > 1 && of_query_rows && view.stride[1] != group * view.stride[2]) {
            return refuse(parameter, strides_are(view), "axes 1 and 2 must be one row of heads");
        }
        scale.stride.n = of_query_rows && p.G > 1 ? view.stride[2] : view.stride[1];
        scale.stride.s = view.stride[3];
    }
    return {};
}

Status rope_result(const Call& call, std::string_view parameter, const TensorView& view, const Placed& rows,
                   const char* owner, Result& part) {
    if (call.problem.query_rope.data == nullptr && call.rope_columns == 0) {
        // A part of no columns has a gradient of none.
        if (is_empty(view)) return {};
        return refuse(parameter, shape_is(view), "must be absent without query_rope and key_rope");
    }
    Expected expected = like(rows, owner);
    expected.D = {call.rope_columns, "query_rope"};
    return result(call, parameter, view, expected, false, part);
}

}  // namespace fascore
