// SPDX-License-Identifier: Apache-2.0
//
// fascore score and fascore grad: the forward and the gradient of one problem, from file to file.
//
//   score   query key value            → attention_out softmax_max softmax_sum
//   grad    query key value dy [...]   → dq dk dv [dq_rope dk_rope dpse dsink]
//                                        the forward runs first where its results are absent
//
// Steps: 1 describe; 2 let the library judge (or print the plan, and stop); 3 load; 4 run; 5 write, all or nothing.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "fascore/version.h"
#include "pipeline.h"
#include "plan_text.h"
#include "progress.h"

namespace fascore::cli {
namespace {

struct Options {
    ProblemOptions problem;
    std::string output;
    bool plan = false;
    bool with_inputs = false;
};

void add_options(CLI::App& command, Options& options) {
    add_problem_options(command, options.problem);
    command.add_option("-o,--output", options.output, "safetensors file to write; replaced as a whole or not at all")
        ->type_name("OUT");
    command.add_flag("--with-inputs", options.with_inputs,
                     "Write the problem's own tensors too, so that OUT is a problem file itself");
    command.add_flag("--plan", options.plan,
                     "Print the plan (tiles, skipped share, workspace, ISA, kernel), run nothing");
}

/// Results and, where wanted, inputs into the output file, whole or not at all.
void write(const Options& options, const Problem& problem, std::vector<const HostTensor*> tensors) {
    if (options.with_inputs) {
        for (const HostTensor* tensor : problem.own_tensors()) tensors.push_back(tensor);
    }
    const InterruptScope scope;  // Ctrl-C must not leave a temporary file behind
    write_safetensors(options.output, tensors,
                      {{"producer", fmt::format("fascore {}", version)}, {"problem", problem.text()}});
}

void require_output(const Options& options) {
    if (!options.plan && options.output.empty()) {
        throw Failure("--output: absent, must name the file to write (or ask for the --plan alone)");
    }
}

void warn(const ProblemOptions& options, const Problem& problem) {
    if (const auto warning = warning_of(options, problem)) fmt::print(stderr, "fascore: {}\n", *warning);
}

int score(const Options& options) {
    require_output(options);
    const Needs needs = options.with_inputs ? Needs::inputs : Needs::forward;
    Problem problem = describe(options.problem, needs);
    warn(options.problem, problem);

    const PlanInfo plan = plan_forward_of(problem, problem.out_dtype);
    if (options.plan) {
        fmt::print("{}", plan_text("forward", plan));
        return exit_right;
    }
    load(problem, needs);
    const ForwardResult result = run_forward(problem, problem.out_dtype);
    write(options, problem, {&result.attention_out, &result.softmax_max, &result.softmax_sum});
    return exit_right;
}

int grad(const Options& options) {
    require_output(options);
    Problem problem = describe(options.problem, Needs::gradient);
    warn(options.problem, problem);

    const PlanInfo plan = plan_gradient_of(problem);
    if (options.plan) {
        if (forward_is_needed(problem)) {
            fmt::print("{}", plan_text("forward", plan_forward_of(problem, exact_attention_dtype(problem))));
        }
        fmt::print("{}", plan_text("gradient", plan));
        return exit_right;
    }
    load(problem, Needs::gradient);
    complete_forward(problem);
    const GradientResult result = run_gradient(problem);
    write(options, problem, tensors_of(result));
    return exit_right;
}

constexpr const char* score_examples = R"(Examples:
  fascore score problem.safetensors -o scores.safetensors --scale 0.125
  fascore score problem.safetensors -o scores.safetensors --layout BSH --head-num 8 --causal
  fascore score --shape 1,8,1024,64 --seed 7 -o drawn.safetensors --with-inputs
  fascore score --shape 1,1,131072,64 --window 1023,0 --plan
  fascore score packed.safetensors -o scores.safetensors --layout TND --actual-seq-qlen 100,164 \
      --actual-seq-kvlen 100,164 --causal
  fascore score --shape 8,4,16..512,64 --layout TND --keep-prob 0.9 --seed 7 -o drawn.safetensors --with-inputs

OUT holds attention_out (query's dtype; 8-bit: --out-dtype), softmax_max and softmax_sum ([B, N1, S1, 8], TND
[T, N1, 8]; f32, f64 for f64 input).)";

constexpr const char* grad_examples = R"(Examples:
  fascore grad problem.safetensors -o grads.safetensors --scale 0.125
  fascore grad problem.safetensors -o grads.safetensors --causal=top-left --threads 2
  fascore grad --shape 2,8:2,512,128 --causal --dtype f32 -o grads.safetensors
  fascore grad --shape 1,1,131072,64 --causal --plan
  fascore grad biased.safetensors -o grads.safetensors --pse-type 0 --dbias --keep-prob 0.9 --seed 3
  fascore grad --shape 1,8,512,128 --rope 64 --causal --sink -o grads.safetensors
  fascore grad --shape 1,8,512,128 --dtype f8e4m3 --out-dtype f16 -o grads.safetensors

Where IN lacks softmax_max and softmax_sum, or attention_out, the forward runs first; its attention_out is then kept
in f32 for 16-bit and 8-bit inputs. Statistics that IN brings are used as they are. OUT holds dq, dk and dv, dq_rope and
dk_rope where IN has rope parts, dsink where it has a sink, and dpse with --dbias.)";

}  // namespace

void add_score(CLI::App& parent, Work& chosen) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = parent.add_subcommand("score", "Attention forward: attention_out, softmax_max, softmax_sum");
    add_options(*command, *options);
    command->footer(score_examples);
    command->callback([options, &chosen] { chosen = [options] { return score(*options); }; });
}

void add_grad(CLI::App& parent, Work& chosen) {
    const auto options = std::make_shared<Options>();
    CLI::App* command =
        parent.add_subcommand("grad", "Attention gradient: dq, dk, dv and those of rope parts, pse and sink");
    add_options(*command, *options);
    command->footer(grad_examples);
    command->callback([options, &chosen] { chosen = [options] { return grad(*options); }; });
}

}  // namespace fascore::cli
