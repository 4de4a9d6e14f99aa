// SPDX-License-Identifier: Apache-2.0
//
// The transformer of model.h. backward() walks forward() from its last line to its first: above each call stands the
// forward line that it differentiates.
#include "model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace char_lm {
namespace {

/// The tensors of a model in the order in which they lie in the flat array: the one list of them.
std::vector<ParameterTensor> list_tensors(const ModelConfig& config) {
    const auto [V, S, C, N, L, precision, threads] = config;
    std::vector<ParameterTensor> tensors;
    Index offset = 0;
    const auto append = [&](std::string name, Index count, double deviation) {
        tensors.push_back({std::move(name), offset, count, deviation});
        offset += count;
    };
    // A product keeps the size of its input when its weights have deviation 1/√in. The two products of a block that
    // add to the stream start smaller, so that the 2·L additions together do not make it grow with L; the head starts
    // near zero, so that the first loss is log V.
    const auto fan_in = [](Index in) { return 1 / std::sqrt(static_cast<double>(in)); };
    const double calm = 1 / std::sqrt(static_cast<double>(2 * L));
    constexpr double gain = 0;

    append("embedding", V * C, 0.5);
    append("positions", S * C, 0.1);
    for (Index block = 0; block < L; ++block) {
        append(fmt::format("block{}.norm_attention", block), C, gain);
        append(fmt::format("block{}.W_qkv", block), C * 3 * C, fan_in(C));
        append(fmt::format("block{}.W_out", block), C * C, fan_in(C) * calm);
        append(fmt::format("block{}.norm_mlp", block), C, gain);
        append(fmt::format("block{}.W_up", block), C * 4 * C, fan_in(C));
        append(fmt::format("block{}.W_down", block), 4 * C * C, fan_in(4 * C) * calm);
    }
    append("norm_final", C, gain);
    append("W_head", C * V, 0.1 * fan_in(C));
    return tensors;
}

template <class Real>
void fit(std::vector<Real>& buffer, Index count) {
    buffer.resize(static_cast<std::size_t>(count));
}

}  // namespace

template <class Real>
Model<Real>::Model(const ModelConfig& config, std::uint64_t seed) : config_(config), tensors_(list_tensors(config)) {
    fit(parameters_, tensors_.back().offset + tensors_.back().count);
    gradients_.resize(parameters_.size());
    Random random(seed);
    for (const ParameterTensor& tensor : tensors_) {
        Real* values = parameters_.data() + tensor.offset;
        for (Index i = 0; i < tensor.count; ++i) {
            values[i] = tensor.deviation > 0 ? static_cast<Real>(tensor.deviation * random.normal()) : Real(1);
        }
    }
    for (Index block = 0; block < config.L; ++block) blocks_.emplace_back(config);
}

template <class Real>
Weights<Real> Model<Real>::bind(std::vector<Real>& flat) const {
    Weights<Real> weights;
    auto tensor = tensors_.begin();
    const auto next = [&] { return flat.data() + (tensor++)->offset; };
    weights.embedding = next();
    weights.positions = next();
    for (Index block = 0; block < config_.L; ++block) {
        auto& w = weights.blocks.emplace_back();
        w.norm_attention = next();
        w.W_qkv = next();
        w.W_out = next();
        w.norm_mlp = next();
        w.W_up = next();
        w.W_down = next();
    }
    weights.norm_final = next();
    weights.W_head = next();
    return weights;
}

template <class Real>
void Model<Real>::fit_activations(Index rows) {
    const Index C = config_.C;
    for (BlockActivations& a : blocks_) {
        for (auto* buffer : {&a.x, &a.normed_attention, &a.attention_out, &a.x_middle, &a.normed_mlp, &a.dy}) {
            fit(*buffer, rows * C);
        }
        for (auto* buffer : {&a.r_attention, &a.r_mlp}) fit(*buffer, rows);
        for (auto* buffer : {&a.up, &a.activated}) fit(*buffer, rows * 4 * C);
        fit(a.qkv, rows * 3 * C);
    }
    for (auto* buffer : {&x_, &normed_final_, &branch_, &dx_, &dbranch_}) fit(*buffer, rows * C);
    for (auto* buffer : {&dwide_, &dwide_too_}) fit(*buffer, rows * 4 * C);
    for (auto* buffer : {&logits_, &dlogits_}) fit(*buffer, rows * config_.V);
    fit(r_final_, rows);
}

