// SPDX-License-Identifier: Apache-2.0
//
// fascore bench: how fast, as a share of what this core can do at most.
//
//   share = operations / seconds / (peak of one core × threads)
//
//   operations   PlanInfo's published count: forward (2·D + 2·Dv), backward (6·D + 4·Dv) a visible pair
//   seconds      median over the repetitions: at least 5 and at least 0.3 s of them, no new one after 20 s. One run
//                before is not counted, unless it alone took 4 s or more. Workspace is allocated outside
//   peak         of the arithmetic the row's kernels run in: bf16 dot, f32 or f64 multiply-add (PlanInfo::compute).
//   Where
//                the bf16 dot is slower than the f32 multiply-add the default is to widen, so the default is judged by
//                the faster of the two; --isa avx512_bf16 there is judged by the dot's own peak. Both peaks are
//                printed. Machines are noisy and clocks move, so the peak is measured three times before and three
//                times after each row and direction: the median of each three drops an outlier, and the larger of the
//                two medians is taken, so that a disturbance while a peak was measured never flatters a row
//
// The peaks between two rows serve both.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "command.h"
#include "fascore/info.h"
#include "pipeline.h"
#include "plan_text.h"
#include "progress.h"
#include "suite.h"

namespace fascore::cli {
namespace {

constexpr int least_runs = 5;
constexpr double least_seconds = 0.3;
constexpr double most_seconds = 20.0;
constexpr double long_run_seconds = most_seconds / least_runs;
constexpr std::size_t peaks_a_gap = 3;

struct Options {
    std::string suite;
    std::vector<std::string> only;
    std::string direction = "both";
    int threads = 0;
    std::string isa;
    bool json = false;
};

/// One line of the result.
struct Measurement {
    std::string name;
    const char* direction = "";
    PlanInfo plan;
    int threads = 0;
    std::vector<double> seconds;  ///< one per repetition, sorted
    double peak_gflops = 0;

    [[nodiscard]] double median() const { return seconds[seconds.size() / 2]; }
    [[nodiscard]] double gflops() const { return plan.operations / median() * 1e-9; }
    [[nodiscard]] double share() const { return peak_gflops > 0 ? gflops() / (peak_gflops * threads) : 0.0; }
};

double peak_for(const std::string& compute, const Peak& peak) {
    if (compute == "f64") return peak.f64;
    return compute == "bf16" ? peak.bf16_dot : peak.f32;
}

/// The peaks around a measurement: those before it carry over from the one before.
class PeakMeter {
  public:
    explicit PeakMeter(const std::string& isa) : isa_(isa), latest_(measure()) {}

    /// Measures again and returns the larger of the medians before and after.
    double around(const std::string& compute) {
        const std::array<Peak, peaks_a_gap> before = latest_;
        latest_ = measure();
        return std::max(median_for(compute, before), median_for(compute, latest_));
    }

    [[nodiscard]] const std::string& isa() const noexcept { return isa_; }
    [[nodiscard]] const Peak& latest() const noexcept { return latest_.back(); }

