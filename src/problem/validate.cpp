// SPDX-License-Identifier: Apache-2.0
//
// The two operators' rules in order (rules.h says where each stands). A rule that is broken names the parameter, what
// was given and what is allowed; the first one broken wins:
//
//   1  parameters              those that can be judged alone
//   2  query, key, value       each, together, rope parts; sequences of a packed call; numbers narrowed with the dtype
//   3  the tensors that follow from them: attention_out, dy, statistics, sink, gradients
//   4  atten_mask, tokens and prefix; pse; dropout: what the band must be known for comes after it
//   5  addresses: outputs against other tensors
//
// docs/errors.md lists the texts; tests/problem/validate_test.cpp holds them.
#include "problem/validate.h"

#include "base/dtype.h"
#include "problem/rules.h"

namespace fascore {

namespace {

Status common_inputs(Call& call, const AttentionInputs& in, const TensorDims& output) {
    Problem& p = call.problem;
    const Status status = in_order([&] { return parameter_rules(call); }, [&] { return input_rules(call, in, output); },
                                   [&] { return packed_rules(call); }, [&] { return precision_rules(call); },
                                   [&] { return scale_rule(call, "d_scale_q", in.d_scale_q, true, p.query.scale); },
                                   [&] { return scale_rule(call, "d_scale_k", in.d_scale_k, false, p.key.scale); },
                                   [&] { return scale_rule(call, "d_scale_v", in.d_scale_v, false, p.value.scale); });
    if (!status.ok()) return status;
    // As if appended to query and key: their factors hold for the rope columns too.
    p.query_rope.scale = p.query.scale;
    p.key_rope.scale = p.key.scale;
    return {};
}

Status mask_bias_dropout(Call& call, const AttentionInputs& in) {
    return in_order([&] { return mask_rules(call, in.atten_mask); }, [&] { return band_rules(call); },
                    [&] { return bias_rules(call, in.pse); }, [&] { return dropout_rules(call, in.drop_mask); });
}

// Inputs that are read: what is ignored may lie anywhere, and has not been looked at.
ConstTensorView read_mask(const Call& call, const AttentionInputs& in) {
    return call.problem.mask.present || call.params.check_mask ? in.atten_mask : ConstTensorView();
}
ConstTensorView read_drop_mask(const Call& call, const AttentionInputs& in) {
    return call.problem.dropout.bits != nullptr ? in.drop_mask : ConstTensorView();
}

Status forward(Call& call, const ForwardInputs& in, const ForwardOutputs& out) {
    Problem& p = call.problem;
    p.direction = Direction::forward;
    const auto statistic = [&](const char* parameter, const TensorView& view, Statistic& where) {
        return call.given(view) ? statistic_rule(call, parameter, view, where) : Status();
    };
    const Status status = in_order(
        [&] { return common_inputs(call, in, out.attention_out); },
        [&] { return result(call, "attention_out", out.attention_out, like_output(call), true, p.attention_out); },
        [&] { return statistic("softmax_max", out.softmax_max, p.softmax_max); },
        [&] { return statistic("softmax_sum", out.softmax_sum, p.softmax_sum); },
        [&] { return sink_rules(call, in.sink); }, [&] { return mask_bias_dropout(call, in); });
    if (!status.ok() || call.pointers == Pointers::ignored) return status;
    return apart(
        {{"attention_out", out.attention_out}, {"softmax_max", out.softmax_max}, {"softmax_sum", out.softmax_sum}},
        {{"query", in.query},
         {"key", in.key},
         {"value", in.value},
         {"query_rope", in.query_rope},
         {"key_rope", in.key_rope},
         {"atten_mask", read_mask(call, in)},
         {"pse", in.pse},
         {"drop_mask", read_drop_mask(call, in)},
         {"sink", in.sink},
         {"d_scale_q", in.d_scale_q},
         {"d_scale_k", in.d_scale_k},
         {"d_scale_v", in.d_scale_v}});
}

Status gradient_of_output(Call& call, const BackwardInputs& in) {
    Problem& p = call.problem;
    const Status status =
        in_order([&] { return data_tensor(call, "dy", in.dy); }, [&] { return input_dtype(call, "dy", in.dy.dtype); },
                 [&] { return same_as(call, "dy", in.dy, like_output(call), p.dy.stride); },
                 [&] { return scale_rule(call, "d_scale_dy", in.d_scale_dy, true, p.dy.scale); });
    if (!status.ok()) return status;
    p.dy.data = static_cast<const std::byte*>(in.dy.data);
    p.dy.dtype = in.dy.dtype;
    return {};
}

// The reference computes what it is not given.
Status statistics(Call& call, const BackwardInputs& in) {
    Problem& p = call.problem;
    struct Stored {
        const char* parameter;
        const ConstTensorView& view;
        Statistic& statistic;
        bool optional;
    };
    for (const Stored& stored : {Stored{"softmax_max", in.softmax_max, p.softmax_max, call.from_reference()},
                                 Stored{"softmax_sum", in.softmax_sum, p.softmax_sum, call.from_reference()},
                                 Stored{"dlse", in.dlse, p.dlse, true}}) {
        if (stored.optional && !call.given(stored.view)) continue;
        const Status status =
            in_order([&] { return required(call, stored.parameter, stored.view); },
                     [&] { return statistic_rule(call, stored.parameter, stored.view, stored.statistic); });
        if (!status.ok()) return status;
    }
    if (p.softmax_max.wanted != p.softmax_sum.wanted) {
        return p.softmax_max.wanted ? refuse("softmax_sum", "absent", "must be given when softmax_max is")
                                    : refuse("softmax_max", "absent", "must be given when softmax_sum is");
    }
    return {};
}

Status stored_output(Call& call, const BackwardInputs& in) {
    const ConstTensorView& view = in.attention_out;
    if (call.from_reference() && !call.given(view)) return {};
    Problem& p = call.problem;
    if (Status s = data_tensor(call, "attention_out", view); !s.ok()) return s;
    // As the forward may have written it; the reference wrote f64.
    const bool any = is_8bit(p.dtype);
    const bool narrow = one_of(p.dtype, {DType::bf16, DType::f16});
    const bool allowed = any ? one_of(view.dtype, {DType::bf16, DType::f16, DType::f32})
                             : view.dtype == p.dtype || (narrow && view.dtype == DType::f32);
    if (!allowed && !(call.from_reference() && view.dtype == DType::f64)) {
        return refuse("attention_out", dtype_is(view.dtype),
                      any      ? "must be bf16, f16 or f32 for query's " + text(p.dtype)
                      : narrow ? "must be query's " + text(p.dtype) + " or f32"
                               : "must equal query's " + text(p.dtype));
    }
    if (Status s = same_as(call, "attention_out", view, like_output(call), p.attention_in.stride); !s.ok()) return s;
    p.attention_in.data = static_cast<const std::byte*>(view.data);
    p.attention_in.dtype = view.dtype;
    return {};
}

Status gradients(Call& call, const BackwardOutputs& out) {
    Problem& p = call.problem;
    struct Wanted {
        const char* parameter;
        const TensorView& view;
        const Placed& shape;
        const char* owner;
        Result& result;
    };
    bool any = call.given(out.dpse) || call.given(out.dsink);
    for (const Wanted& wanted :
         {Wanted{"dq", out.dq, call.query, "query", p.dq}, Wanted{"dk", out.dk, call.key, "key", p.dk},
          Wanted{"dv", out.dv, call.value, "value", p.dv}}) {
        if (!call.given(wanted.view)) continue;
        any = true;
        Status s = result(call, wanted.parameter, wanted.view, like(wanted.shape, wanted.owner), false, wanted.result);
        if (!s.ok()) return s;
    }
    for (const Wanted& wanted : {Wanted{"dq_rope", out.dq_rope, call.query, "query", p.dq_rope},
                                 Wanted{"dk_rope", out.dk_rope, call.key, "key", p.dk_rope}}) {
        if (!call.given(wanted.view)) continue;
        any = true;
        Status s = rope_result(call, wanted.parameter, wanted.view, wanted.shape, wanted.owner, wanted.result);
        if (!s.ok()) return s;
    }
    if (any) return {};
    return refuse("dq", "absent, and so are dk, dv, dq_rope, dk_rope, dpse and dsink", "at least one must be given");
}

Status backward(Call& call, const BackwardInputs& in, const BackwardOutputs& out) {
    call.problem.direction = Direction::backward;
    const Status status =
        in_order([&] { return common_inputs(call, in, in.dy); }, [&] { return gradient_of_output(call, in); },
                 [&] { return statistics(call, in); }, [&] { return stored_output(call, in); },
                 [&] { return gradients(call, out); }, [&] { return sink_rules(call, in.sink); },
                 [&] { return sink_gradient_rules(call, out.dsink); }, [&] { return mask_bias_dropout(call, in); },
                 [&] { return bias_gradient_rules(call, in.pse, out.dpse); });
    if (!status.ok() || call.pointers == Pointers::ignored) return status;
    return apart({{"dq", out.dq},
                  {"dk", out.dk},
                  {"dv", out.dv},
                  {"dq_rope", out.dq_rope},
                  {"dk_rope", out.dk_rope},
                  {"dpse", out.dpse},
                  {"dsink", out.dsink}},
                 {{"query", in.query},
                  {"key", in.key},
                  {"value", in.value},
                  {"query_rope", in.query_rope},
                  {"key_rope", in.key_rope},
                  {"dy", in.dy},
                  {"softmax_max", in.softmax_max},
                  {"softmax_sum", in.softmax_sum},
                  {"attention_out", in.attention_out},
                  {"dlse", in.dlse},
                  {"atten_mask", read_mask(call, in)},
                  {"pse", in.pse},
                  {"drop_mask", read_drop_mask(call, in)},
                  {"sink", in.sink},
                  {"d_scale_q", in.d_scale_q},
                  {"d_scale_k", in.d_scale_k},
                  {"d_scale_v", in.d_scale_v},
                  {"d_scale_dy", in.d_scale_dy}});
}

}  // namespace

Status make_problem(const AttentionParams& params, const ForwardInputs& in, const ForwardOutputs& out,
                    Pointers pointers, Audience audience, Problem& problem) {
    problem = Problem();
    problem.stated = params;
    Call call{params, pointers, audience, problem, {}, {}, {}, 0};
    return forward(call, in, out);
}

Status make_problem(const AttentionParams& params, const BackwardInputs& in, const BackwardOutputs& out,
                    Pointers pointers, Audience audience, Problem& problem) {
    problem = Problem();
    problem.stated = params;
    Call call{params, pointers, audience, problem, {}, {}, {}, 0};
    return backward(call, in, out);
}

}  // namespace fascore
