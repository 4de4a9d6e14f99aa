// SPDX-License-Identifier: Apache-2.0
//
// Text from a trained model, one character at a time: softmax(logits / temperature), or the likeliest at temperature 0.
// Each character costs a forward over the whole context; a cache of keys and values would save most of that, but this
// example is about training.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "model.h"

namespace char_lm {

/// The character after the last one, from its row of logits.
inline Token choose(const float* logits, Index V, double temperature, Random& random) {
    const float* best = std::max_element(logits, logits + V);
    if (temperature <= 0) return static_cast<Token>(best - logits);
    const auto weight = [=](Index v) { return std::exp(static_cast<double>(logits[v] - *best) / temperature); };
    double total = 0;
    for (Index v = 0; v < V; ++v) total += weight(v);
    double left = random.uniform() * total;
    for (Index v = 0; v < V; ++v) {
        left -= weight(v);
        if (left < 0) return static_cast<Token>(v);
    }
    return static_cast<Token>(best - logits);
}

/// `count` characters that follow `text`, which must not be empty.
inline std::vector<Token> continue_text(Model<float>& model, std::vector<Token> text, Index count, double temperature,
                                        Random& random) {
    const Index V = model.config().V;
    const std::size_t prompt_size = text.size();
    for (Index i = 0; i < count; ++i) {
        const Index length = std::min(model.config().S, static_cast<Index>(text.size()));
        const Token* context = text.data() + text.size() - length;
        model.forward(context, context, 1, length);  // the loss it returns means nothing here
        text.push_back(choose(model.logits().data() + (length - 1) * V, V, temperature, random));
    }
    text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt_size));
    return text;
}

}  // namespace char_lm
