// SPDX-License-Identifier: Apache-2.0
//
// The calls described in attention.h: make views, ask for the workspace, call.
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <fascore/attention.h>

#include "bf16.h"

namespace char_lm {
namespace {

using fascore::ConstTensorView;
using fascore::DType;
using fascore::TensorView;

enum class Part : std::uint8_t { query = 0, key = 1, value = 2 };

/// One part of a fused [B, S, 3, N, D] buffer, as a BSND tensor.
template <class View, class Element>
View part_of(Element* fused, DType dtype, const AttentionShape& shape, Part part) {
    const auto [B, S, N, D] = shape;
    View view(fused + static_cast<Index>(part) * N * D, dtype, {B, S, N, D});
    view.stride = {S * 3 * N * D, 3 * N * D, D, 1};
    return view;
}

/// Query, key and value of the inputs of either call.
template <class Inputs, class Element>
void set_inputs(Inputs& in, const Element* qkv, DType dtype, const AttentionShape& shape) {
    in.query = part_of<ConstTensorView>(qkv, dtype, shape, Part::query);
    in.key = part_of<ConstTensorView>(qkv, dtype, shape, Part::key);
    in.value = part_of<ConstTensorView>(qkv, dtype, shape, Part::value);
}

template <class Element>
void set_gradients(fascore::BackwardOutputs& out, Element* dqkv, DType dtype, const AttentionShape& shape) {
    out.dq = part_of<TensorView>(dqkv, dtype, shape, Part::query);
    out.dk = part_of<TensorView>(dqkv, dtype, shape, Part::key);
    out.dv = part_of<TensorView>(dqkv, dtype, shape, Part::value);
}

template <class Real>
constexpr DType dtype_of = std::is_same_v<Real, double> ? DType::f64 : DType::f32;

fascore::AttentionParams causal_params(const AttentionShape& shape) {
    fascore::AttentionParams params;
    params.layout = fascore::Layout::BSND;
    params.scale = attention_scale(shape.D);
    params.rule.kind = fascore::MaskRule::Kind::causal_top_left;
    return params;
}

template <class Element>
void fit(std::vector<Element>& buffer, Index count) {
    buffer.resize(static_cast<std::size_t>(count));
}

}  // namespace

double attention_scale(Index D) { return 1 / std::sqrt(static_cast<double>(D)); }

template <class Real>
void CausalSelfAttention<Real>::forward(const AttentionShape& shape, const Real* qkv, Real* attention_out) {
    const auto [B, S, N, D] = shape;
    fit(softmax_max_, B * N * S);
    fit(softmax_sum_, B * N * S);

    fascore::ForwardInputs in;
    if (precision_ == Precision::bf16) {
        fit(qkv_bf16_, 3 * shape.elements());
        to_bf16(qkv, 3 * shape.elements(), qkv_bf16_.data());
        set_inputs(in, qkv_bf16_.data(), DType::bf16, shape);
    } else {
        set_inputs(in, qkv, dtype_of<Real>, shape);
    }
    fascore::ForwardOutputs out;
    out.attention_out = TensorView(attention_out, dtype_of<Real>, {B, S, N, D});  // bf16 inputs may give f32 out
    out.softmax_max = TensorView(softmax_max_.data(), dtype_of<Real>, {B, N, S});
    out.softmax_sum = TensorView(softmax_sum_.data(), dtype_of<Real>, {B, N, S});

    const fascore::AttentionParams params = causal_params(shape);
    fascore::Execution execution;
    execution.threads = threads_;

    std::size_t bytes = 0;
    require(fascore::forward_workspace_bytes(params, in, out, execution, bytes));
    workspace_.resize(std::max(workspace_.size(), bytes));
    require(fascore::attention_forward(params, in, out, execution, workspace_));
}

template <class Real>
void CausalSelfAttention<Real>::backward(const AttentionShape& shape, const Real* qkv, const Real* attention_out,
                                         const Real* dy, Real* dqkv) {
    const auto [B, S, N, D] = shape;

    fascore::BackwardInputs in;
    fascore::BackwardOutputs out;
    if (precision_ == Precision::bf16) {
        fit(dy_bf16_, shape.elements());
        to_bf16(dy, shape.elements(), dy_bf16_.data());
        fit(dqkv_bf16_, 3 * shape.elements());
        set_inputs(in, qkv_bf16_.data(), DType::bf16, shape);
        in.dy = ConstTensorView(dy_bf16_.data(), DType::bf16, {B, S, N, D});
        set_gradients(out, dqkv_bf16_.data(), DType::bf16, shape);
    } else {
        set_inputs(in, qkv, dtype_of<Real>, shape);
        in.dy = ConstTensorView(dy, dtype_of<Real>, {B, S, N, D});
        set_gradients(out, dqkv, dtype_of<Real>, shape);
    }
    in.attention_out = ConstTensorView(attention_out, dtype_of<Real>, {B, S, N, D});
    in.softmax_max = ConstTensorView(softmax_max_.data(), dtype_of<Real>, {B, N, S});
    in.softmax_sum = ConstTensorView(softmax_sum_.data(), dtype_of<Real>, {B, N, S});

    const fascore::AttentionParams params = causal_params(shape);
    fascore::Execution execution;
    execution.threads = threads_;

    std::size_t bytes = 0;
    require(fascore::backward_workspace_bytes(params, in, out, execution, bytes));
    workspace_.resize(std::max(workspace_.size(), bytes));
    require(fascore::attention_backward(params, in, out, execution, workspace_));

    if (precision_ == Precision::bf16) from_bf16(dqkv_bf16_.data(), 3 * shape.elements(), dqkv);
}

template class CausalSelfAttention<float>;
template class CausalSelfAttention<double>;

}  // namespace char_lm