template <class Real>
double Model<Real>::forward(const Token* tokens, const Token* targets, Index B, Index length) {
    const Index C = config_.C, N = config_.N, rows = B * length;
    const AttentionShape shape{B, length, N, C / N};
    const Weights<Real> w = bind(parameters_);
    fit_activations(rows);
    tokens_.assign(tokens, tokens + rows);
    B_ = B;
    length_ = length;

    Real* x = x_.data();
    Real* branch = branch_.data();
    embed(tokens, w.embedding, w.positions, B, length, C, x);

    for (std::size_t l = 0; l < blocks_.size(); ++l) {
        const auto& wb = w.blocks[l];
        BlockActivations& a = blocks_[l];

        // x += attention(rms_norm(x) · W_qkv) · W_out
        std::copy_n(x, rows * C, a.x.data());
        rms_norm(x, wb.norm_attention, rows, C, a.normed_attention.data(), a.r_attention.data());
        linear(a.normed_attention.data(), wb.W_qkv, rows, C, 3 * C, a.qkv.data());
        a.attention.forward(shape, a.qkv.data(), a.attention_out.data());
        linear(a.attention_out.data(), wb.W_out, rows, C, C, branch);
        add(x, branch, rows * C);

        // x += gelu(rms_norm(x) · W_up) · W_down
        std::copy_n(x, rows * C, a.x_middle.data());
        rms_norm(x, wb.norm_mlp, rows, C, a.normed_mlp.data(), a.r_mlp.data());
        linear(a.normed_mlp.data(), wb.W_up, rows, C, 4 * C, a.up.data());
        gelu(a.up.data(), rows * 4 * C, a.activated.data());
        linear(a.activated.data(), wb.W_down, rows, 4 * C, C, branch);
        add(x, branch, rows * C);
    }

    rms_norm(x, w.norm_final, rows, C, normed_final_.data(), r_final_.data());
    linear(normed_final_.data(), w.W_head, rows, C, config_.V, logits_.data());
    return cross_entropy(logits_.data(), targets, rows, config_.V, dlogits_.data());
}

template <class Real>
void Model<Real>::backward() {
    const Index C = config_.C, N = config_.N, rows = B_ * length_;
    const AttentionShape shape{B_, length_, N, C / N};
    const Weights<Real> w = bind(parameters_);
    const Weights<Real> dw = bind(gradients_);
    std::fill(gradients_.begin(), gradients_.end(), Real(0));  // the layers add to them

    Real* dx = dx_.data();            // gradient of the stream at the point reached so far
    Real* dbranch = dbranch_.data();  // gradient of a branch's input
    std::fill(dx_.begin(), dx_.end(), Real(0));

    // forward: logits = normed_final · W_head, whose gradient cross_entropy left in dlogits
    linear_backward(normed_final_.data(), w.W_head, dlogits_.data(), rows, C, config_.V, dbranch, dw.W_head);
    // forward: normed_final = rms_norm(x)
    rms_norm_backward(x_.data(), w.norm_final, r_final_.data(), dbranch, rows, C, dx, dw.norm_final);

    for (std::size_t l = blocks_.size(); l-- > 0;) {
        const auto& wb = w.blocks[l];
        const auto& dwb = dw.blocks[l];
        BlockActivations& a = blocks_[l];
        Real* dactivated = dwide_.data();
        Real* dup = dwide_too_.data();
        Real* dqkv = dwide_.data();

        // forward: x = x_middle + branch                       so dx is the gradient of both
        // forward: branch = activated · W_down
        linear_backward(a.activated.data(), wb.W_down, dx, rows, 4 * C, C, dactivated, dwb.W_down);
        // forward: activated = gelu(up)
        gelu_backward(a.up.data(), dactivated, rows * 4 * C, dup);
        // forward: up = normed_mlp · W_up
        linear_backward(a.normed_mlp.data(), wb.W_up, dup, rows, C, 4 * C, dbranch, dwb.W_up);
        // forward: normed_mlp = rms_norm(x_middle)             adds the branch's share to dx
        rms_norm_backward(a.x_middle.data(), wb.norm_mlp, a.r_mlp.data(), dbranch, rows, C, dx, dwb.norm_mlp);

        // forward: x_middle = x + branch                       so dx is the gradient of both
        // forward: branch = attention_out · W_out
        linear_backward(a.attention_out.data(), wb.W_out, dx, rows, C, C, a.dy.data(), dwb.W_out);
        // forward: attention_out = attention(qkv)
        a.attention.backward(shape, a.qkv.data(), a.attention_out.data(), a.dy.data(), dqkv);
        // forward: qkv = normed_attention · W_qkv
        linear_backward(a.normed_attention.data(), wb.W_qkv, dqkv, rows, C, 3 * C, dbranch, dwb.W_qkv);
        // forward: normed_attention = rms_norm(x)              adds the branch's share to dx
        rms_norm_backward(a.x.data(), wb.norm_attention, a.r_attention.data(), dbranch, rows, C, dx,
                          dwb.norm_attention);
    }

    // forward: x = embedding[token] + positions
    embed_backward(tokens_.data(), dx, B_, length_, C, dw.embedding, dw.positions);
}

template <class Real>
typename Model<Real>::AttentionRecord Model<Real>::attention_record(Index block) const {
    const BlockActivations& a = blocks_.at(static_cast<std::size_t>(block));
    return {{B_, length_, config_.N, config_.C / config_.N}, a.qkv.data(), a.dy.data()};
}

template class Model<float>;
template class Model<double>;

}  // namespace char_lm
