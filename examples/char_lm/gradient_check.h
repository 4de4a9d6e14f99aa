// SPDX-License-Identifier: Apache-2.0
//
// Is the gradient right? Every parameter of a tiny model, in float64, against finite differences of fourth order:
//
//   ∂loss/∂p ≈ (8·(loss(p + h) − loss(p − h)) − (loss(p + 2h) − loss(p − 2h))) / 12h                       h = 1e-4
//
// What the quotient itself can be off by:
//   rounding    1.5·e/h, with e the error of one loss. A loss near 3 that sums some 10 rounded terms has e ≈ 10·ε·3 =
//   7e-15
//               at worst: 1e-10
//   truncation  h⁴/30 · loss''''' = 3e-18 · loss''''': nothing, even for fifth derivatives of 1e6
// so the two must agree to 1e-9, while gradients are of the order of 0.1. A wrong line anywhere, in a layer or in
// attention, is off by far more.
//
// Then the same model in f32, natively and with bf16 attention, against the float64 gradient: the same code for other
// types, so only rounding is left. An f32 sum of n ≤ 100 terms is good to about √n·2⁻²⁴ = 6e-7 of its size and a
// gradient passes through some 30 of them; bf16 rounds query, key, value, dy and dqkv to 2⁻⁹ = 2e-3 each, five
// roundings a block in two blocks. The relative distance of whole gradients must stay below 1e-4 and 5e-2.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "model.h"

namespace char_lm {

/// ‖a − b‖ / ‖b‖.
inline double relative_distance(const std::vector<float>& a, const std::vector<double>& b) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
        size += std::pow(b[i], 2);
    }
    return std::sqrt(difference / size);
}

/// On one thread, the work being too small to share. Prints a line per tensor; true when all is well.
inline bool check_gradients(std::uint64_t seed) {
    constexpr double h = 1e-4, tolerance = 1e-9, f32_tolerance = 1e-4, bf16_tolerance = 5e-2;
    constexpr Index B = 2, length = 7;
    ModelConfig config{.V = 11, .S = 8, .C = 12, .N = 3, .L = 2, .precision = Precision::native, .threads = 1};

    Random random(seed);
    std::vector<Token> tokens, targets;
    for (Index i = 0; i < B * length; ++i) {
        tokens.push_back(static_cast<Token>(random.below(config.V)));
        targets.push_back(static_cast<Token>(random.below(config.V)));
    }

    Model<double> model(config, seed);
    // Larger than a model starts with, so that attention is far from uniform and every term matters.
    for (double& parameter : model.parameters()) parameter = 0.6 * random.normal();
    const auto loss = [&] { return model.forward(tokens.data(), targets.data(), B, length); };
    loss();
    model.backward();
    const std::vector<double> gradient = model.gradients();

    bool right = true;
    const auto verdict = [&](bool ok) -> std::string_view {
        right = right && ok;
        return ok ? "ok" : "WRONG";
    };
    fmt::print("{:<24} {:>6}  {:>13}  {:>15}\n", "tensor (float64)", "count", "max |gradient|", "max |error|");
    for (const ParameterTensor& tensor : model.tensors()) {
        double largest = 0, error = 0;
        for (Index i = 0; i < tensor.count; ++i) {
            const auto at = static_cast<std::size_t>(tensor.offset + i);
            double& parameter = model.parameters()[at];
            const double kept = parameter;
            const auto loss_at = [&](double value) {
                parameter = value;
                return loss();
            };
            const double near = loss_at(kept + h) - loss_at(kept - h);
            const double far = loss_at(kept + 2 * h) - loss_at(kept - 2 * h);
            parameter = kept;
            const double quotient = (8 * near - far) / (12 * h);
            largest = std::max(largest, std::abs(gradient[at]));
            error = std::max(error, std::abs(quotient - gradient[at]));
        }
        fmt::print("{:<24} {:>6}  {:>14.2e}  {:>15.2e}  {}\n", tensor.name, tensor.count, largest, error,
                   verdict(error <= tolerance));
    }

    for (const Precision precision : {Precision::native, Precision::bf16}) {
        config.precision = precision;
        Model<float> rounded(config, seed);
        std::ranges::transform(model.parameters(), rounded.parameters().begin(),
                               [](double parameter) { return static_cast<float>(parameter); });
        rounded.forward(tokens.data(), targets.data(), B, length);
        rounded.backward();
        const double distance = relative_distance(rounded.gradients(), gradient);
        const bool is_bf16 = precision == Precision::bf16;
        fmt::print("{:<48}  {:>12.2e}  {}\n", is_bf16 ? "f32 with bf16 attention, all, relative" : "f32, all, relative",
                   distance, verdict(distance <= (is_bf16 ? bf16_tolerance : f32_tolerance)));
    }
    return right;
}

}  // namespace char_lm
