// SPDX-License-Identifier: Apache-2.0
//
// AdamW with the gradient clipped by its norm, and the learning rate's schedule.
//
//   g ← g · min(1, clip / ‖g‖)
//   m ← β1 m + (1 − β1) g          v ← β2 v + (1 − β2) g²
//   p ← p − rate · ( (m / (1 − β1ᵗ)) / (√(v / (1 − β2ᵗ)) + ε) + decay · p )        decay for matrices, not for gains
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "model.h"

namespace char_lm {

/// Linear from 0 over `warmup` steps, then half a cosine down to a tenth of `peak` at the last step.
inline double learning_rate(double peak, Index step, Index warmup, Index steps) {
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    const double done = static_cast<double>(step - warmup) / static_cast<double>(std::max<Index>(1, steps - warmup));
    return peak * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, done))));
}

/// ‖values‖, summed in pieces of fixed size: the same bits for any number of threads.
inline double norm(const std::vector<float>& values) {
    constexpr Index piece = elements_per_task;
    const Index count = static_cast<Index>(values.size());
    std::vector<double> sums(static_cast<std::size_t>(ceil_div(count, piece)));
    double* sum = sums.data();
    const float* value = values.data();
    parallel_ranges(count, piece, [=](Index first, Index last) {
        for (Index i = first; i < last; ++i) sum[first / piece] += static_cast<double>(value[i]) * value[i];
    });
    double total = 0;
    for (const double part : sums) total += part;
    return std::sqrt(total);
}

class AdamW {
  public:
    struct Settings {
        double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1, clip = 1.0;
    };

    explicit AdamW(const Settings& settings) : settings_(settings) {}

    /// One step along the model's gradients. Returns their norm before clipping.
    double step(Model<float>& model, double rate) {
        std::vector<float>& parameters = model.parameters();
        m_.resize(parameters.size());
        v_.resize(parameters.size());
        ++t_;
        const double gradient_norm = norm(model.gradients());
        const float clip = static_cast<float>(std::min(1.0, settings_.clip / (gradient_norm + 1e-12)));
        const float beta1 = static_cast<float>(settings_.beta1), beta2 = static_cast<float>(settings_.beta2);
        // 1/(1 − β1ᵗ) and 1/(1 − β2ᵗ) undo the pull towards zero of averages that started at zero.
        const float m_scale = static_cast<float>(1 / (1 - std::pow(settings_.beta1, t_)));
        const float v_scale = static_cast<float>(1 / (1 - std::pow(settings_.beta2, t_)));
        const float lr = static_cast<float>(rate), epsilon = static_cast<float>(settings_.epsilon);

        for (const ParameterTensor& tensor : model.tensors()) {
            const bool is_gain = tensor.deviation == 0;
            const float decay = is_gain ? 0.0F : static_cast<float>(settings_.decay);
            float* p = parameters.data() + tensor.offset;
            const float* g = model.gradients().data() + tensor.offset;
            float* m = m_.data() + tensor.offset;
            float* v = v_.data() + tensor.offset;
            parallel_ranges(tensor.count, elements_per_task, [=](Index first, Index last) {
                for (Index i = first; i < last; ++i) {
                    const float gradient = g[i] * clip;
                    m[i] = beta1 * m[i] + (1 - beta1) * gradient;
                    v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
                    p[i] -= lr * (m[i] * m_scale / (std::sqrt(v[i] * v_scale) + epsilon) + decay * p[i]);
                }
            });
        }
        return gradient_norm;
    }

  private:
    Settings settings_;
    std::vector<float> m_, v_;
    int t_ = 0;
};

}  // namespace char_lm
