// SPDX-License-Identifier: Apache-2.0
//
// Batch, loss, gradient, step; and how many of them. The learning rate's schedule must know the number of steps, so a
// time limit is turned into a number of steps early on, once, and printed: --steps with that number repeats the run to
// the bit, however fast the machine is then.
#include "train.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "adamw.h"
#include "progress.h"

namespace char_lm {
namespace {

/// The median of the differences between neighbours.
double median_difference(const std::vector<double>& times) {
    std::vector<double> differences(times.size());
    std::adjacent_difference(times.begin(), times.end(), differences.begin());
    const auto middle = differences.begin() + 1 + static_cast<std::ptrdiff_t>((differences.size() - 1) / 2);
    std::nth_element(differences.begin() + 1, middle, differences.end());
    return *middle;
}

}  // namespace

History train(Model<float>& model, const Text& text, const Options& options) {
    using Clock = std::chrono::steady_clock;
    // The schedule is the same up to here whatever the number of steps (warmup ≥ 10), so that number may still be open.
    constexpr Index measured_steps = 9, fewest_steps = 20;

    AdamW optimiser({});
    Random random(options.seed + 1);
    const Text::Batch unseen = text.validation_batch(options.batch, options.context);
    const auto validate = [&] {
        return model.forward(unseen.tokens.data(), unseen.targets.data(), options.batch, options.context);
    };

    History history;
    history.validation.push_back({1, validate()});
    Progress progress;
    Index steps = options.steps;
    const auto start = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    std::vector<double> step_ends;
    for (Index step = 0; steps == 0 || step < steps; ++step) {
        // 1. a batch, its loss, the gradient, a step along it
        const Text::Batch batch = text.training_batch(options.batch, options.context, random);
        const double rate = learning_rate(options.rate, step, options.warmup, steps);
        history.losses.push_back(
            model.forward(batch.tokens.data(), batch.targets.data(), options.batch, options.context));
        model.backward();
        optimiser.step(model, rate);

        // 2. how many steps fit into the time: decided once, from the first few
        const Index done = step + 1;
        step_ends.push_back(elapsed());
        if (steps == 0 && done == measured_steps) {
            const double step_seconds = median_difference(step_ends);
            steps = std::max(fewest_steps, static_cast<Index>(0.97 * options.seconds / step_seconds));
            fmt::print("  {} steps of {:.0f} ms fit into {:.0f} s (--steps {} repeats this run)\n", steps,
                       1000 * step_seconds, options.seconds, steps);
        }

        // 3. what there is to see
        if (steps == 0) continue;
        if (done % std::max<Index>(1, steps / 10) == 0 && done < steps) {
            history.validation.push_back({done, validate()});
        }
        const bool late = options.steps == 0 && done >= fewest_steps && elapsed() > 1.3 * options.seconds;
        progress.show(done, late ? done : steps, history.losses, rate,
                      static_cast<double>(done * options.batch * options.context), elapsed());
        if (late) {
            fmt::print("  the machine became slower: stopped after {} of {} steps\n", done, steps);
            break;
        }
    }
    history.seconds = elapsed();
    history.validation.push_back({static_cast<Index>(history.losses.size()), validate()});
    return history;
}

}  // namespace char_lm
