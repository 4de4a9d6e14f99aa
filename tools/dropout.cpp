// SPDX-License-Identifier: Apache-2.0
//
// fascore dropout: which pairs of a problem dropout keeps. Of a drop_mask where the problem has one, else of what seed
// and offset draw (fascore/dropout.h): the bits the library itself never stores.
//
//   on stdout    a head of a batch after the other, a line a query row, a character a key: 1 kept, 0 dropped
//   in OUT       keep        BOOL [B, N1, S1, S2]; layout TND: each sequence's [N1, Sq, Skv], one after the other, flat
//                drop_mask   U8, the same elements packed to bits, least significant first: what IN may bring
#include <fmt/format.h>

#include <memory>
#include <string>

#include "command.h"
#include "fascore/dropout.h"
#include "fascore/version.h"
#include "pipeline.h"
#include "progress.h"

namespace fascore::cli {
namespace {

constexpr std::int64_t most_printed = 1'000'000;

struct Options {
    ProblemOptions problem;
    std::string output;
};

/// One byte a pair, batch after batch, [N1, S1, S2] each.
HostTensor keep_of(const Problem& problem) {
    const Extents& e = problem.extents;
    const Rows queries = problem.query_rows();
    const Rows keys = problem.key_rows();
    std::int64_t pairs = 0;
    for (std::int64_t b = 0; b < queries.batches(); ++b) pairs += e.N1 * queries.length(b) * keys.length(b);
    const std::vector<std::int64_t> shape = problem.packed() ? std::vector{pairs} : std::vector{e.B, e.N1, e.S1, e.S2};
    HostTensor keep("keep", DType::boolean, shape);
    keep.allocate();
    const AttentionParams& params = problem.params;
    const bool external = problem.drop_mask.present() && params.keep_prob < 1.0;
    std::int64_t at = 0;
    std::int64_t element = 0;  // of the generated stream, whose rows are padded to 16
    for (std::int64_t b = 0; b < queries.batches(); ++b) {
        const std::int64_t rows = e.N1 * queries.length(b);
        const std::int64_t columns = keys.length(b);
        if (rows == 0 || columns == 0) continue;
        if (external) {
            for (std::int64_t pair = at; pair < at + rows * columns; ++pair) {
                const auto byte = static_cast<unsigned>(problem.drop_mask.load(pair / 8));
                keep.store(pair, (byte >> static_cast<unsigned>(pair % 8)) & 1U);
            }
        } else {
            const TensorView view(keep.data() + at, DType::boolean, {rows, columns});
            require(dropout_keep(params.seed, params.offset, params.keep_prob, element, view));
        }
        at += rows * columns;
        element += rows * ((columns + 15) / 16 * 16);
    }
    return keep;
}

HostTensor packed_bits(const HostTensor& keep) {
    const std::int64_t count = keep.count();
    HostTensor bits("drop_mask", DType::u8, {(count + 7) / 8});
    bits.allocate();
    for (std::int64_t byte = 0; byte < bits.count(); ++byte) {
        unsigned value = 0;
        for (std::int64_t bit = 0; bit < 8 && byte * 8 + bit < count; ++bit) {
            if (keep.load(byte * 8 + bit) != 0.0) value |= 1U << static_cast<unsigned>(bit);
        }
        bits.store(byte, value);
    }
    return bits;
}

void print(const Problem& problem, const HostTensor& keep) {
    const Rows queries = problem.query_rows();
    const Rows keys = problem.key_rows();
    std::int64_t at = 0;
    for (std::int64_t b = 0; b < queries.batches(); ++b) {
        const std::int64_t columns = keys.length(b);
        for (std::int64_t n = 0; n < problem.extents.N1; ++n) {
            if (queries.length(b) > 0 && columns > 0) fmt::print("b={} n={}\n", b, n);
            for (std::int64_t i = 0; i < queries.length(b) && columns > 0; ++i) {
                std::string line;
                for (std::int64_t j = 0; j < columns; ++j) line += keep.load(at++) != 0.0 ? '1' : '0';
                fmt::print("{}\n", line);
            }
        }
    }
}

int dropout(const Options& options) {
    Problem problem = describe(options.problem, Needs::forward);
    (void)plan_forward_of(problem, problem.out_dtype);  // the library's refusal
    if (problem.drop_mask.present()) {
        load(problem, Needs::forward);
    }
    const HostTensor keep = keep_of(problem);
    const bool printed = keep.count() <= most_printed;
    if (!printed && options.output.empty()) {
        throw Failure(fmt::format("--output: absent, must be given for a mask of {} elements; up to {} are printed",
                                  keep.count(), most_printed));
    }
    if (!options.output.empty()) {
        const HostTensor bits = packed_bits(keep);
        const InterruptScope scope;
        write_safetensors(options.output, {&keep, &bits},
                          {{"producer", fmt::format("fascore {}", version)}, {"problem", problem.text()}});
    }
    if (printed) print(problem, keep);
    return exit_right;
}

constexpr const char* examples = R"(Examples:
  fascore dropout --shape 1,2,3:5,8 --keep-prob 0.5 --seed 2
  fascore dropout --shape 1,8,512,64 --keep-prob 0.9 --seed 2 --offset 16 -o mask.safetensors
  fascore dropout problem.safetensors --keep-prob 0.9

A head after the other, a line a query row, a character a key: 1 kept, 0 dropped. Of IN's drop_mask where it has one,
else of what --seed and --offset draw. OUT holds keep (BOOL, a byte a pair) and drop_mask (U8, the same packed to bits,
as IN may bring it). Up to a million pairs are printed.)";

}  // namespace

void add_dropout(CLI::App& parent, Work& chosen) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = parent.add_subcommand("dropout", "The dropout mask of a small problem, as rows of 0 and 1");
    add_problem_options(*command, options->problem);
    command->add_option("-o,--output", options->output, "safetensors file to write: keep and drop_mask")
        ->type_name("OUT");
    command->footer(examples);
    command->callback([options, &chosen] { chosen = [options] { return dropout(*options); }; });
}

}  // namespace fascore::cli
