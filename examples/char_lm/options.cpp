// SPDX-License-Identifier: Apache-2.0
//
// The command line of char_lm.
#include "options.h"

#include <cstdlib>
#include <map>

#include <CLI/CLI.hpp>
#include <fascore/info.h>
#include <fmt/format.h>

namespace char_lm {

Options parse_options(int argc, char** argv) {
    Options options;
    CLI::App app("Trains a small transformer on text, with attention by fascore.");
    app.add_option("paths", options.paths, "Files, or directories to search for sources and documents");
    app.add_option("--seconds", options.seconds, "Train for about this long")->check(CLI::Range(0.1, 1e6));
    app.add_option("--steps", options.steps, "Train for exactly this many steps instead")
        ->check(CLI::Range(1, 1000000));
    app.add_option("--batch", options.batch, "Sequences a step, B")->check(CLI::Range(1, 1024));
    app.add_option("--context", options.context, "Characters a sequence, S")->check(CLI::Range(2, 65536));
    app.add_option("--width", options.width, "Width of the stream, C")->check(CLI::Range(1, 4096));
    app.add_option("--heads", options.heads, "Attention heads, N; head_dim is C/N")->check(CLI::Range(1, 256));
    app.add_option("--blocks", options.blocks, "Transformer blocks, L")->check(CLI::Range(1, 64));
    app.add_option("--rate", options.rate, "Learning rate at its peak")->check(CLI::PositiveNumber);
    app.add_option("--warmup", options.warmup, "Steps until that peak")->check(CLI::Range(10, 1000000));
    app.add_option("--dtype", options.precision, "Number type of attention")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, Precision>{{"f32", Precision::native}, {"bf16", Precision::bf16}}));
    app.add_option("--seed", options.seed, "Start of every random number");
    app.add_option("--threads", options.threads, "Threads; 0 = FASCORE_NUM_THREADS or all")->check(CLI::Range(0, 1024));
    app.add_option("--sample", options.sample, "Characters of text to generate at the end")
        ->check(CLI::Range(0, 100000));
    app.add_option("--temperature", options.temperature, "0 = always the likeliest")->check(CLI::Range(0.0, 100.0));
    app.add_option("--prompt", options.prompt, "What the generated text continues");
    app.add_option("--svg", options.svg, "Write the loss curve to this file");
    app.add_option("--capture", options.capture, "Write query, key, value, dy of one attention layer to this file");
    app.add_option("--capture-block", options.capture_block, "Block whose attention is captured, from 0");
    app.add_option("--summary", options.summary, "Write what came out to this file, a name and a value a line");
    app.add_option("--must-fall", options.must_fall, "Fail unless the loss falls below this share of the first")
        ->check(CLI::Range(0.0, 1.0));
    app.add_flag("--check", options.check, "Check the gradient instead of training");
    app.get_formatter()->column_width(34);
    try {
        app.parse(argc, argv);
        if (!options.check && options.paths.empty()) throw CLI::ValidationError("paths: none given, name a directory");
        if (options.width % options.heads != 0) {
            throw CLI::ValidationError(
                fmt::format("--width: {}, must be a multiple of --heads {}", options.width, options.heads));
        }
        if (options.capture_block < 0 || options.capture_block >= options.blocks) {
            throw CLI::ValidationError(
                fmt::format("--capture-block: {}, must be 0 to {}", options.capture_block, options.blocks - 1));
        }
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error) == 0 ? 0 : 2);
    }
    if (options.threads == 0) require(fascore::default_threads(options.threads));
    return options;
}

}  // namespace char_lm
