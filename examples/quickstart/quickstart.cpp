// SPDX-License-Identifier: Apache-2.0
//
// Attention and its gradient in one page: make the tensors, call forward, call backward, compare with the reference.
#include <fascore/fascore.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
    using fascore::DType, fascore::ConstTensorView, fascore::TensorView;

    // 1. Tensors: batch 2, 4 query heads that share 2 key/value heads, 100 positions, head_dim 64; any numbers in them.
    constexpr std::int64_t B = 2, N1 = 4, N2 = 2, S = 100, D = 64;
    const auto wave = [](std::int64_t count, double step) {
        std::vector<float> values;
        for (std::int64_t i = 0; i < count; ++i)
            values.push_back(static_cast<float>(std::sin(step * double(i * i % 997))));
        return values;
    };
    const auto query = wave(B * N1 * S * D, 0.1), dy = wave(B * N1 * S * D, 0.4);
    const auto key = wave(B * N2 * S * D, 0.2), value = wave(B * N2 * S * D, 0.3);
    std::vector<float> out(query.size()), max(B * N1 * S), sum(B * N1 * S);
    std::vector<float> dq(query.size()), dk(key.size()), dv(value.size());

    // 2. Forward: attention_out = softmax(scale · query keyᵀ) value, each position seeing itself and those before it.
    fascore::AttentionParams params;
    params.scale = 1 / std::sqrt(double(D));
    params.rule.kind = fascore::MaskRule::Kind::causal_top_left;
    fascore::ForwardInputs in;
    in.query = ConstTensorView(query.data(), DType::f32, {B, N1, S, D});
    in.key = ConstTensorView(key.data(), DType::f32, {B, N2, S, D});
    in.value = ConstTensorView(value.data(), DType::f32, {B, N2, S, D});
    fascore::ForwardOutputs forward;
    forward.attention_out = TensorView(out.data(), DType::f32, {B, N1, S, D});
    forward.softmax_max = TensorView(max.data(), DType::f32, {B, N1, S});
    forward.softmax_sum = TensorView(sum.data(), DType::f32, {B, N1, S});
    fascore::Status status = fascore::attention_forward(params, in, forward);

    // 3. Backward: dq, dk, dv from dy, the gradient of attention_out, and what the forward left.
    fascore::BackwardInputs grad;
    grad.query = in.query, grad.key = in.key, grad.value = in.value;
    grad.dy = ConstTensorView(dy.data(), DType::f32, {B, N1, S, D});
    grad.softmax_max = forward.softmax_max, grad.softmax_sum = forward.softmax_sum;
    grad.attention_out = forward.attention_out;
    fascore::BackwardOutputs gradients;
    gradients.dq = TensorView(dq.data(), DType::f32, {B, N1, S, D});
    gradients.dk = TensorView(dk.data(), DType::f32, {B, N2, S, D});
    gradients.dv = TensorView(dv.data(), DType::f32, {B, N2, S, D});
    if (status.ok()) status = fascore::attention_backward(params, grad, gradients);

    // 4. The same gradient by the float64 reference, from the same inputs (without the forward's results it makes its
    // own).
    std::vector<double> exact_dq(dq.size()), exact_dk(dk.size()), exact_dv(dv.size());
    grad.softmax_max = grad.softmax_sum = grad.attention_out = {};
    fascore::BackwardOutputs exact;
    exact.dq = TensorView(exact_dq.data(), DType::f64, {B, N1, S, D});
    exact.dk = TensorView(exact_dk.data(), DType::f64, {B, N2, S, D});
    exact.dv = TensorView(exact_dv.data(), DType::f64, {B, N2, S, D});
    if (status.ok()) status = fascore::reference_backward(params, grad, exact);
    if (!status.ok()) {
        std::fprintf(stderr, "quickstart: %s\n", status.message().c_str());
        return 2;
    }

    // 5. What came out, and how far from exact. f32 keeps 24 bits; each result is rounded some dozens of times on its
    // way.
    bool right = true;
    const auto compare = [&](const char* name, const std::vector<float>& got, const std::vector<double>& wanted) {
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
            difference += std::pow(double(got[i]) - wanted[i], 2);
            size += wanted[i] * wanted[i];
        }
        const double error = std::sqrt(difference / size);
        const float* last = got.data() + got.size() - 3;
        std::printf("%s  last values %9.6f %9.6f %9.6f   relative error %.1e\n", name, double(last[0]), double(last[1]),
                    double(last[2]), error);
        right = right && error < 100 * 0x1p-24;
    };
    compare("dq", dq, exact_dq);
    compare("dk", dk, exact_dk);
    compare("dv", dv, exact_dv);
    return right ? 0 : 1;
}