  private:
    static double median_for(const std::string& compute, const std::array<Peak, peaks_a_gap>& peaks) {
        std::array<double, peaks_a_gap> values{};
        for (std::size_t at = 0; at < peaks_a_gap; ++at) values[at] = peak_for(compute, peaks[at]);
        std::sort(values.begin(), values.end());
        return values[peaks_a_gap / 2];
    }
    std::array<Peak, peaks_a_gap> measure() const {
        std::array<Peak, peaks_a_gap> peaks;
        for (Peak& peak : peaks) require(measure_peak(isa_, peak));
        return peaks;
    }
    std::string isa_;
    std::array<Peak, peaks_a_gap> latest_;
};

/// Runs a call until there are enough repetitions; returns their seconds, sorted.
template <class Call>
std::vector<double> repeat(const Problem& problem, const std::string& label, const Call& call) {
    const InterruptScope scope;
    const WaitNote note(label);
    Execution execution = problem.execution();
    execution.cancel = &interrupt_token();
    const auto once = [&] {
        const auto start = std::chrono::steady_clock::now();
        require(call(execution));
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    std::vector<double> seconds;
    const double first = once();
    double total = 0.0;
    if (first >= long_run_seconds) {
        seconds.push_back(first);
        total = first;
    }
    while ((static_cast<int>(seconds.size()) < least_runs || total < least_seconds) && total < most_seconds) {
        seconds.push_back(once());
        total += seconds.back();
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds;
}

std::vector<double> time_forward(const Problem& problem, const PlanInfo& plan, const std::string& label) {
    ForwardResult result = forward_result(problem, problem.out_dtype, problem.statistic_dtype());
    result.allocate();
    const AlignedBuffer workspace = aligned_buffer(plan.workspace_bytes);
    return repeat(problem, label, [&](const Execution& execution) {
        return attention_forward(problem.params, problem.forward_inputs(), result.outputs(), execution,
                                 {workspace.get(), plan.workspace_bytes});
    });
}

std::vector<double> time_backward(const Problem& problem, const PlanInfo& plan, const std::string& label) {
    GradientResult result = gradient_result(problem);
    result.allocate();
    const AlignedBuffer workspace = aligned_buffer(plan.workspace_bytes);
    return repeat(problem, label, [&](const Execution& execution) {
        return attention_backward(problem.params, problem.backward_inputs(), result.outputs(), execution,
                                  {workspace.get(), plan.workspace_bytes});
    });
}

nlohmann::ordered_json to_json(const Measurement& m) {
    const PlanInfo& p = m.plan;
    return {{"name", m.name},
            {"direction", m.direction},
            {"B", p.B},
            {"N1", p.N1},
            {"N2", p.N2},
            {"S1", p.S1},
            {"S2", p.S2},
            {"D", p.D},
            {"Dv", p.Dv},
            {"dtype", name(p.dtype)},
            {"isa", p.isa},
            {"threads", m.threads},
            {"seconds", m.median()},
            {"gflops", m.gflops()},
            {"peak_gflops", m.peak_gflops},
            {"share", m.share()},
            {"workspace_bytes", p.workspace_bytes},
            {"compute", p.compute},
            {"kernel", p.kernel},
            {"visible_pairs", p.visible_pairs},
            {"operations", p.operations},
            {"seconds_min", m.seconds.front()},
            {"seconds_max", m.seconds.back()},
            {"repetitions", m.seconds.size()}};
}

void print_head(const PeakMeter& meter) {
    const Peak& peak = meter.latest();
    fmt::print("peak of one core, {}: f32 {:.1f}, f64 {:.1f}, bf16 dot {} GFLOP/s\n", meter.isa(), peak.f32, peak.f64,
               peak.bf16_dot > 0 ? fmt::format("{:.1f}", peak.bf16_dot) : std::string("none"));
    fmt::print("{:<18} {:<8} {:<24} {:<6} {:>3} {:>11} {:>9} {:>9} {:>7} {:>9} {:>10} {:>4}\n", "name", "way",
               "B,N1:N2,S1:S2,D:Dv", "dtype", "thr", "seconds", "GFLOP/s", "peak/core", "share", "ps/pair", "workspace",
               "runs");
}

void print_line(const Measurement& m) {
    const PlanInfo& p = m.plan;
    const auto pair = [](std::int64_t a, std::int64_t b) {
        return a == b ? fmt::format("{}", a) : fmt::format("{}:{}", a, b);
    };
    const std::string shape = fmt::format("{},{},{},{}", p.B, pair(p.N1, p.N2), pair(p.S1, p.S2), pair(p.D, p.Dv));
    const double each = p.visible_pairs > 0 ? m.median() / p.visible_pairs * 1e12 : 0.0;
    fmt::print("{:<18} {:<8} {:<24} {:<6} {:>3} {:>11.6f} {:>9.1f} {:>9.1f} {:>5.1f} % {:>9.1f} {:>10} {:>4}\n", m.name,
               m.direction, shape, name(p.dtype), m.threads, m.median(), m.gflops(), m.peak_gflops, 100.0 * m.share(),
               each, bytes_text(static_cast<double>(p.workspace_bytes)), m.seconds.size());
    std::fflush(stdout);
}

/// The problem of a row, with the command's own threads and ISA before the row's; judged by the library.
Problem row_problem(const SuiteRow& row, const Options& options) {
    ProblemOptions stated = row.problem;
    if (options.threads != 0) stated.threads = options.threads;
    if (!options.isa.empty()) stated.isa = options.isa;
    if (stated.threads == 0) require(default_threads(stated.threads));
    std::string why;
    const std::string request = stated.isa;
    require(select_isa(request, stated.isa, why));
    try {
        Problem problem = describe(stated, Needs::gradient);
        (void)plan_forward_of(problem, problem.out_dtype);
        (void)plan_gradient_of(problem);
        return problem;
    } catch (const Failure& failure) {
        throw Failure(fmt::format("{}: {}", row.name, failure.what()), failure.exit_status());
    }
}

int bench(const Options& options) {
    const bool forward = options.direction != "backward";
    const bool backward = options.direction != "forward";
    if (forward && backward && options.direction != "both") {
        throw Failure(fmt::format("--direction: {}, must be forward, backward or both", options.direction));
    }
    // Every row is judged before the first is timed.
    const std::vector<SuiteRow> rows = select_rows(read_suite(options.suite), options.only);
    for (const SuiteRow& row : rows) {
        const Problem problem = row_problem(row, options);
        if (const auto warning = warning_of(row.problem, problem)) {
            fmt::print(stderr, "fascore: {}: {}\n", row.name, *warning);
        }
    }

    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    std::optional<PeakMeter> meter;
    for (const SuiteRow& row : rows) {
        Problem problem = row_problem(row, options);
        if (!meter || meter->isa() != problem.isa) {
            meter.emplace(problem.isa);
            if (!options.json) print_head(*meter);
        }
        load(problem, Needs::gradient);
        const auto measure = [&](const char* direction, const PlanInfo& plan, auto time) {
            Measurement m;
            m.name = row.name;
            m.direction = direction;
            m.plan = plan;
            m.threads = problem.threads;
            m.seconds = time(problem, plan, fmt::format("{} {} ...", row.name, direction));
            m.peak_gflops = meter->around(plan.compute);
            if (options.json) {
                list.push_back(to_json(m));
            } else {
                print_line(m);
            }
        };
        if (forward) measure("forward", plan_forward_of(problem, problem.out_dtype), time_forward);
        if (backward) {
            // As the operator is called: attention_out in the dtype it leaves in.
            ForwardResult result = run_forward(problem, problem.out_dtype);
            problem.softmax_max = std::move(result.softmax_max);
            problem.softmax_sum = std::move(result.softmax_sum);
            problem.attention_out = std::move(result.attention_out);
            measure("backward", plan_gradient_of(problem), time_backward);
        }
    }
    if (options.json) fmt::print("{}\n", list.dump(2));
    return exit_right;
}

constexpr const char* examples = R"(Examples:
  fascore bench                                     the standard suite
  fascore bench --only level0,full_4096_128 --threads 1
  fascore bench features --threads 1                bias, dropout, packed sequences, rope-sized heads, 8-bit
  fascore bench my_suite.txt --isa avx2 --json

A suite line is a name and a problem in the syntax of score, grad and verify:
  causal_4096_128  --shape 1,8,4096,128 --causal
  biased           --shape 1,8,4096,128 --bias 1NSS --pse-type 0 --dbias

seconds    median over the repetitions (at least 5 and at least 0.3 s of them, at most about 20 s)
GFLOP/s    by the published count: forward 2*D + 2*Dv, backward 6*D + 4*Dv operations a visible pair
peak/core  of the arithmetic the row's kernels run in (bf16 dot, f32 or f64 multiply-add), measured three times right
           before and three times right after the row: the larger of the two medians
share      GFLOP/s over peak/core x threads
ps/pair    picoseconds a visible pair
Rows are not reordered. --threads and --isa go before what a row says.)";

}  // namespace

void add_bench(CLI::App& parent, Work& chosen) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = parent.add_subcommand("bench", "Time, GFLOP/s and share of the measured peak");
    command->add_option("SUITE", options->suite, "Suite file, or the name of one in bench/suites; default: standard");
    command->add_option("--only", options->only, "Rows to run, by name")->type_name("NAME,...")->delimiter(',');
    command->add_option("--direction", options->direction, "forward, backward or both")->capture_default_str();
    command->add_flag("--json", options->json, "Print a list of objects instead of a table");
    add_execution_options(*command, options->threads, options->isa);
    command->footer(examples);
    command->callback([options, &chosen] { chosen = [options] { return bench(*options); }; });
}

}  // namespace fascore::cli
