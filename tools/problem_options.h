// SPDX-License-Identifier: Apache-2.0
//
// The one way to name a problem: on the command line of every sub-command, and in each line of a suite file. Here is
// what may be typed; problem.h says what becomes of it.
//
//   a file     IN                                       safetensors with query key value dy, and whatever else the
//                                                       operator takes, by its name (problem.cpp has the list)
//   or drawn   --shape B,N1[:N2],S1[:S2],D[:Dv]         seeded normal data; --dtype --seed, and what else to draw:
//                                                       --rope --mask --bias --drop-mask --sink --dlse
//   and        the operator's parameters, the rules that need no mask tensor, --threads --isa
//
// The options are a table (problem_options.cpp): a name, where the text goes, what it says in --help.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fascore/attention.h"

namespace fascore::cli {

/// As typed. Empty texts were not given.
struct ProblemOptions {
    std::string input;
    std::string layout = "BNSD";
    std::int64_t head_num = 0;
    std::optional<double> scale;
    double softcap = 0.0;
    int inner_precise = 0;
    std::string out_dtype;
    std::uint64_t seed = 0;

    std::string causal;
    std::string window;
    std::optional<int> sparse_mode;
    std::optional<std::int64_t> pre_tokens;
    std::optional<std::int64_t> next_tokens;
    std::string prefix;
    bool check_mask = false;

    std::string actual_seq_qlen;
    std::string actual_seq_kvlen;
    std::string statistics_order = "by_sequence";

    int pse_type = 1;
    std::int64_t q_start = 0;
    std::int64_t kv_start = 0;
    bool dbias = false;

    double keep_prob = 1.0;
    std::uint64_t offset = 0;

    std::string shape;
    std::string dtype = "bf16";
    std::int64_t rope = 0;
    std::string mask;
    std::string bias;
    std::string bias_dtype;
    bool drop_mask = false;
    bool sink = false;
    bool dlse = false;

    int threads = 0;
    std::string isa;
};

/// Declares the options above on a (sub-)command. `options` must outlive the parse.
void add_problem_options(CLI::App& command, ProblemOptions& options);

/// Only --threads and --isa, for commands whose problems come from elsewhere.
void add_execution_options(CLI::App& command, int& threads, std::string& isa);

/// Understands a line of the syntax above, words separated by blanks; `where` opens the error text.
[[nodiscard]] ProblemOptions parse_problem_line(std::string_view line, const std::string& where);

/// The option that says what to draw and was given although there is no --shape: "--bias"; empty when there is none.
[[nodiscard]] std::string given_for_drawing(const ProblemOptions& options);

// ---------------------------------------------------------------------------------------------- words,
// problem_text.cpp

/// S1 and S2 are the longest sequence of layout TND, T1 and T2 the rows of its tensors (0 elsewhere).
struct Extents {
    std::int64_t B = 0, N1 = 0, N2 = 0, S1 = 0, S2 = 0, D = 0, Dv = 0, Dr = 0, T1 = 0, T2 = 0;
};

/// As typed: S1 and S2 may be ranges. Without an S2 of its own every sequence has as many keys as queries.
struct Shape {
    Extents most;
    std::int64_t least_S1 = 0;
    std::int64_t least_S2 = 0;
    bool own_S2 = false;
    [[nodiscard]] bool has_range() const noexcept { return least_S1 != most.S1 || least_S2 != most.S2; }
};

[[nodiscard]] Shape parse_shape(const std::string& text);
[[nodiscard]] DType parse_dtype(const std::string& text);
/// f32, bf16 or f16: what 8-bit problems may have their results and their bias in.
[[nodiscard]] DType parse_wide_dtype(const char* option, const std::string& text);
[[nodiscard]] Layout parse_layout(const std::string& text);
[[nodiscard]] StatisticsOrder parse_statistics_order(const std::string& text);
[[nodiscard]] MaskRule parse_rule(const std::string& causal, const std::string& window);
/// "2,5,9", at least one integer.
[[nodiscard]] std::vector<std::int64_t> parse_list(const char* option, const std::string& text);

/// A shape some tensor may be drawn in. Axes, a letter each:
///   B N 1    as they read          S, K   S1, S2 (TND: of the longest sequence)      H   1024, a compressed bias
///   T, U     T1, T2                P      TND: N1·Σ Sq·Skv                           V   TND: N1·T2
///   C, X     2048, 3072: the compressed masks
struct Form {
    std::string_view word;
    std::string_view axes;
    std::string_view what;
};
[[nodiscard]] const Form& parse_bias_form(const std::string& text);
/// An empty text or that of a bare flag chooses by sparse mode.
[[nodiscard]] const Form& parse_mask_form(const std::string& text, int sparse_mode);
/// "full, heads, … or BN", for --help.
[[nodiscard]] std::string bias_words();
[[nodiscard]] std::string mask_words();

}  // namespace fascore::cli
