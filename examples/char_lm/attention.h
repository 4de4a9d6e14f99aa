// SPDX-License-Identifier: Apache-2.0
//
// Causal multi-head attention of one block of the model: where fascore comes in.
//
// The block's one product x · W_qkv leaves query, key and value of every head side by side. fascore takes them where
// they lie, as strided views; nothing is copied, transposed or split:
//
//   qkv, one position        ┌ query: head 0 … N−1 ┬ key: head 0 … N−1 ┬ value: head 0 … N−1 ┐
//   [B, S, 3, N, D]          └────── N·D ──────────┴────── N·D ────────┴─────── N·D ─────────┘
//
//   query(b, s, n, d) = qkv[b·S·3·N·D + s·3·N·D + 0·N·D + n·D + d]
//   key  (b, s, n, d) =                   …       1·N·D …             strides (S·3·N·D, 3·N·D, D, 1) for all three
//   value(b, s, n, d) =                   …       2·N·D …
//
// The gradient goes the same way into dqkv [B, S, 3, N, D], which is then the dy of the product. attention_out
// [B, S, N, D] is the concatenation of the heads, [B·S, N·D], that the output projection reads.
//
// Number types. The views have the model's own type (f32, or f64 for the gradient check). With Precision::bf16 the
// f32 activations are rounded to bf16 just before the call, as mixed-precision training does: half the bytes, and the
// fast bf16 dot products of the machine; the sums inside stay f32.
#pragma once

#include <cstddef>
#include <vector>

#include "common.h"

namespace char_lm {

enum class Precision : std::uint8_t { native, bf16 };

struct AttentionShape {
    Index B = 0, S = 0, N = 0, D = 0;
    [[nodiscard]] Index elements() const { return B * S * N * D; }
};

template <class Real>
class CausalSelfAttention {
  public:
    /// threads as in fascore::Execution.
    CausalSelfAttention(Precision precision, int threads) : precision_(precision), threads_(threads) {}

    /// attention_out [B, S, N, D] from qkv [B, S, 3, N, D], each query looking at itself and what is before it.
    void forward(const AttentionShape& shape, const Real* qkv, Real* attention_out);

    /// dqkv from dy, the gradient of attention_out; qkv and attention_out as in the last forward.
    void backward(const AttentionShape& shape, const Real* qkv, const Real* attention_out, const Real* dy, Real* dqkv);

  private:
    Precision precision_;
    int threads_;
    std::vector<Real> softmax_max_, softmax_sum_;                // [B, N, S], from the forward to the backward
    std::vector<std::uint16_t> qkv_bf16_, dy_bf16_, dqkv_bf16_;  // used with Precision::bf16 only
    std::vector<std::byte> workspace_;                           // as large as fascore asks, kept between calls
};

/// The scale of the scores, 1/√D.
double attention_scale(Index D);

}  // namespace char_lm
