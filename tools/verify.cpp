// SPDX-License-Identifier: Apache-2.0
//
// fascore verify: one problem computed three ways, side by side.
//
//   reference   float64, straight from the formulas
//   ours        the engine (or, with GRADS, the gradients somebody else's program left in a file)
//   plain       what an unfused framework gets in the same dtype: the yardstick
//
// A table of errors, ours beside plain, and a verdict per output; exit status 1 when one is worse than its budget
// (measure.h).
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "command.h"
#include "measure.h"
#include "pipeline.h"

namespace fascore::cli {
namespace {

struct Options {
    ProblemOptions problem;
    std::string gradients;
};

/// One row of the table.
struct Row {
    const char* output;
    Error ours;
    Error plain;
    bool right;
};

/// The plain evaluation rounds to the dtype of the inputs. Of 8-bit inputs it does not know what the results leave in,
/// so they are rounded here, as ours were; elsewhere this changes nothing.
void round_to(HostTensor& tensor, DType dtype) {
    HostTensor element("", dtype, {1});
    element.allocate();
    const std::int64_t count = tensor.count();
    for (std::int64_t at = 0; at < count; ++at) {
        element.store(0, tensor.load(at));
        tensor.store(at, element.load(0));
    }
}

Row judge(const char* output, const HostTensor& ours, HostTensor& plain, const HostTensor& reference, Budget budget) {
    round_to(plain, budget.dtype);
    const std::int64_t columns = reference.shape().empty() ? 1 : std::max<std::int64_t>(reference.shape().back(), 1);
    budget.rows = reference.count() / columns;
    Row row{output, measure_error(ours, reference, budget.dtype), measure_error(plain, reference, budget.dtype), false};
    row.right = within_budget(row.ours, row.plain, size_of_values(reference), budget);
    return row;
}

/// The outputs of `expected` from a file, any floating dtype of 16 bits or more.
GradientResult read_gradients(const SafetensorsFile& file, const GradientResult& expected) {
    GradientResult result;
    for (const GradientSlot& slot : gradient_slots()) {
        const HostTensor& wanted = expected.*slot.tensor;
        if (!wanted.present()) continue;
        HostTensor tensor = file.describe(wanted.name());
        if (tensor.dtype() == DType::boolean || size_of(tensor.dtype()) < 2) {
            throw Failure(fmt::format("{}: {}: dtype is {}, must be f64, f32, bf16 or f16", file.path(), wanted.name(),
                                      name(tensor.dtype())));
        }
        if (tensor.shape() != wanted.shape()) {
            throw Failure(fmt::format("{}: {}: shape is {}, must be {}", file.path(), wanted.name(),
                                      shape_text(tensor.shape()), shape_text(wanted.shape())));
        }
        file.load(tensor);
        result.*slot.tensor = std::move(tensor);
    }
    return result;
}

std::vector<Row> forward_rows(const Problem& problem) {
    const ForwardResult ours = run_forward(problem, problem.out_dtype);
    const ForwardResult reference = run_reference_forward(problem, Evaluation::exact);
    ForwardResult plain = run_reference_forward(problem, Evaluation::plain);
    const std::int64_t sum = longest_sum_of(problem);
    const Budget attention{problem.out_dtype, sum, 0.0, is_8bit(problem.dtype)};
    const Budget statistics{problem.statistic_dtype(), sum, 0.0};
    return {
        judge("attention_out", ours.attention_out, plain.attention_out, reference.attention_out, attention),
        judge("softmax_max", ours.softmax_max, plain.softmax_max, reference.softmax_max, statistics),
        judge("softmax_sum", ours.softmax_sum, plain.softmax_sum, reference.softmax_sum, statistics),
    };
}

std::vector<Row> gradient_rows(const Options& options, Problem& problem) {
    const BackwardInputs given =
        problem.backward_inputs();  // before complete_forward(): what the file brought, no more
    const GradientResult expected = gradient_result(problem);
    GradientResult ours;
    if (options.gradients.empty()) {
        complete_forward(problem);
        ours = run_gradient(problem);
    } else {
        ours = read_gradients(SafetensorsFile(options.gradients), expected);
    }
    const GradientResult reference = run_reference_gradient(problem, given, Evaluation::exact);
    GradientResult plain = run_reference_gradient(problem, given, Evaluation::plain);
    std::vector<Row> rows;
    for (const GradientSlot& slot : gradient_slots()) {
        const HostTensor& wanted = expected.*slot.tensor;
        if (!wanted.present()) continue;
        const Budget budget{wanted.dtype(), longest_sum_of(problem, slot.name), gradient_floor(problem, slot.name),
                            is_8bit(problem.dtype)};
        rows.push_back(judge(slot.name, ours.*slot.tensor, plain.*slot.tensor, reference.*slot.tensor, budget));
    }
    return rows;
}

std::string ulp_text(double ulp) { return ulp < 1e5 ? fmt::format("{:.2f}", ulp) : fmt::format("{:.2e}", ulp); }

void print_row(const Row& row) {
    fmt::print("{:<14} {:>10.3e} {:>10.3e} {:>9}  |{:>10.3e} {:>10.3e} {:>9}  {}\n", row.output, row.ours.max_abs,
               row.ours.relative_frobenius, ulp_text(row.ours.ulp), row.plain.max_abs, row.plain.relative_frobenius,
               ulp_text(row.plain.ulp), row.right ? "ok" : "WORSE");
}

int verify(Options options) {
    // A drawn problem has no IN: the one file named is then GRADS.
    if (!options.problem.shape.empty() && options.gradients.empty())
        std::swap(options.problem.input, options.gradients);
    Problem problem = describe(options.problem, Needs::gradient);
    // Everything there is to judge.
    const bool has_dpse = options.gradients.empty() || SafetensorsFile(options.gradients).contains("dpse");
    problem.dbias = problem.dbias || (problem.pse.present() && has_dpse);
    if (const auto warning = warning_of(options.problem, problem)) fmt::print(stderr, "fascore: {}\n", *warning);
    (void)plan_gradient_of(problem);  // the library's refusal, before anything is read
    load(problem, Needs::gradient);

    std::vector<Row> rows;
    if (options.gradients.empty()) rows = forward_rows(problem);
    for (Row& row : gradient_rows(options, problem)) rows.push_back(row);

    const char* judged = options.gradients.empty() ? "ours" : "given";
    fmt::print("{}\n", problem.text());
    fmt::print("{:<14} {:^31}  |{:^31}\n", "", fmt::format("{}, against float64", judged),
               fmt::format("plain {}, against float64", name(problem.dtype)));
    fmt::print("{:<14} {:>10} {:>10} {:>9}  |{:>10} {:>10} {:>9}  {} <= plain\n", "output", "max abs", "rel Frob",
               "ulp", "max abs", "rel Frob", "ulp", judged);
    bool right = true;
    for (const Row& row : rows) {
        print_row(row);
        right = right && row.right;
    }
    return right ? exit_right : exit_wrong;
}

constexpr const char* examples = R"(Examples:
  fascore verify problem.safetensors --scale 0.125
  fascore verify --shape 1,8,512,64 --causal
  fascore verify problem.safetensors grads.safetensors --scale 0.125
  fascore verify --shape 1,8,512,64 --causal grads.safetensors
  fascore verify --shape 1,2,300:200,80 --dtype f32 --window 64,0 --isa avx2
  fascore verify --shape 2,4,200,64 --bias 1NSS --pse-type 0 --keep-prob 0.9 --seed 2
  fascore verify --shape 5,4,0..300,64 --layout TND --causal --sink --softcap 30

Columns, for ours and for a plain evaluation (each step a tensor of the problem's dtype, as an unfused framework works);
a row for every output there is, that of pse always unless GRADS lacks dpse:
  max abs    largest |ours - reference|
  rel Frob   Frobenius norm of the difference over that of the reference
  ulp        largest |ours - reference| in units in the last place of the output's dtype, at the element or at the
             output's rms, whichever is larger
Verdict: max abs and Frobenius norm must each be at most 1.1 x plain's + one ulp of the largest reference value (f64:
the rounding of the reference itself). Outputs whose exact value is 0 may hold the rounding of their terms.
Exit status 1 when an output is worse. The reference takes O(S1*S2) time, the plain evaluation O(S1*S2) memory a head.)";

}  // namespace

void add_verify(CLI::App& parent, Work& chosen) {
    const auto options = std::make_shared<Options>();
    CLI::App* command =
        parent.add_subcommand("verify", "Errors against the float64 reference, beside a plain evaluation's");
    add_problem_options(*command, options->problem);
    command->add_option("GRADS", options->gradients, "safetensors file whose dq, dk, dv, … are judged instead of ours");
    command->footer(examples);
    command->callback([options, &chosen] { chosen = [options] { return verify(*options); }; });
}

}  // namespace fascore::cli
