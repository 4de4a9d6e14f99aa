// SPDX-License-Identifier: Apache-2.0
//
// pse: which of its forms was given, and dpse in the same form.
//
//   pse_type 0, 1   [B|1, N1|1, S1|1, S2]      tensor
//                   [B|1, N1, 1024, S2]        tail       S1 = S2 > 1024, causal (at 1024 it is the full tensor)
//       TND         [N1·Σ Sq·Skv]              tensor     by_pairs
//                   [N1·T2]                    tensor     by_keys: one row a sequence
//                   [B|1, N1, 1024, maxSkv]    diagonal   Sq = Skv everywhere, causal
//   pse_type 2, 3   [B, N1] or [N1]            slope, root_slope
//
// Where one vector could be either of the two TND forms it is read by pairs. They are then the same unless a sequence
// is empty on one side.
#include <algorithm>
#include <limits>

#include "base/dtype.h"
#include "problem/rules.h"

namespace fascore {

namespace {

Status dtype_rule(const Call& call, const ConstTensorView& pse) {
    const DType own = call.problem.dtype;
    const std::string given = dtype_is(pse.dtype);
    if (call.params.pse_type >= 2) {
        if (pse.dtype == DType::f32 || (own == DType::f64 && pse.dtype == DType::f64)) return {};
        return refuse("pse", given,
                      std::string(own == DType::f64 ? "must be f32 or f64" : "must be f32") + " in pse_type " +
                          text(std::int64_t{call.params.pse_type}));
    }
    if (is_8bit(own)) {
        if (one_of(pse.dtype, {DType::bf16, DType::f16, DType::f32})) return {};
        return refuse("pse", given, "must be bf16, f16 or f32 for query's " + text(own));
    }
    if (pse.dtype == own || pse.dtype == DType::f32) return {};
    return refuse("pse", given,
                  own == DType::f32 ? "must equal query's f32" : "must be query's " + text(own) + " or f32");
}

// No pair with j > i is visible.
bool causal(const Band& band) { return band.upper <= 0 && (band.prefix == 0 || band.cap <= 0); }

Status causal_rule(const Call& call, const ConstTensorView& pse) {
    const Problem& p = call.problem;
    bool every = p.sequences.empty() ? causal(p.band) : true;
    for (const Sequence& here : p.sequences) every = every && (here.S1 == 0 || here.S2 == 0 || causal(here.band));
    if (every) return {};
    return refuse("pse", shape_is(pse),
                  "1024 rows (compressed) need a causal rule: sparse_mode, tokens and rule must hide every j > i");
}

bool one_or(std::int64_t given, std::int64_t wanted) { return given == 1 || given == wanted; }

// Strides of a rank-4 tensor, 0 along the axes it is broadcast along.
Strides broadcast_strides(const TensorDims& dims) {
    const auto step = [&](std::size_t axis) { return dims.shape[axis] > 1 ? dims.stride[axis] : 0; };
    return {step(0), step(1), step(2), dims.stride[3]};
}

// [B|1, N1, 1024, S2]: of the last 1024 rows of the longest square.
bool has_compressed_shape(const Problem& p, const ConstTensorView& pse) {
    return pse.rank == 4 && one_or(pse.shape[0], p.B) && pse.shape[1] == p.N1 && pse.shape[2] == compressed_rows &&
           pse.shape[3] == p.S2;
}

Status packed_form(Call& call, const ConstTensorView& pse) {
    Problem& p = call.problem;
    const Sequence& last = p.sequences.back();
    const std::int64_t pairs = last.pairs_begin + last.S1 * last.S2;
    const std::int64_t keys = last.k_begin + last.S2;
    if (has_compressed_shape(p, pse)) {
        for (std::size_t b = 0; b < p.sequences.size(); ++b) {
            const Sequence& here = p.sequences[b];
            if (here.S1 != here.S2) {
                return refuse("pse", shape_is(pse),
                              "1024 rows (compressed) need Sq = Skv in every sequence, sequence " +
                                  text(static_cast<std::int64_t>(b)) + " has " + text(here.S1) + " and " +
                                  text(here.S2));
            }
        }
        p.bias.kind = Bias::Kind::diagonal;
        p.bias.longest = p.S2;
        return causal_rule(call, pse);
    }
    p.bias.kind = Bias::Kind::tensor;
    // Both sides below 2^62: pairs are at most 20000 · 2^40 and heads at most 256.
    if (pse.rank == 1 && pse.shape[0] == p.N1 * pairs) {
        p.bias.placement = Bias::Placement::by_pairs;
        return {};
    }
    if (pse.rank == 1 && (pse.shape[0] == p.N1 * p.T2 || pse.shape[0] == p.N1 * keys)) {
        p.bias.placement = Bias::Placement::by_keys;
        p.bias.elements = pse.shape[0];
        p.bias.over_rows = true;
        return {};
    }
    return shape_rule(
        "pse", pse,
        {{p.N1 * pairs}, {p.N1 * p.T2}, {p.B, p.N1, compressed_rows, p.S2}, {1, p.N1, compressed_rows, p.S2}},
        " in layout TND");
}

Status plain_form(Call& call, const ConstTensorView& pse) {
    Problem& p = call.problem;
    if (pse.rank == 4 && one_or(pse.shape[0], p.B) && one_or(pse.shape[1], p.N1) && one_or(pse.shape[2], p.S1) &&
        pse.shape[3] == p.S2) {
        p.bias.kind = Bias::Kind::tensor;
        p.bias.over_heads = pse.shape[1] == 1 && p.N1 != 1;
        p.bias.over_rows = pse.shape[2] == 1 && p.S1 != 1;
        return {};
    }
    if (has_compressed_shape(p, pse)) {
        if (p.S1 != p.S2 || p.S1 < compressed_rows) {
            return refuse(
                "pse", shape_is(pse),
                "1024 rows (compressed) need S1 = S2 of 1024 or more, they are " + text(p.S1) + " and " + text(p.S2));
        }
        p.bias.kind = Bias::Kind::tail;
        return causal_rule(call, pse);
    }
    return refuse("pse", shape_is(pse),
                  "must be [" + text(p.B) + " or 1, " + text(p.N1) + " or 1, " + text(p.S1) + " or 1, " + text(p.S2) +
                      "], or [" + text(p.B) + " or 1, " + text(p.N1) + ", 1024, " + text(p.S2) + "]");
}

Status start_rule(std::string_view parameter, std::int64_t start) {
    if (start >= -unlimited_tokens && start <= unlimited_tokens) return {};
    return refuse(parameter, "given " + text(start),
                  "must be " + text(-unlimited_tokens) + " to " + text(unlimited_tokens));
}

Status slope_form(Call& call, const ConstTensorView& pse) {
    Problem& p = call.problem;
    const AttentionParams& params = call.params;
    p.bias.kind = params.pse_type == 2 ? Bias::Kind::slope : Bias::Kind::root_slope;
    p.bias.q_start = params.q_start_idx;
    p.bias.k_start = params.kv_start_idx;
    p.bias.first_only = p.packed && p.mask_given && params.sparse_mode == 8;
    return in_order(
        [&] { return start_rule("q_start_idx", params.q_start_idx); },
        [&] { return start_rule("kv_start_idx", params.kv_start_idx); },
        [&] {
            return shape_rule("pse", pse, {{p.B, p.N1}, {p.N1}}, " in pse_type " + text(std::int64_t{params.pse_type}));
        });
}

// A sequence that was cut outside (modes 7 and 8): its rows no longer begin where its columns do, so a position bias
// would be off, except slopes whose starts say so. One sequence alone is a band like any other.
Status cut_rules(const Call& call, const ConstTensorView& pse) {
    const Problem& p = call.problem;
    const int mode = call.params.sparse_mode;
    if (!p.mask_given || mode < 7 || p.B == 1) return {};
    const std::string in_mode = " in sparse_mode " + text(std::int64_t{mode});
    if (mode == 7 || call.params.pse_type < 2) {
        return refuse("pse", shape_is(pse),
                      mode == 7 ? "must be absent" + in_mode : "must be absent or of pse_type 2 or 3" + in_mode);
    }
    for (std::size_t b = 1; b < p.sequences.size(); ++b) {
        const Sequence& here = p.sequences[b];
        if (here.S1 != here.S2) {
            return refuse("pse",
                          "sequence " + text(static_cast<std::int64_t>(b)) + " has lengths " + text(here.S1) + " and " +
                              text(here.S2),
                          "must be equal after the first" + in_mode);
        }
    }
    const Sequence& first = p.sequences.front();
    if (first.S1 - first.S2 + p.bias.q_start - p.bias.k_start != 0) {
        return refuse(
            "q_start_idx", "given " + text(p.bias.q_start) + " with kv_start_idx " + text(p.bias.k_start),
            "must be kv_start_idx + " + text(first.S2 - first.S1) + " (Skv - Sq of the first sequence)" + in_mode);
    }
    return {};
}

// Strides of pse or dpse in the form that was found.
Strides strides_of(const Problem& p, const ConstTensorView& view) {
    if (p.bias.slopes()) {
        if (view.rank == 1) return {0, view.stride[0], 0, 0};
        return {view.stride[0], view.stride[1], 0, 0};
    }
    if (p.bias.placement != Bias::Placement::by_batch) return {0, 0, 0, single_stride(view).value_or(1)};
    return broadcast_strides(view);
}

}  // namespace

Status bias_rules(Call& call, const ConstTensorView& pse) {
    Problem& p = call.problem;
    const int type = call.params.pse_type;
    if (!call.given(pse)) {
        // Without a tensor "multiply, then add" and "add, then multiply" are the same; slopes must come from somewhere.
        if (type < 2) return {};
        return refuse("pse", "absent", "must be given in pse_type " + text(std::int64_t{type}));
    }
    const Status status = in_order(
        [&] { return extents("pse", pse); }, [&] { return dtype_rule(call, pse); },
        [&] { return type >= 2  ? slope_form(call, pse)
                     : p.packed ? packed_form(call, pse)
                                : plain_form(call, pse); },
        [&] { return cut_rules(call, pse); });
    if (!status.ok()) return status;
    p.bias.data = static_cast<const std::byte*>(pse.data);
    p.bias.dtype = pse.dtype;
    p.bias.factor = type == 1 ? p.scale : 1.0;
    p.bias.stride = strides_of(p, pse);
    const bool one_batch = p.bias.slopes() ? pse.rank == 1 : pse.rank == 4 && pse.shape[0] == 1;
    p.bias.over_batches = one_batch && p.B != 1;
    return {};
}

Status bias_gradient_rules(Call& call, const ConstTensorView& pse, const TensorView& dpse) {
    if (!call.given(dpse)) return {};
    Problem& p = call.problem;
    if (Status s = extents("dpse", dpse); !s.ok()) return s;
    if (!p.bias.present()) {
        if (is_empty(dpse)) return {};
        return refuse("dpse", shape_is(dpse), "must be absent without pse");
    }
    if (dpse.rank != pse.rank || !std::equal(dpse.shape.begin(), dpse.shape.begin() + dpse.rank, pse.shape.begin())) {
        return refuse("dpse", shape_is(dpse), "must be pse's " + shape_text(pse.shape, pse.rank));
    }
    bool allowed = dpse.dtype == pse.dtype;
    std::string words = "must equal pse's " + text(pse.dtype);
    if (call.from_reference()) {
        allowed = dpse.dtype == DType::f64;
        words = "must be f64 for the reference";
    } else if (is_8bit(p.dtype) && !p.bias.slopes()) {
        allowed = one_of(dpse.dtype, {DType::bf16, DType::f16, DType::f32});
        words = "must be bf16, f16 or f32 for query's " + text(p.dtype);
    }
    if (!allowed) return refuse("dpse", dtype_is(dpse.dtype), words);
    if (Status s = own_strides("dpse", dpse); !s.ok()) return s;
    p.dpse.data = static_cast<std::byte*>(dpse.data);
    p.dpse.dtype = dpse.dtype;
    p.dpse.stride = strides_of(p, dpse);
    p.dpse.wanted = true;
    return {};
}

}  // namespace fascore
