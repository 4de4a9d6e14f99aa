// SPDX-License-Identifier: Apache-2.0
//
// What the command line says, with its defaults.
#pragma once

#include <string>
#include <vector>

#include "attention.h"
#include "common.h"

namespace char_lm {

struct Options {
    std::vector<std::string> paths;
    double seconds = 60;
    Index steps = 0;
    Index batch = 8, context = 128, width = 128, heads = 4, blocks = 4;
    double rate = 3e-3;
    Index warmup = 30;
    std::uint64_t seed = 1;
    int threads = 0;
    Precision precision = Precision::bf16;
    Index sample = 500;
    double temperature = 0.7;
    std::string prompt = "// The ";
    std::string svg, capture, summary;
    Index capture_block = 1;
    double must_fall = 0;
    bool check = false;
};

/// Reads the command line; prints help or what is wrong and ends the program where there is nothing to run (status 2
/// for what is wrong). Afterwards `threads` is never 0.
Options parse_options(int argc, char** argv);

}  // namespace char_lm
