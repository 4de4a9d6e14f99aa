// SPDX-License-Identifier: Apache-2.0
//
// fascore check: the acceptance test. Levels 0, 1 and 2 are the operator's own; from 3 on they are ours, each one
// hurting something else, up to a hard one. For each: forward, gradient from what the forward wrote, float64 reference,
// and the verdict  |a - r| <= 2e-2 + 1e-2·|r|  for every element of dQ, dK and dV.
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

    ForwardResult forward = run_forward(problem, problem.dtype);
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
    judge("dQ", ours.dq, reference.dq);
    judge("dK", ours.dk, reference.dk);
    judge("dV", ours.dv, reference.dv);
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
            fmt::print("{:>3}  {:<46} {}\n", number, levels[index].what, levels[index].problem);
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

Each level draws seeded normal data and judges dQ, dK and dV against the float64 reference: every element must satisfy
|ours - reference| <= 2e-2 + 1e-2 * |reference|. Exit status 1 when a level fails.)";

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
