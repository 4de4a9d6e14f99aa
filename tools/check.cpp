// SPDX-License-Identifier: Apache-2.0
//
// fascore check: the acceptance test. Levels 0, 1 and 2 are the operator's own; from 3 on they are ours, each one
// hurting something else: first the dense core, up to a hard one, then each further feature, up to all at once. For
// each: forward, gradient from what the forward wrote, float64 reference, and the verdict  |a - r| <= 2e-2 + 1e-2·|r|
// for every element of every gradient.
#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "command.h"
#include "measure.h"
#include "pipeline.h"

namespace fascore::cli {
namespace {

constexpr double rtol = 1e-2;
constexpr double atol = 2e-2;

struct Level {
    const char* what;
    const char* problem;  ///< in the CLI's own syntax
};

constexpr Level levels[] = {
    {"the operator's level 0", "--shape 1,8,128,64"},
    {"the operator's level 1", "--shape 2,8,128,64"},
    {"the operator's level 2", "--shape 2,8,256,64"},
    {"tails: nothing divides a tile", "--shape 1,3,131:203,77 --seed 3"},
    {"one query row", "--shape 2,4,1:333,64 --seed 4"},
    {"GQA: four query heads share a key head", "--shape 2,8:2,160,64 --seed 5"},
    {"causal, bottom-right, more keys than queries", "--shape 1,4,257:300,64 --causal --seed 6"},
    {"causal, top-left, rows of the packed layout", "--shape 1,4,300:257,64 --causal=top-left --layout BSND --seed 7"},
    {"value narrower than query", "--shape 1,4,192,192:128 --causal --seed 8"},
    {"value wider than query", "--shape 1,4,144,40:136 --layout BSH --seed 9"},
    {"band, some rows see nothing", "--shape 1,4,411:300,64 --window 60,10 --seed 10"},
    {"f16", "--shape 1,4,200,64 --dtype f16 --causal --seed 11"},
    {"f32, large logits", "--shape 1,4,256,96 --dtype f32 --scale 1 --seed 12"},
    {"f64", "--shape 1,2,130,72 --dtype f64 --window 40,-1 --seed 13"},
    {"the largest head", "--shape 1,2,200,768 --causal --seed 14"},
    {"hard: GQA, odd lengths and widths, band, SBH",
     "--shape 2,6:3,517:389,136:72 --layout SBH --window 200,33 --seed 15"},
    {"bias before the scale, [B,N1,S1,S2]", "--shape 2,4:2,130:171,64 --bias BNSS --dbias --seed 16"},
    {"bias after the scale, one for all batches", "--shape 2,3,131,80 --bias 1NSS --pse-type 0 --dbias --seed 17"},
    {"bias of the keys alone, f32",
     "--shape 2,4,100:333,64 --bias B11S --bias-dtype f32 --pse-type 0 --dbias --seed 18"},
    {"a compressed bias, causal", "--shape 1,2,1100,40 --bias 1NHS --pse-type 0 --causal --dbias --seed 19"},
    // In f32: a slope's gradient is a long sum of distances, in which the rounding of a bf16 attention_out shows.
    {"slopes of the distance, [B,N1], f32",
     "--shape 2,4:2,150,64 --dtype f32 --bias BN --pse-type 2 --q-start 5 --kv-start 2 --causal --dbias --seed 20"},
    {"slopes of its root, [N1], f32", "--shape 2,4,150,64 --dtype f32 --bias N --pse-type 3 --dbias --seed 21"},
    {"dropout, drawn", "--shape 2,4:2,150:203,64 --keep-prob 0.8 --offset 17 --seed 22"},
    {"dropout by a mask, causal", "--shape 2,4,150:203,64 --keep-prob 0.7 --drop-mask --causal --seed 23"},
    {"mode 0: a mask within a band", "--shape 2,4,150:203,64 --mask=BNSS --pre-tokens 90 --next-tokens 60 --seed 24"},
    {"mode 4: a band from the lower right",
     "--shape 1,4,203:150,64 --mask --sparse-mode 4 --pre-tokens 40 --next-tokens 20 --check-mask --seed 25"},
    {"mode 5: prefix, full mask", "--shape 2,4,203:150,64 --mask --sparse-mode 5 --prefix 70,0 --seed 26"},
    {"mode 6: prefix, compressed mask", "--shape 2,4,150:203,64 --mask --sparse-mode 6 --prefix 120,53 --seed 27"},
    {"packed sequences, some empty",
     "--shape 6,4:2,300:330,64 --layout TND --actual-seq-qlen 1,130,130,200,300,0 "
     "--actual-seq-kvlen 40,41,150,150,330,0 --seed 28"},
    {"packed sequences of drawn lengths, causal, statistics by token",
     "--shape 7,4,1..200,72 --layout TND --causal --statistics-order by_token --seed 29"},
    {"mode 7: the last sequence cut",
     "--shape 3,2,230:400,64 --layout TND --actual-seq-qlen 30,130,230 --actual-seq-kvlen 60,200,400 "
     "--mask --sparse-mode 7 --pre-tokens 200 --next-tokens -40 --seed 30"},
    {"mode 8: the first sequence cut",
     "--shape 3,2,230:230,64 --layout TND --actual-seq-qlen 60,130,230 --actual-seq-kvlen 100,160,230 "
     "--mask --sparse-mode 8 --pre-tokens 100 --next-tokens 0 --seed 31"},
    {"rope parts, value narrower", "--shape 1,4,200,128:128 --rope 64 --causal --seed 32"},
    {"a sink", "--shape 2,4:2,150:90,64 --causal --sink --seed 33"},
    {"soft cap", "--shape 1,4,203,64 --softcap 2 --scale 0.5 --seed 34"},
    {"a gradient on the log-sum-exp", "--shape 2,4,150:203,64 --causal --dlse --seed 35"},
    {"8-bit, e4m3", "--shape 1,4:2,300:260,64 --dtype f8e4m3 --seed 36"},
    {"8-bit, e5m2, out f16", "--shape 2,2,150:260,128:64 --dtype f8e5m2 --out-dtype f16 --causal --seed 37"},
    {"all at once",
     "--shape 5,6:2,0..300:1..280,80:56 --layout TND --rope 24 --causal --bias NSS --dbias --keep-prob 0.85 --sink "
     "--softcap 4 --dlse --seed 38"},
};

struct Options {
    std::optional<int> level;
    bool list = false;
    std::string run_mode = "sim";
    int threads = 0;
    std::string isa;
};

Problem level_problem(const Level& level, const Options& options) {
    ProblemOptions stated = parse_problem_line(level.problem, "check");
    stated.threads = options.threads;
    stated.isa = options.isa;
    return describe(stated, Needs::gradient);
}

/// One level; true when every gradient is close.
bool run_level(std::size_t number, const Options& options) {
    const Level& level = levels[number];
    Problem problem = level_problem(level, options);
    fmt::print("level {}: {}\n  {}\n", number, level.what, problem.text());
    std::fflush(stdout);
    load(problem, Needs::gradient);
    const BackwardInputs exact = problem.backward_inputs();  // no statistics: the reference makes its own

    ForwardResult forward = run_forward(problem, problem.out_dtype);
    problem.softmax_max = std::move(forward.softmax_max);
    problem.softmax_sum = std::move(forward.softmax_sum);
    problem.attention_out = std::move(forward.attention_out);
    const GradientResult ours = run_gradient(problem);
    const GradientResult reference = run_reference_gradient(problem, exact, Evaluation::exact);

    bool pass = true;
    const auto judge = [&](const char* label, const HostTensor& actual, const HostTensor& wanted) {
        const Closeness close = closeness(actual, wanted, rtol, atol);
        fmt::print("  {} max diff: {:.6e}\n", label, close.max_abs);
        if (close.beyond > 0)
            fmt::print("  {}: {} of {} elements beyond tolerance\n", label, close.beyond, actual.count());
        pass = pass && close.beyond == 0;
    };
    for (const GradientSlot& slot : gradient_slots()) {
        if ((ours.*slot.tensor).present()) judge(slot.label, ours.*slot.tensor, reference.*slot.tensor);
    }
    fmt::print("[PRECISION_{}]\n", pass ? "PASS" : "FAIL");
    std::fflush(stdout);
    return pass;
}

int check(const Options& options) {
    const auto count = static_cast<int>(std::size(levels));
    if (options.run_mode == "npu") {
        throw Failure("--run_mode: npu, no accelerator backend is built; must be sim, which runs on this CPU");
    }
    if (options.run_mode != "sim") throw Failure(fmt::format("--run_mode: {}, must be sim or npu", options.run_mode));
    if (options.level && (*options.level < 0 || *options.level >= count)) {
        throw Failure(fmt::format("LEVEL: {}, must be 0 to {} (fascore check --list)", *options.level, count - 1));
    }
    const int first = options.level.value_or(0);
    const int last = options.level.value_or(count - 1);
    if (!options.list) (void)plan_gradient_of(level_problem(levels[first], options));  // a bad --isa or --threads
    int failed = 0;
    for (int number = first; number <= last; ++number) {
        const auto index = static_cast<std::size_t>(number);
        if (options.list) {
            fmt::print("{:>3}  {:<62} {}\n", number, levels[index].what, levels[index].problem);
        } else if (!run_level(index, options)) {
            ++failed;
        }
    }
    if (options.list) return exit_right;
    if (failed > 0) {
        fmt::print("{} of {} tests failed\n", failed, last - first + 1);
        return exit_wrong;
    }
    fmt::print("All tests passed!\n");
    return exit_right;
}

constexpr const char* examples = R"(Examples:
  fascore check              every level
  fascore check 0            the operator's level 0
  fascore check --list       the levels, each as a problem that score, grad, verify and bench take too
  fascore check 15 --isa baseline --threads 1

Each level draws seeded normal data and judges every gradient (dQ, dK, dV, and those of rope parts, bias and sink)
against the float64 reference: every element must satisfy |ours - reference| <= 2e-2 + 1e-2 * |reference|. Levels 0 to 2
are the operator's own, up to 15 the dense core, then bias, dropout, sparse modes, packed sequences, rope parts, sink,
soft cap, dlse and 8-bit data, the last one nearly all at once. Exit status 1 when a level fails.)";

}  // namespace

void add_check(CLI::App& parent, Work& chosen) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = parent.add_subcommand("check", "The operator's test levels and harder ones, against float64");
    command->add_option("LEVEL", options->level, "The level to run; default: all");
    command->add_flag("--list", options->list, "List the levels, run nothing");
    command
        ->add_option("--run_mode,--run-mode", options->run_mode,
                     "sim: on this CPU; npu: on an accelerator, for which no backend is built")
        ->type_name("sim|npu")
        ->capture_default_str();
    add_execution_options(*command, options->threads, options->isa);
    command->footer(examples);
    command->callback([options, &chosen] { chosen = [options] { return check(*options); }; });
}

}  // namespace fascore::cli
