// SPDX-License-Identifier: Apache-2.0
//
// char_lm: trains a small transformer, whose attention is fascore's, to predict the next character of a text.
//
//   char_lm DIR_OR_FILES…              train for a minute on the sources and documents found there
//   char_lm --check                    compare the model's gradient with finite differences, tiny and in float64
//   char_lm . --capture qkv.safetensors --svg loss.svg
//
// Where to read on: attention.h (the views fascore gets), model.cpp (forward, and backward line by line), layers.cpp.
//
// Reproducible: the same text, options, --seed and --steps give the same bits on one machine, for any --threads. With
// --seconds the number of steps is chosen from the speed of the first few; it is printed, so the run can be repeated.
#include <cstdio>
#include <exception>
#include <fstream>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include <fascore/info.h>
#include <fmt/format.h>

#include "capture.h"
#include "data.h"
#include "gradient_check.h"
#include "matmul.h"
#include "model.h"
#include "options.h"
#include "plot.h"
#include "sample.h"
#include "train.h"

namespace char_lm {
namespace {

void write_summary(const std::string& path, const History& history, Index parameters, double scale) {
    const std::vector<double> smoothed = smooth(history.losses);
    std::ofstream file(path);
    file << fmt::format("parameters {}\nsteps {}\nseconds {:.1f}\n", parameters, history.losses.size(), history.seconds)
         << fmt::format("first_loss {:.3f}\nlast_loss {:.3f}\n", history.losses.front(), smoothed.back())
         << fmt::format("first_unseen_loss {:.3f}\nlast_unseen_loss {:.3f}\n", history.validation.front().loss,
                        history.validation.back().loss)
         << fmt::format("curve {}\nscale {}\n", sparkline(smoothed, 24), scale);
    if (!file.flush()) throw std::runtime_error(fmt::format("--summary: {}, cannot be written", path));
}

void print_sample(Model<float>& model, const Text& text, const Options& options) {
    std::vector<Token> prompt = text.encode(options.prompt);
    if (prompt.empty()) prompt.push_back(0);
    Random random(options.seed + 2);
    fmt::print("\nSample at temperature {} (the prompt is \"{}\"):\n\n", options.temperature, options.prompt);
    std::string sample = "  │ ";
    const auto append = [&](Token token) {
        sample += text.character(token);
        if (text.character(token) == "\n") sample += "  │ ";
    };
    for (const Token token : prompt) append(token);
    for (const Token token : continue_text(model, prompt, options.sample, options.temperature, random)) append(token);
    fmt::print("{}\n", sample);
}

int run(const Options& options) {
    if (options.check) {
        set_threads(1);
        return check_gradients(options.seed) ? 0 : 1;
    }
    set_threads(options.threads);

    const std::vector<fs::path> files = find_text_files(options.paths);
    const Text text(files);
    if (text.size() / 10 < options.context + 2) {
        throw std::runtime_error(fmt::format("paths: {} characters of text, --context {} needs at least {}",
                                             text.size(), options.context, 10 * (options.context + 3)));
    }
    const ModelConfig config{.V = text.vocabulary_size(),
                             .S = options.context,
                             .C = options.width,
                             .N = options.heads,
                             .L = options.blocks,
                             .precision = options.precision,
                             .threads = options.threads};
    Model<float> model(config, options.seed);

    std::string isa, why;
    require(fascore::select_isa({}, isa, why));
    fmt::print("Text       {} files, {} bytes, {} characters, {} different ones\n", files.size(), text.bytes(),
               text.size(), config.V);
    fmt::print("Model      {} blocks of width {}, {} heads of {}, context {}: {} parameters\n", config.L, config.C,
               config.N, config.C / config.N, config.S, model.parameters().size());
    fmt::print("Attention  fascore, {}, causal, {} kernels; dense layers f32, {}\n",
               config.precision == Precision::bf16 ? "bf16" : "f32", isa, matmul_isa());
    fmt::print("Training   {} sequences a step, {} threads, seed {}\n\n", options.batch, options.threads, options.seed);

    const History history = train(model, text, options);
    const std::vector<double> smoothed = smooth(history.losses);
    const double first = history.losses.front(), last = smoothed.back();
    fmt::print("\nLoss, nats a character\n\n{}\n", terminal_chart(smoothed, 72, 12));
    fmt::print("Training loss {:.3f} → {:.3f}, on unseen text {:.3f} → {:.3f} ({:.2f} bits a character)\n", first, last,
               history.validation.front().loss, history.validation.back().loss,
               history.validation.back().loss / std::numbers::ln2);

    if (options.sample > 0) print_sample(model, text, options);
    if (!options.svg.empty()) {
        write_svg(options.svg, history.losses, history.validation,
                  fmt::format("{} parameters, {} steps of {} × {} characters; unseen text {:.2f} → {:.2f}",
                              model.parameters().size(), history.losses.size(), options.batch, options.context,
                              history.validation.front().loss, history.validation.back().loss));
        fmt::print("Wrote the loss curve to {}\n", options.svg);
    }
    if (!options.capture.empty()) {
        const Text::Batch batch = text.validation_batch(options.batch, options.context);
        model.forward(batch.tokens.data(), batch.targets.data(), options.batch, options.context);
        model.backward();
        const auto record = model.attention_record(options.capture_block);
        capture_attention(options.capture, record, options.threads);
        const auto [B, S, N, D] = record.shape;
        fmt::print("Wrote query, key, value, dy (B, N, S, D) = ({}, {}, {}, {}) of block {} to {}; scale {}, causal\n",
                   B, N, S, D, options.capture_block, options.capture, attention_scale(D));
    }
    if (!options.summary.empty()) {
        write_summary(options.summary, history, static_cast<Index>(model.parameters().size()),
                      attention_scale(config.C / config.N));
    }
    if (options.must_fall > 0 && !(last < options.must_fall * first)) {
        fmt::print(stderr, "--must-fall: the loss went from {:.3f} to {:.3f}, wanted below {:.3f}\n", first, last,
                   options.must_fall * first);
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace char_lm

int main(int argc, char** argv) {
    try {
        return char_lm::run(char_lm::parse_options(argc, argv));
    } catch (const std::exception& error) {
        fmt::print(stderr, "char_lm: {}\n", error.what());
        return 2;
    }
}
