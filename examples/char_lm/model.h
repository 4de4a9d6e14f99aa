// SPDX-License-Identifier: Apache-2.0
//
// A small decoder-only transformer over characters: V characters, context S, width C = N heads × D, L blocks.
//
//   tokens [B, S] ─ embedding + position ─► x [B·S, C]          the residual stream: every block adds to it
//   L times:   x += attention(rms_norm(x) · W_qkv) · W_out       W_qkv [C, 3·C]    W_out [C, C]
//              x += gelu(rms_norm(x) · W_up) · W_down            W_up  [C, 4·C]    W_down [4·C, C]
//   logits [B·S, V] = rms_norm(x) · W_head                       no biases anywhere
//   loss = mean cross-entropy of the next character
//
// All parameters lie in one array and all gradients in another of the same order, so that the optimiser, the gradient
// norm and the gradient check see two plain vectors; Weights names the tensors inside either of them.
#pragma once

#include <string>
#include <vector>

#include "attention.h"
#include "layers.h"

namespace char_lm {

struct ModelConfig {
    Index V = 0;    ///< characters in the vocabulary
    Index S = 128;  ///< longest context
    Index C = 128;  ///< width, a multiple of N
    Index N = 4;    ///< heads
    Index L = 4;    ///< blocks
    Precision precision = Precision::native;
    int threads = 1;
};

/// Pointers to the tensors inside a flat array of parameters, or of gradients.
template <class Real>
struct Weights {
    struct Block {
        Real *norm_attention, *W_qkv, *W_out, *norm_mlp, *W_up, *W_down;
    };
    Real *embedding, *positions, *norm_final, *W_head;
    std::vector<Block> blocks;
};

/// One tensor of the flat array.
struct ParameterTensor {
    std::string name;
    Index offset = 0, count = 0;
    double deviation = 0;  ///< of the normal distribution it starts from; 0 means it starts as ones (a gain)
};

template <class Real>
class Model {
  public:
    Model(const ModelConfig& config, std::uint64_t seed);

    /// Mean loss over B sequences of `length` ≤ S characters, targets being the characters that follow. Keeps the
    /// activations that backward() needs.
    double forward(const Token* tokens, const Token* targets, Index B, Index length);

    /// The gradient of that loss by every parameter, into gradients().
    void backward();

    [[nodiscard]] const ModelConfig& config() const { return config_; }
    [[nodiscard]] const std::vector<ParameterTensor>& tensors() const { return tensors_; }
    [[nodiscard]] std::vector<Real>& parameters() { return parameters_; }
    [[nodiscard]] std::vector<Real>& gradients() { return gradients_; }

    /// Logits [B·length, V] of the last forward.
    [[nodiscard]] const std::vector<Real>& logits() const { return logits_; }

    /// What one attention layer saw in the last forward and backward: qkv [B, S, 3, N, D] and dy [B, S, N, D].
    struct AttentionRecord {
        AttentionShape shape;
        const Real *qkv, *dy;
    };
    [[nodiscard]] AttentionRecord attention_record(Index block) const;

  private:
    /// What a block keeps from its forward for its backward. Widths beside the names; rows are B·S throughout.
    struct BlockActivations {
        explicit BlockActivations(const ModelConfig& config) : attention(config.precision, config.threads) {}

        std::vector<Real> x;                              // C     the stream as it entered the block
        std::vector<Real> normed_attention, r_attention;  // C, 1
        std::vector<Real> qkv, attention_out;             // 3·C, C
        std::vector<Real> x_middle;                       // C     the stream between attention and MLP
        std::vector<Real> normed_mlp, r_mlp;              // C, 1
        std::vector<Real> up, activated;                  // 4·C, 4·C
        std::vector<Real> dy;                             // C     gradient of attention_out
        CausalSelfAttention<Real> attention;
    };

    Weights<Real> bind(std::vector<Real>& flat) const;
    void fit_activations(Index rows);

    ModelConfig config_;
    std::vector<ParameterTensor> tensors_;
    std::vector<Real> parameters_, gradients_;

    std::vector<BlockActivations> blocks_;
    std::vector<Real> x_, normed_final_, r_final_, logits_, dlogits_;
    std::vector<Real> branch_;             // C: what a branch is about to add to the stream
    std::vector<Real> dx_, dbranch_;       // C: gradient of the stream, and of a branch's input
    std::vector<Real> dwide_, dwide_too_;  // 4·C: gradients inside the branches
    std::vector<Token> tokens_;
    Index B_ = 0, length_ = 0;
};

}  // namespace char_lm
