// SPDX-License-Identifier: Apache-2.0
//
// The options of the problem syntax, as a table: see problem_options.h. Groups are printed in the table's order.
#include "problem_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <system_error>
#include <type_traits>
#include <variant>

#include "command.h"

namespace fascore::cli {
namespace {

using Options = ProblemOptions;

/// A text that may be left out behind the name: --causal or --causal=top-left.
struct Flag {
    std::string Options::*text;
};

using Place = std::variant<Flag, bool Options::*, std::string Options::*, int Options::*, std::int64_t Options::*,
                           std::uint64_t Options::*, double Options::*, std::optional<int> Options::*,
                           std::optional<std::int64_t> Options::*, std::optional<double> Options::*>;

struct Row {
    const char* name;
    Place place;
    const char* type;
    std::string help;
    bool show_default = false;
};

struct Group {
    const char* title;
    bool only_drawn;
    std::vector<Row> rows;
};

const std::vector<Group>& table() {
    static const std::vector<Group> groups = {
        {"Problem",
         false,
         {
             {"IN", &Options::input, "FILE",
              "safetensors file with query key value dy; optional: query_rope key_rope atten_mask pse drop_mask sink "
              "dlse softmax_max softmax_sum attention_out, 8-bit: d_scale_q d_scale_k d_scale_v d_scale_dy"},
             {"--layout", &Options::layout, "LAYOUT", "Axis order: BNSD, BSND, BSH, SBH or TND (packed)", true},
             {"--head-num", &Options::head_num, "N1", "Query heads; needed for a file in layout BSH or SBH"},
             {"--scale", &Options::scale, "X",
              "Factor on query*key; default: 1 for a file (the operator's), 1/sqrt(D) with --shape (D + rope)"},
             {"--softcap", &Options::softcap, "C", "Soft cap of the scaled scores, C*tanh(z/C); 0: none"},
             {"--inner-precise", &Options::inner_precise, "0|1|2", "Accepted; all mean the same"},
             {"--out-dtype", &Options::out_dtype, "DTYPE",
              "8-bit problems: dtype of attention_out and the gradients, bf16 (default), f16 or f32"},
             {"--seed", &Options::seed, "N", "Of dropout and, with --shape, of the data", true},
         }},
        {"Which pairs are visible",
         false,
         {
             {"--causal", Flag{&Options::causal}, "[=bottom-right|top-left]",
              "No mask tensor needed: row i sees keys up to i + S2 - S1 (bottom-right, flash_attn) or, as "
              "--causal=top-left, up to i (PyTorch)"},
             {"--window", &Options::window, "LEFT,RIGHT",
              "No mask tensor needed: row i sees keys i + S2 - S1 - LEFT to i + S2 - S1 + RIGHT, -1 is no bound; with "
              "--causal, RIGHT is 0"},
             {"--sparse-mode", &Options::sparse_mode, "MODE",
              "How atten_mask is meant, 0 to 8 (default 0); no effect without that tensor"},
             {"--pre-tokens", &Options::pre_tokens, "N",
              "Keys a row sees to its left in sparse modes 0, 4, 7 and 8; default: no bound"},
             {"--next-tokens", &Options::next_tokens, "N",
              "Keys a row sees to its right in sparse modes 0, 4, 7 and 8; default: no bound"},
             {"--prefix", &Options::prefix, "N,...",
              "Sparse modes 5 and 6: keys every row of a batch sees, one a batch"},
             {"--check-mask", &Options::check_mask, "",
              "Read a compressed mask and refuse one that is not the template"},
         }},
        {"Packed sequences (layout TND)",
         false,
         {
             {"--actual-seq-qlen", &Options::actual_seq_qlen, "N,...",
              "Where each sequence ends in the rows of query: 2,5,5 is lengths 2, 3, 0; trailing zeros: not there"},
             {"--actual-seq-kvlen", &Options::actual_seq_kvlen, "N,...", "The same for key and value"},
             {"--statistics-order", &Options::statistics_order, "by_sequence|by_token",
              "Order of softmax_max, softmax_sum and dlse", true},
         }},
        {"Position bias",
         false,
         {
             {"--pse-type", &Options::pse_type, "0|1|2|3",
              "What pse is: 0 added to the scaled score, 1 before the scale, 2 slopes of the distance |j - i|, 3 "
              "slopes "
              "of its root",
              true},
             {"--q-start", &Options::q_start, "N", "pse types 2 and 3: position of the first query"},
             {"--kv-start", &Options::kv_start, "N", "pse types 2 and 3: position of the first key"},
             {"--dbias", &Options::dbias, "", "The gradient of pse (of the slopes) too: dpse"},
         }},
        {"Dropout",
         false,
         {
             {"--keep-prob", &Options::keep_prob, "P",
              "Share of the weights that is kept, 0 < P <= 1; below 1 by drop_mask or, without one, drawn from --seed "
              "and --offset",
              true},
             {"--offset", &Options::offset, "N", "Of the dropout stream"},
         }},
        {"Drawn problems, instead of IN",
         true,
         {
             {"--shape", &Options::shape, "B,N1[:N2],S1[:S2],D[:Dv]",
              "Draw seeded normal data; N2 and S2 default to N1 and S1, Dv to D. Layout TND: each sequence's lengths, "
              "which may be ranges MIN..MAX to draw them from, or, with --actual-seq-qlen, the rows of the tensors"},
             {"--dtype", &Options::dtype, "DTYPE",
              "f64, f32, bf16, f16, f8e4m3 or f8e5m2; 8-bit data are quantised in blocks of 128 rows, with d_scale_*",
              true},
             {"--rope", &Options::rope, "DR", "query_rope and key_rope with DR columns"},
             {"--mask", Flag{&Options::mask}, "[=FORM]",
              "atten_mask: what the sparse mode asks for (modes 0 and 1: a random quarter hidden). FORM: " +
                  mask_words()},
             {"--bias", &Options::bias, "FORM", "pse, of form " + bias_words()},
             {"--bias-dtype", &Options::bias_dtype, "DTYPE",
              "f32, bf16 or f16; default: the problem's (8-bit: --out-dtype; slopes: f32)"},
             {"--drop-mask", &Options::drop_mask, "", "drop_mask with a share of about --keep-prob of ones"},
             {"--sink", &Options::sink, "", "sink, a logit a head"},
             {"--dlse", &Options::dlse, "", "dlse, a gradient of log(softmax_sum) + softmax_max"},
         }},
    };
    return groups;
}

/// CLI11's own conversion takes a decimal number beyond the type's range for its largest, and "-1" for 2^64 - 1.
template <class Integer>
std::string in_range(const std::string& text) {
    Integer value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool negative = std::is_unsigned_v<Integer> && text.starts_with('-');
    return error == std::errc::result_out_of_range || negative ? text + ", must be a number in range" : std::string();
}

/// Declares one row on a command.
struct Declare {
    CLI::App& command;
    Options& options;
    const Row& row;

