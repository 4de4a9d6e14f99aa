// SPDX-License-Identifier: Apache-2.0
//
// The training loop.
#pragma once

#include <vector>

#include "data.h"
#include "model.h"
#include "options.h"
#include "plot.h"

namespace char_lm {

/// Everything that a run leaves behind.
struct History {
    double seconds = 0;
    std::vector<double> losses;
    std::vector<Measurement> validation;
};

/// Trains the model for options.steps steps, or for about options.seconds, and shows how it goes.
History train(Model<float>& model, const Text& text, const Options& options);

}  // namespace char_lm
