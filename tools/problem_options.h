// SPDX-License-Identifier: Apache-2.0
//
// The one way to name a problem: on the command line of every sub-command, and in each line of a suite file.
//
//   a file     IN                                       safetensors with query key value dy, and perhaps atten_mask
//                                                       softmax_max softmax_sum attention_out
//   or drawn   --shape B,N1[:N2],S1[:S2],D[:Dv]         seeded normal data; --dtype, --seed
//   and        --layout --head-num --scale --sparse-mode --pre-tokens --next-tokens --causal --window
//              --threads --isa
//
// A problem is first described (shapes and rules, no data), then judged by the library, then loaded: a refusal comes
// before gigabytes are read or drawn, and --plan needs no data at all.
//
//   text → ProblemOptions → describe() → Problem, described → judge_*() → load() → Problem, with data
//
// Drawn data depend on the seed, the tensor and the logical index (b, n, s, d) alone: the same values in every layout,
// and in every dtype up to rounding.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fascore/attention.h"
#include "host_tensor.h"
#include "safetensors.h"

namespace fascore::cli {

/// As typed.
struct ProblemOptions {
    std::string input;
    std::string shape;
    std::string dtype = "bf16";
    std::uint64_t seed = 0;
    std::string layout = "BNSD";
    std::int64_t head_num = 0;
    std::optional<double> scale;
    std::optional<int> sparse_mode;
    std::optional<std::int64_t> pre_tokens;
    std::optional<std::int64_t> next_tokens;
    std::string causal;  ///< empty: not given
    std::string window;  ///< empty: not given
    int threads = 0;
    std::string isa;
};

/// Declares the options above on a (sub-)command. `options` must outlive the parse.
void add_problem_options(CLI::App& command, ProblemOptions& options);

/// Only --threads and --isa, for commands whose problems come from elsewhere.
void add_execution_options(CLI::App& command, int& threads, std::string& isa);

/// Understands a line of the syntax above, words separated by blanks; `where` opens the error text.
[[nodiscard]] ProblemOptions parse_problem_line(std::string_view line, const std::string& where);

struct Extents {
    std::int64_t B = 0, N1 = 0, N2 = 0, S1 = 0, S2 = 0, D = 0, Dv = 0;
};

/// A problem as the library takes it, and the tensors it is made of.
struct Problem {
    AttentionParams params;
    Extents extents;
    DType dtype = DType::bf16;
    int threads = 0;
    std::string isa;

    HostTensor query, key, value, dy;
    HostTensor atten_mask;
    HostTensor softmax_max, softmax_sum, attention_out;  ///< absent unless the file has them

    std::unique_ptr<SafetensorsFile> file;  ///< absent: drawn from `seed`
    std::uint64_t seed = 0;

    [[nodiscard]] ForwardInputs forward_inputs() const;
    [[nodiscard]] BackwardInputs backward_inputs() const;
    [[nodiscard]] Execution execution() const;

    /// Shapes of what the problem's calls produce.
    [[nodiscard]] std::vector<std::int64_t> attention_shape() const;
    [[nodiscard]] std::vector<std::int64_t> statistic_shape() const;
    /// f64 for f64 problems, f32 otherwise.
    [[nodiscard]] DType statistic_dtype() const noexcept;

    /// "B=1 N1=8 N2=8 S1=128 S2=128 D=64 Dv=64 bf16 BNSD scale 0.125 causal bottom-right"
    [[nodiscard]] std::string text() const;
};

/// Which tensors a command needs: query, key, value and atten_mask always;
///   inputs     dy too where there is one
///   gradient   dy, and the statistics and attention_out where there are any
enum class Needs : std::uint8_t { forward, inputs, gradient };

/// Reads the description; throws Failure. Data pointers stay null.
[[nodiscard]] Problem describe(const ProblemOptions& options, Needs needs);

/// A line on stderr for what is allowed but surely not meant: a sparse mode without the mask that switches it on.
[[nodiscard]] std::optional<std::string> warning_of(const ProblemOptions& options, const Problem& problem);

/// Reads the file's tensors or draws them.
void load(Problem& problem, Needs needs);

// The words (problem_text.cpp).
[[nodiscard]] Extents parse_shape(const std::string& text);
[[nodiscard]] DType parse_dtype(const std::string& text);
[[nodiscard]] Layout parse_layout(const std::string& text);
[[nodiscard]] MaskRule parse_rule(const std::string& causal, const std::string& window);

}  // namespace fascore::cli