    CLI::Option* operator()(Flag flag) const { return command.add_flag(row.name, options.*flag.text, row.help); }
    CLI::Option* operator()(bool Options::*place) const { return command.add_flag(row.name, options.*place, row.help); }
    CLI::Option* operator()(std::uint64_t Options::*place) const {
        return command.add_option(row.name, options.*place, row.help)->check(in_range<std::uint64_t>);
    }
    CLI::Option* operator()(std::int64_t Options::*place) const {
        return command.add_option(row.name, options.*place, row.help)->check(in_range<std::int64_t>);
    }
    template <class T>
    CLI::Option* operator()(T Options::*place) const {
        return command.add_option(row.name, options.*place, row.help);
    }
};

/// Whether an option's value is not the one it starts with.
struct Differs {
    const Options& options;
    const Options& start;

    bool operator()(Flag flag) const { return (*this)(flag.text); }
    template <class T>
    bool operator()(T Options::*place) const {
        return options.*place != start.*place;
    }
};

}  // namespace

void add_execution_options(CLI::App& command, int& threads, std::string& isa) {
    command
        .add_option("--threads", threads, "Threads, 1 to 1024; 0: FASCORE_NUM_THREADS if set, else all of this machine")
        ->type_name("N")
        ->group("Execution");
    command
        .add_option("--isa", isa, "Kernels to use, a name `fascore info` lists; default: FASCORE_ISA, else the best")
        ->type_name("NAME")
        ->group("Execution");
}

void add_problem_options(CLI::App& command, ProblemOptions& options) {
    for (const Group& group : table()) {
        for (const Row& row : group.rows) {
            CLI::Option* option = std::visit(Declare{command, options, row}, row.place);
            option->group(group.title);
            if (*row.type != '\0') option->type_name(row.type);
            if (row.show_default) option->capture_default_str();
        }
    }
    add_execution_options(command, options.threads, options.isa);
}

ProblemOptions parse_problem_line(std::string_view line, const std::string& where) {
    std::istringstream stream{std::string(line)};
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    ProblemOptions options;
    CLI::App app;
    app.set_help_flag();
    add_problem_options(app, options);
    try {
        app.parse(words);
    } catch (const CLI::ParseError& error) {
        throw Failure(fmt::format("{}: {}", where, parse_error_text(error)));
    }
    return options;
}

std::string given_for_drawing(const ProblemOptions& options) {
    const ProblemOptions start;
    for (const Group& group : table()) {
        if (!group.only_drawn) continue;
        for (const Row& row : group.rows) {
            if (std::visit(Differs{options, start}, row.place)) return row.name;
        }
    }
    return "";
}

}  // namespace fascore::cli
