// SPDX-License-Identifier: Apache-2.0
//
// Tensors where they lie: no copies, no transposes. Real programs rarely hold query, key and value as three separate
// contiguous tensors. Here are three arrangements; all give the same bits as separate tensors do.
//
//   1  fused      one buffer [B, S, 3, N, D], as a single projection of query, key and value writes it; the gradients
//                 go into one buffer of the same form, ready to be the dy of that projection
//   2  padded     rows of D = 40 elements kept 64 apart, as an aligned allocator leaves them
//   3  broadcast  one key/value for the whole batch: stride 0 along B, the memory exists once
//
// An element lies at data + Σ index · stride, strides counted in elements; fascore asks nothing else of the memory.
#include <fascore/fascore.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using fascore::ConstTensorView;
using fascore::DType;
using fascore::TensorView;

constexpr std::int64_t B = 2, S = 96, N = 3, D = 40;
constexpr std::int64_t count = B * S * N * D;
constexpr auto f32 = DType::f32;

void require(const fascore::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "strided_views: %s\n", status.message().c_str());
    std::exit(2);
}

/// A tensor [B, S, N, D] (layout BSND) with the given strides.
template <class View, class Element>
View bsnd(Element* data, std::int64_t per_b, std::int64_t per_s, std::int64_t per_n) {
    View view(data, f32, {B, S, N, D});
    view.stride = {per_b, per_s, per_n, 1};
    return view;
}

struct Gradients {
    std::vector<float> dq, dk, dv;  // [B, S, N, D], contiguous
    bool operator==(const Gradients&) const = default;
};

/// Forward, then backward into `out`.
void attention(const ConstTensorView& query, const ConstTensorView& key, const ConstTensorView& value,
               const ConstTensorView& dy, const fascore::BackwardOutputs& out) {
    fascore::AttentionParams params;
    params.layout = fascore::Layout::BSND;
    params.scale = 1 / std::sqrt(double(D));
    params.rule.kind = fascore::MaskRule::Kind::causal_top_left;

    std::vector<float> attention_out(count), softmax_max(B * N * S), softmax_sum(B * N * S);
    fascore::ForwardInputs in;
    in.query = query;
    in.key = key;
    in.value = value;
    fascore::ForwardOutputs results;
    results.attention_out = TensorView(attention_out.data(), f32, {B, S, N, D});
    results.softmax_max = TensorView(softmax_max.data(), f32, {B, N, S});
    results.softmax_sum = TensorView(softmax_sum.data(), f32, {B, N, S});
    require(fascore::attention_forward(params, in, results));

    fascore::BackwardInputs grad;
    grad.query = query;
    grad.key = key;
    grad.value = value;
    grad.dy = dy;
    grad.softmax_max = results.softmax_max;
    grad.softmax_sum = results.softmax_sum;
    grad.attention_out = results.attention_out;
    require(fascore::attention_backward(params, grad, out));
}

/// The same into fresh contiguous gradients.
Gradients attention(const ConstTensorView& query, const ConstTensorView& key, const ConstTensorView& value,
                    const ConstTensorView& dy) {
    Gradients gradients{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count)};
    fascore::BackwardOutputs out;
    out.dq = TensorView(gradients.dq.data(), f32, {B, S, N, D});
    out.dk = TensorView(gradients.dk.data(), f32, {B, S, N, D});
    out.dv = TensorView(gradients.dv.data(), f32, {B, S, N, D});
    attention(query, key, value, dy, out);
    return gradients;
}

bool all_the_same = true;

void report(const char* name, bool same) {
    std::printf("%-10s %s\n", name, same ? "the same bits as separate contiguous tensors" : "DIFFERENT");
    all_the_same = all_the_same && same;
}

}  // namespace

int main() {
    // What every arrangement is compared with: separate contiguous tensors.
    std::vector<float> query(count), key(count), value(count), dy(count);
    for (std::int64_t i = 0; i < count; ++i) {
        const auto at = std::size_t(i);
        query[at] = float(std::sin(0.1 * double(i)));
        key[at] = float(std::sin(0.2 * double(i % 7919)));
        value[at] = float(std::cos(0.3 * double(i)));
        dy[at] = float(std::cos(0.4 * double(i % 7919)));
    }
    const auto contiguous = [](const std::vector<float>& tensor) {
        return bsnd<ConstTensorView>(tensor.data(), S * N * D, N * D, D);
    };
    const Gradients separate = attention(contiguous(query), contiguous(key), contiguous(value), contiguous(dy));

    // 1. Fused. The three parts differ only in where they start.
    {
        constexpr std::int64_t per_s = 3 * N * D, per_b = S * per_s;
        std::vector<float> qkv(3 * count), dqkv(3 * count);
        for (std::int64_t row = 0; row < B * S; ++row) {
            for (std::int64_t c = 0; c < N * D; ++c) {
                const auto from = std::size_t(row * N * D + c), to = std::size_t(row * per_s + c);
                qkv[to] = query[from];
                qkv[to + N * D] = key[from];
                qkv[to + 2 * N * D] = value[from];
            }
        }
        fascore::BackwardOutputs out;
        out.dq = bsnd<TensorView>(dqkv.data(), per_b, per_s, D);
        out.dk = bsnd<TensorView>(dqkv.data() + N * D, per_b, per_s, D);
        out.dv = bsnd<TensorView>(dqkv.data() + 2 * N * D, per_b, per_s, D);
        const auto part = [&](std::int64_t start) {
            return bsnd<ConstTensorView>(qkv.data() + start, per_b, per_s, D);
        };
        attention(part(0), part(N * D), part(2 * N * D), contiguous(dy), out);

        Gradients apart{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count)};
        for (std::int64_t row = 0; row < B * S; ++row) {
            for (std::int64_t c = 0; c < N * D; ++c) {
                const auto to = std::size_t(row * N * D + c), from = std::size_t(row * per_s + c);
                apart.dq[to] = dqkv[from];
                apart.dk[to] = dqkv[from + N * D];
                apart.dv[to] = dqkv[from + 2 * N * D];
            }
        }
        report("fused", apart == separate);
    }

    // 2. Padded. What lies between the rows is never read: here NaN, which would spread at once.
    {
        constexpr std::int64_t pitch = 64;
        std::vector<float> padded(B * S * N * pitch, std::nanf(""));
        for (std::int64_t row = 0; row < B * S * N; ++row) {
            for (std::int64_t d = 0; d < D; ++d) padded[std::size_t(row * pitch + d)] = query[std::size_t(row * D + d)];
        }
        const auto view = bsnd<ConstTensorView>(padded.data(), S * N * pitch, N * pitch, pitch);
        report("padded", attention(view, contiguous(key), contiguous(value), contiguous(dy)) == separate);
    }

    // 3. Broadcast. Both batches read the first batch's key and value.
    {
        const auto shared = [](const std::vector<float>& tensor) {
            return bsnd<ConstTensorView>(tensor.data(), 0, N * D, D);
        };
        std::vector<float> key_twice(key), value_twice(value);
        for (std::int64_t i = 0; i < S * N * D; ++i) {
            key_twice[std::size_t(S * N * D + i)] = key[std::size_t(i)];
            value_twice[std::size_t(S * N * D + i)] = value[std::size_t(i)];
        }
        const Gradients copied =
            attention(contiguous(query), contiguous(key_twice), contiguous(value_twice), contiguous(dy));
        report("broadcast", attention(contiguous(query), shared(key), shared(value), contiguous(dy)) == copied);
    }
    return all_the_same ? 0 : 1;
}
