// SPDX-License-Identifier: Apache-2.0
//
// The program as a user meets it: every sub-command, its exit statuses, what it says where, and what it leaves on disk.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "fascore/info.h"
#include "fascore/version.h"
#include "safetensors.h"
#include "tools/run_cli.h"

namespace fascore::cli {
namespace {

using testing::read_bytes;
using testing::run_cli;
using testing::safetensors_bytes;
using testing::Said;
using testing::Scratch;
using testing::write_bytes;

constexpr const char* small = "--shape 1,2,24:40,16 --seed 5";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

HostTensor tensor_of(const std::string& path, const std::string& name) {
    const SafetensorsFile file(path);
    HostTensor tensor = file.describe(name);
    file.load(tensor);
    return tensor;
}

void expect_same(const HostTensor& a, const HostTensor& b) {
    ASSERT_EQ(a.shape(), b.shape());
    ASSERT_EQ(a.dtype(), b.dtype());
    for (std::int64_t index = 0; index < a.count(); ++index) ASSERT_EQ(a.load(index), b.load(index)) << index;
}

/// "2,5,9" of `fascore dropout`'s output for B packed self-attention sequences: the rows printed for head 0 of each.
std::string packed_ends(const std::string& printed, int B) {
    std::string ends;
    int end = 0;
    for (int b = 0; b < B; ++b) {
        const auto at = printed.find(fmt::format("b={} n=0\n", b));
        const auto next = printed.find("b=", at == std::string::npos ? at : at + 1);
        if (at != std::string::npos) {
            const auto stop = next == std::string::npos ? printed.size() : next;
            end += static_cast<int>(std::count(printed.begin() + static_cast<std::ptrdiff_t>(at),
                                               printed.begin() + static_cast<std::ptrdiff_t>(stop), '\n')) -
                   1;
        }
        ends += fmt::format("{}{}", b == 0 ? "" : ",", end);
    }
    EXPECT_GT(end, 0) << printed;
    return ends;
}

// ---------------------------------------------------------------------------------------------------- help and
// refusals

TEST(Cli, help_everywhere) {
    for (const char* command : {"", "check", "score", "grad", "verify", "bench", "dropout", "info"}) {
        const Said said = run_cli(std::string(command) + " --help");
        EXPECT_EQ(said.status, 0) << command;
        EXPECT_TRUE(contains(said.out, "Examples:\n  fascore ")) << command;
        EXPECT_EQ(said.err, "") << command;
    }
    for (const char* command : {"score", "grad", "verify", "dropout"}) {
        const std::string help = run_cli(std::string(command) + " --help").out;
        // The help wraps where it likes: compare words, not lines.
        std::string words;
        for (const char letter : help) {
            if (letter != ' ' && letter != '\n') words += letter;
        }
        EXPECT_TRUE(contains(words, "default:1forafile(theoperator's),1/sqrt(D)with--shape")) << help;
        for (const char* option : {"--layout",
                                   "--softcap",
                                   "--out-dtype",
                                   "--sparse-mode",
                                   "--prefix",
                                   "--check-mask",
                                   "--actual-seq-qlen",
                                   "--actual-seq-kvlen",
                                   "--statistics-order",
                                   "--pse-type",
                                   "--q-start",
                                   "--kv-start",
                                   "--dbias",
                                   "--keep-prob",
                                   "--seed",
                                   "--offset",
                                   "--inner-precise",
                                   "--rope",
                                   "--mask",
                                   "--bias",
                                   "--bias-dtype",
                                   "--drop-mask",
                                   "--sink",
                                   "--dlse",
                                   "query_rope",
                                   "d_scale_dy"}) {
            EXPECT_TRUE(contains(help, option)) << command << " " << option;
        }
    }
    EXPECT_EQ(run_cli("--version").out, fmt::format("fascore {}\n", version));
}

struct Refusal {
    const char* line;
    const char* message;  ///< the whole of stderr behind "fascore: ", or its beginning
};

class CliRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(CliRefuses, with_status_2_and_a_message) {
    const Scratch scratch;
    std::string line = GetParam().line;
    if (const auto at = line.find("OUT"); at != std::string::npos) line.replace(at, 3, scratch.path("out"));
    const Said said = run_cli(line);
    EXPECT_EQ(said.status, 2) << line;
    EXPECT_EQ(said.out, "") << line;
    EXPECT_EQ(said.err.rfind(std::string("fascore: ") + GetParam().message, 0), 0U) << line << "\n" << said.err;
    EXPECT_TRUE(scratch.files().empty()) << "something was written";
}

INSTANTIATE_TEST_SUITE_P(
    Cli, CliRefuses,
    ::testing::Values(
        Refusal{"", "A subcommand is required"},
        Refusal{"nosuch", "COMMAND: nosuch, must be one of check, score, grad, verify, bench, dropout, info\n"},
        Refusal{"check --bogus", "The following argument was not expected: --bogus"},
        Refusal{"check 99", "LEVEL: 99, must be 0 to 38 (fascore check --list)\n"},
        Refusal{"check -1", "LEVEL: -1, must be 0 to 38"},
        Refusal{"check two", "LEVEL: two, must be a number in range"},
        Refusal{"check --run_mode npu", "--run_mode: npu, no accelerator backend is built; must be sim"},
        Refusal{"check 0 --run-mode gpu", "--run_mode: gpu, must be sim or npu\n"},
        Refusal{"check 0 --isa nosuch", "isa: "}, Refusal{"check 0 --threads 1025", "threads: "},
        Refusal{"grad -o OUT", "IN: absent, must be a safetensors file"},
        Refusal{"grad --shape 1,2,8,16", "--output: absent, must name the file to write"},
        Refusal{"score /nonexistent -o OUT", "/nonexistent: cannot be read: No such file or directory\n"},
        Refusal{"score /dev/null -o OUT", "/dev/null: not a regular file\n"},
        Refusal{"grad --shape 1,2,8 -o OUT", "--shape: 1,2,8, must be B,N1[:N2],S1[:S2],D[:Dv]"},
        Refusal{"grad --shape 1,2,8,769 -o OUT", "query: head_dim is 769, must be at most 768\n"},
        Refusal{"grad --shape 1,257,8,16 -o OUT", "query: head count is 257, must be at most 256\n"},
        Refusal{"grad --shape 1,3:2,8,16 -o OUT", "key: head count is 2, must divide query's 3\n"},
        Refusal{"score --shape 1,2,8,16 --layout NTD -o OUT", "--layout: NTD, must be BNSD, BSND, BSH, SBH or TND\n"},
        Refusal{"score --shape 1,2,8,16 --dtype f8 -o OUT",
                "--dtype: f8, must be f64, f32, bf16, f16, f8e4m3 or f8e5m2\n"},
        Refusal{"score --shape 1,2,4..8,16 -o OUT", "--shape: 1,2,4..8,16, must have one S1 and one S2"},
        Refusal{"score --shape 2,2,8,16 --layout TND --actual-seq-qlen 4,8 -o OUT", "--actual-seq-kvlen: absent"},
        Refusal{"score --shape 2,2,8,16 --layout TND --actual-seq-qlen 4,x --actual-seq-kvlen 4,8 -o OUT",
                "--actual-seq-qlen: 4,x, must be integers separated by commas, like 2,5,9\n"},
        Refusal{"score --shape 2,2,8,16 --layout TND --actual-seq-qlen 8,4 --actual-seq-kvlen 4,8 -o OUT",
                "actual_seq_qlen: "},
        Refusal{"score --shape 1,2,8,16 --statistics-order x -o OUT", "--statistics-order: x, must be by_sequence"},
        Refusal{"score --shape 1,2,8,16 --out-dtype f32 -o OUT", "--out-dtype: f32, must not be given"},
        Refusal{"score --shape 1,2,8,16 --bias odd -o OUT", "--bias: odd, must be full, heads, row, "},
        Refusal{"score --shape 1,2,8,16 --bias full --pse-type 4 -o OUT", "pse_type: "},
        Refusal{"grad --shape 1,2,8,16 --dbias -o OUT", "--dbias: given without pse"},
        Refusal{"score --shape 1,2,8,16 --mask=odd -o OUT", "--mask: odd, must be SS, 11SS, "},
        Refusal{"score --shape 1,2,8,16 --mask --sparse-mode 9 -o OUT", "sparse_mode: "},
        Refusal{"score --shape 1,2,8,16 --mask --sparse-mode 6 -o OUT", "prefix: "},
        Refusal{"score --shape 1,2,8,16 --mask --sparse-mode 6 --prefix 9 -o OUT", "prefix"},
        Refusal{"score --shape 1,2,8,16 --mask --sparse-mode 6 --prefix 3.5 -o OUT", "--prefix: 3.5, must be integers"},
        Refusal{"score --shape 1,2,8,16 --mask=SS --sparse-mode 2 -o OUT", "atten_mask: "},
        Refusal{"score --shape 1,2,8,16 --keep-prob 0 -o OUT", "keep_prob: "},
        Refusal{"score --shape 1,2,8,16 --keep-prob 1.5 -o OUT", "keep_prob: "},
        Refusal{"score --shape 1,2,8,16 --offset -1 -o OUT", "--offset: -1, must be a number in range"},
        Refusal{"score --shape 1,2,8,16 --seed -1 -o OUT", "--seed: -1, must be a number in range"},
        Refusal{"score --shape 1,2,8,16 --seed 18446744073709551616 -o OUT",
                "--seed: 18446744073709551616, must be a number in range"},
        Refusal{"score --shape 1,2,8,16 --head-num 18446744073709551617 -o OUT",
                "--head-num: 18446744073709551617, must be a number in range"},
        Refusal{"score --shape 1,2,8,16 --softcap -1 -o OUT", "softcap: "},
        Refusal{"score --shape 1,2,8,16 --inner-precise 3 -o OUT", "inner_precise: "},
        Refusal{"score --shape 1,2,8,16 --rope -4 -o OUT", "--rope: -4, must be at least 0\n"},
        Refusal{"score --shape 1,2,8,700 --rope 100 -o OUT", "query"},
        Refusal{"score /nonexistent --sink -o OUT", "--sink: given with a file, must be with --shape"},
        Refusal{"dropout", "IN: absent"}, Refusal{"dropout --shape 1,2,8,16 --keep-prob 2", "keep_prob: "},
        Refusal{"dropout --shape 1,2,1000,16 --keep-prob 0.5",
                "--output: absent, must be given for a mask of 2000000 elements; up to 1000000 are printed\n"},
        Refusal{"score --shape 1,2,8,16 --scale inf -o OUT", "scale: given inf, must be a finite number\n"},
        Refusal{"score --shape 1,2,8,16 --scale x -o OUT", "--scale: x, must be a number in range"},
        Refusal{"score --shape 1,2,8,16 --causal=left -o OUT", "--causal: left, must be bottom-right or top-left\n"},
        Refusal{"score --shape 1,2,8,16 --window 4 -o OUT", "--window: 4, must be LEFT,RIGHT"},
        Refusal{"score --shape 1,2,8,16 --head-num 3 -o OUT", "head_num: "},
        Refusal{"score --shape 1,2,8,16 --threads -1 -o OUT", "threads: "},
        Refusal{"score --shape 1,2,8,16 --isa z80 -o OUT", "isa: "},
        Refusal{"score --shape 1,2,8,16 -o /nonexistent/x",
                "/nonexistent/x: cannot be written: No such file or directory\n"},
        Refusal{"score --shape 1,2,8,16 -o /tmp", "/tmp: is a directory\n"},
        Refusal{"score --shape 1,2,8,16 -o /dev/full", "/dev/full: cannot be written: No space left on device\n"},
        Refusal{"verify", "IN: absent"},
        Refusal{"verify --shape 1,2,8,16 /nonexistent", "/nonexistent: cannot be read"},
        Refusal{"bench nosuch", "SUITE: nosuch, must be a suite file or the name of one in "},
        Refusal{"bench --only nosuch", "--only: nosuch, must be one of level0, level2, "},
        Refusal{"bench --direction up", "--direction: up, must be forward, backward or both\n"},
        Refusal{"bench --only level0 --isa nosuch", "isa: "}, Refusal{"info --isa nosuch", "isa: "}));

TEST(Cli, unknown_environment_values_are_refused) {
    EXPECT_EQ(run_cli("info", "FASCORE_ISA=z80").status, 2);
    EXPECT_EQ(run_cli("info", "FASCORE_NUM_THREADS=many").status, 2);
}

// ---------------------------------------------------------------------------------------------------- check

TEST(Cli, check_level_0) {
    const Said said = run_cli("check 0");
    EXPECT_EQ(said.status, 0) << said.out << said.err;
    EXPECT_TRUE(contains(said.out, "B=1 N1=8 N2=8 S1=128 S2=128 D=64 Dv=64 bf16 BNSD scale 0.125 full"));
    for (const char* label : {"dQ", "dK", "dV"}) {
        const auto at = said.out.find(std::string(label) + " max diff: ");
        ASSERT_NE(at, std::string::npos) << said.out;
        double difference = -1.0;
        ASSERT_EQ(std::sscanf(said.out.c_str() + at + 2, " max diff: %le", &difference), 1);
        // Not 0 (then nothing was compared) and inside the tolerance for the largest values that occur, a few units.
        EXPECT_GT(difference, 0.0);
        EXPECT_LT(difference, 5e-2);
    }
    EXPECT_TRUE(contains(said.out, "[PRECISION_PASS]\n"));
    EXPECT_FALSE(contains(said.out, "[PRECISION_FAIL]"));
    EXPECT_TRUE(said.out.ends_with("All tests passed!\n"));
    EXPECT_EQ(said.err, "");
}

TEST(Cli, check_runs_every_level_by_default) {
    const Said said = run_cli("check --run_mode sim");
    EXPECT_EQ(said.status, 0) << said.out << said.err;
    int passes = 0;
    for (auto at = said.out.find("[PRECISION_PASS]"); at != std::string::npos;
         at = said.out.find("[PRECISION_PASS]", at + 1)) {
        ++passes;
    }
    EXPECT_EQ(passes, 39);
    EXPECT_TRUE(contains(said.out, "B=2 N1=8 N2=8 S1=128 S2=128 D=64 Dv=64 bf16"));
    EXPECT_TRUE(contains(said.out, "B=2 N1=8 N2=8 S1=256 S2=256 D=64 Dv=64 bf16"));
}

TEST(Cli, check_list_is_the_problem_syntax) {
    const Said said = run_cli("check --list");
    EXPECT_EQ(said.status, 0);
    EXPECT_TRUE(contains(said.out, "--shape 1,8,128,64\n"));
    EXPECT_FALSE(contains(said.out, "PRECISION"));
    // Every listed problem can be pasted behind another sub-command.
    std::size_t problems = 0;
    for (auto at = said.out.find("--shape"); at != std::string::npos; at = said.out.find("--shape", at + 1)) {
        const std::string problem = said.out.substr(at, said.out.find('\n', at) - at);
        EXPECT_EQ(run_cli("grad --plan " + problem).status, 0) << problem;
        ++problems;
    }
    EXPECT_EQ(problems, 39U);
}

TEST(Cli, check_on_every_isa) {
    for (const IsaInfo& isa : built_isas()) {
        if (!isa.runnable) continue;
        EXPECT_EQ(run_cli("check 3 --threads 2 --isa " + isa.name).status, 0) << isa.name;
    }
}

// ---------------------------------------------------------------------------------------------------- score and grad

TEST(Cli, score_writes_its_three_tensors) {
    const Scratch scratch;
    const std::string out = scratch.path("s");
    const Said said = run_cli(fmt::format("score {} -o {}", small, out));
    EXPECT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out + said.err, "");
    const SafetensorsFile file(out);
    EXPECT_EQ(file.entries().size(), 3U);
    EXPECT_EQ(file.describe("attention_out").shape(), (std::vector<std::int64_t>{1, 2, 24, 16}));
    EXPECT_EQ(file.describe("attention_out").dtype(), DType::bf16);
    EXPECT_EQ(file.describe("softmax_max").shape(), (std::vector<std::int64_t>{1, 2, 24, 8}));
    EXPECT_EQ(file.describe("softmax_sum").dtype(), DType::f32);
}

TEST(Cli, file_and_drawn_problem_are_the_same) {
    const Scratch scratch;
    const std::string problem = scratch.path("problem");
    ASSERT_EQ(run_cli(fmt::format("score {} --with-inputs -o {}", small, problem)).status, 0);
    ASSERT_EQ(run_cli(fmt::format("score {} --scale 0.25 -o {}", problem, scratch.path("again"))).status, 0);
    for (const char* name : {"attention_out", "softmax_max", "softmax_sum"}) {
        expect_same(tensor_of(problem, name), tensor_of(scratch.path("again"), name));
    }
    // A file's scale is 1 unless given: another result.
    ASSERT_EQ(run_cli(fmt::format("score {} -o {}", problem, scratch.path("one"))).status, 0);
    EXPECT_NE(tensor_of(problem, "softmax_max").load(0), tensor_of(scratch.path("one"), "softmax_max").load(0));
}

TEST(Cli, grad_uses_what_the_file_brings) {
    const Scratch scratch;
    ASSERT_EQ(run_cli(fmt::format("score {} --dtype f32 --with-inputs -o {}", small, scratch.path("full"))).status, 0);
    ASSERT_EQ(run_cli(fmt::format("grad {} --dtype f32 -o {}", small, scratch.path("drawn"))).status, 0);
    ASSERT_EQ(
        run_cli(fmt::format("grad {} --scale 0.25 -o {}", scratch.path("full"), scratch.path("from_file"))).status, 0);
    for (const char* name : {"dq", "dk", "dv"}) {
        // f32: the forward that grad runs itself leaves exactly what score wrote.
        expect_same(tensor_of(scratch.path("drawn"), name), tensor_of(scratch.path("from_file"), name));
    }
    // Statistics are taken as given: with the sum doubled, dv is halved (P halves), to the bit.
    const SafetensorsFile full(scratch.path("full"));
    std::vector<HostTensor> tensors;
    for (const auto& [name, entry] : full.entries()) {
        tensors.push_back(full.describe(name));
        full.load(tensors.back());
        if (name != "softmax_sum") continue;
        for (std::int64_t at = 0; at < tensors.back().count(); ++at)
            tensors.back().store(at, 2.0 * tensors.back().load(at));
    }
    std::vector<const HostTensor*> list;
    for (const HostTensor& tensor : tensors) list.push_back(&tensor);
    write_safetensors(scratch.path("doubled"), list);
    ASSERT_EQ(run_cli(fmt::format("grad {} --scale 0.25 -o {}", scratch.path("doubled"), scratch.path("half"))).status,
              0);
    const HostTensor whole = tensor_of(scratch.path("drawn"), "dv");
    const HostTensor half = tensor_of(scratch.path("half"), "dv");
    for (std::int64_t at = 0; at < whole.count(); ++at) ASSERT_EQ(half.load(at), 0.5 * whole.load(at)) << at;
}

TEST(Cli, layouts_give_the_same_bits) {
    const Scratch scratch;
    ASSERT_EQ(run_cli(fmt::format("score --shape 2,4:2,9:13,8:6 --seed 2 -o {}", scratch.path("bnsd"))).status, 0);
    for (const char* layout : {"BSND", "bsh", "Sbh"}) {
        ASSERT_EQ(
            run_cli(fmt::format("score --shape 2,4:2,9:13,8:6 --seed 2 --layout {} -o {}", layout, scratch.path("x")))
                .status,
            0);
        for (const char* name : {"softmax_max", "softmax_sum"}) {
            expect_same(tensor_of(scratch.path("bnsd"), name), tensor_of(scratch.path("x"), name));
        }
    }
}

TEST(Cli, atten_mask_hides) {
    // One head, 2 x 3, value = 1, 2, 3 per row: with columns 1 and 2 masked the output is value[0]; a fully masked row
    // is 0.
    const Scratch scratch;
    HostTensor query("query", DType::f32, {1, 1, 2, 1}), key("key", DType::f32, {1, 1, 3, 1});
    HostTensor value("value", DType::f32, {1, 1, 3, 1}), mask("atten_mask", DType::boolean, {2, 3});
    for (HostTensor* tensor : {&query, &key, &value, &mask}) tensor->allocate();
    for (std::int64_t at = 0; at < 2; ++at) query.store(at, 1.0);
    for (std::int64_t at = 0; at < 3; ++at) {
        key.store(at, 1.0);
        value.store(at, static_cast<double>(at + 1));
        mask.store(at, at > 0 ? 1.0 : 0.0);
        mask.store(3 + at, 1.0);
    }
    write_safetensors(scratch.path("in"), {&query, &key, &value, &mask});
    ASSERT_EQ(run_cli(fmt::format("score {} -o {}", scratch.path("in"), scratch.path("out"))).status, 0);
    const HostTensor out = tensor_of(scratch.path("out"), "attention_out");
    EXPECT_EQ(out.load(0), 1.0);
    EXPECT_EQ(out.load(1), 0.0);
    EXPECT_EQ(tensor_of(scratch.path("out"), "softmax_sum").load(0), 1.0);
    // grad needs dy, score does not.
    const Said said = run_cli(fmt::format("grad {} -o {}", scratch.path("in"), scratch.path("g")));
    EXPECT_EQ(said.status, 2);
    EXPECT_TRUE(contains(said.err, ": dy: absent, must be given; the file has atten_mask, key, query, value"));
}

TEST(Cli, mode_without_mask_warns_on_stderr) {
    const Scratch scratch;
    const Said said = run_cli(fmt::format("score {} --sparse-mode 2 -o {}", small, scratch.path("o")));
    EXPECT_EQ(said.status, 0);
    EXPECT_EQ(said.out, "");
    EXPECT_EQ(said.err,
              "fascore: warning: --sparse-mode has no effect without an atten_mask tensor; use --causal or --window, "
              "or draw one with --mask\n");
}

// ---------------------------------------------------------------------------------------------------- every feature

struct Feature {
    const char* name;
    const char* problem;    ///< drawn, f32
    const char* as_file;    ///< what must be said again when its tensors come from a file
    const char* brings;     ///< a tensor the file must hold
    const char* gradients;  ///< beyond dq dk dv
};

class CliFeature : public ::testing::TestWithParam<Feature> {};

/// Drawn, and from the file that --with-inputs makes of it: the same bits. And the reference agrees.
TEST_P(CliFeature, file_and_drawn_problem_are_the_same) {
    const Feature& feature = GetParam();
    const Scratch scratch;
    const std::string drawn = fmt::format("{} --dtype f32 --scale 0.25 --seed 4", feature.problem);
    const std::string file = fmt::format("{} {} --scale 0.25 --seed 4", scratch.path("problem"), feature.as_file);
    Said said = run_cli(fmt::format("score {} --with-inputs -o {}", drawn, scratch.path("problem")));
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_TRUE(SafetensorsFile(scratch.path("problem")).contains(feature.brings));
    said = run_cli(fmt::format("score {} -o {}", file, scratch.path("scores")));
    ASSERT_EQ(said.status, 0) << said.err;
    for (const char* name : {"attention_out", "softmax_max", "softmax_sum"}) {
        expect_same(tensor_of(scratch.path("problem"), name), tensor_of(scratch.path("scores"), name));
    }
    said = run_cli(fmt::format("grad {} -o {}", drawn, scratch.path("from_drawn")));
    ASSERT_EQ(said.status, 0) << said.err;
    said = run_cli(fmt::format("grad {} -o {}", file, scratch.path("from_file")));
    ASSERT_EQ(said.status, 0) << said.err;
    const SafetensorsFile gradients(scratch.path("from_file"));
    const std::string extra = feature.gradients;
    EXPECT_EQ(gradients.entries().size(),
              3U + (extra.empty() ? 0U : static_cast<std::size_t>(1 + std::count(extra.begin(), extra.end(), ' '))));
    for (const auto& [name, entry] : gradients.entries()) {
        EXPECT_TRUE(contains("dq dk dv " + extra, name)) << name;
        expect_same(tensor_of(scratch.path("from_drawn"), name), tensor_of(scratch.path("from_file"), name));
    }
    // Judged in bf16: in f32 a problem this small can be a tenth worse than the plain evaluation by chance.
    said = run_cli(fmt::format("verify {} --seed 4", feature.problem));
    EXPECT_EQ(said.status, 0) << said.out << said.err;
    for (const auto& [name, entry] : gradients.entries()) EXPECT_TRUE(contains(said.out, "\n" + name + " ")) << name;
    ASSERT_EQ(run_cli(fmt::format("grad {} --seed 4 -o {}", feature.problem, scratch.path("bf16"))).status, 0);
    said = run_cli(fmt::format("verify {} --seed 4 {}", feature.problem, scratch.path("bf16")));
    EXPECT_EQ(said.status, 0) << said.out << said.err;
}

INSTANTIATE_TEST_SUITE_P(
    Cli, CliFeature,
    ::testing::Values(
        Feature{"rope", "--shape 2,4:2,20:30,16 --rope 8 --causal", "--causal", "query_rope", "dq_rope dk_rope"},
        Feature{"bias", "--shape 2,4:2,20:30,16 --bias 1NSS --dbias", "--dbias", "pse", "dpse"},
        Feature{"bias_type_0", "--shape 2,4:2,20:30,16 --bias row --pse-type 0 --dbias", "--pse-type 0 --dbias", "pse",
                "dpse"},
        Feature{"no_dbias", "--shape 2,4:2,20:30,16 --bias row", "", "pse", ""},
        Feature{"slopes", "--shape 2,4:2,20,16 --bias BN --pse-type 2 --q-start 3 --dbias",
                "--pse-type 2 --q-start 3 --dbias", "pse", "dpse"},
        Feature{"root_slopes", "--shape 2,4,20,16 --bias N --pse-type 3 --kv-start 3 --dbias",
                "--pse-type 3 --kv-start 3 --dbias", "pse", "dpse"},
        Feature{"drawn_dropout", "--shape 2,4:2,20:30,16 --keep-prob 0.7 --offset 5", "--keep-prob 0.7 --offset 5",
                "query", ""},
        Feature{"drop_mask", "--shape 2,4:2,20:30,16 --keep-prob 0.7 --drop-mask", "--keep-prob 0.7", "drop_mask", ""},
        Feature{"mode_1", "--shape 2,4:2,20:30,16 --sparse-mode 1 --mask=B1SS", "--sparse-mode 1", "atten_mask", ""},
        Feature{"mode_5", "--shape 2,4:2,20:30,16 --sparse-mode 5 --mask --prefix 12,20",
                "--sparse-mode 5 --prefix 12,20", "atten_mask", ""},
        Feature{"mode_6", "--shape 2,4:2,20:30,16 --sparse-mode 6 --mask --prefix 12,20 --check-mask",
                "--sparse-mode 6 --prefix 12,20 --check-mask", "atten_mask", ""},
        Feature{"sink", "--shape 2,4:2,20:30,16 --sink", "", "sink", "dsink"},
        Feature{"softcap", "--shape 2,4:2,20:30,16 --softcap 1.5", "--softcap 1.5", "query", ""},
        Feature{"dlse", "--shape 2,4:2,20:30,16 --dlse", "", "dlse", ""},
        Feature{"packed",
                "--shape 3,4:2,20:30,16 --causal --layout TND --actual-seq-qlen 3,3,20 "
                "--actual-seq-kvlen 8,9,30 --sink --dlse --statistics-order by_token",
                "--causal --layout TND --actual-seq-qlen 3,3,20 --actual-seq-kvlen 8,9,30 --statistics-order by_token",
                "dlse", "dsink"}),
    [](const auto& instance) { return instance.param.name; });

TEST(Cli, eight_bit_from_file_to_file) {
    const Scratch scratch;
    const std::string drawn = "--shape 1,2,130:140,16 --dtype f8e4m3 --seed 6";
    ASSERT_EQ(run_cli(fmt::format("score {} --with-inputs -o {}", drawn, scratch.path("p"))).status, 0);
    const SafetensorsFile file(scratch.path("p"));
    EXPECT_EQ(file.describe("query").dtype(), DType::f8e4m3);
    EXPECT_EQ(file.describe("d_scale_q").shape(), (std::vector<std::int64_t>{1, 2, 2, 1}));
    EXPECT_EQ(file.describe("attention_out").dtype(), DType::bf16);
    for (const char* name : {"key", "value", "dy", "d_scale_k", "d_scale_v", "d_scale_dy"}) {
        EXPECT_TRUE(file.contains(name)) << name;
    }
    for (const char* dtype : {"bf16", "f16", "f32"}) {
        const std::string options = fmt::format("{} --scale 0.25 --out-dtype {}", scratch.path("p"), dtype);
        ASSERT_EQ(run_cli(fmt::format("grad {} -o {}", options, scratch.path("g"))).status, 0);
        for (const char* name : {"dq", "dk", "dv"}) {
            EXPECT_EQ(fascore::name(tensor_of(scratch.path("g"), name).dtype()), dtype);
        }
    }
}

TEST(Cli, dropout_prints_the_worked_examples) {
    // B=1 N1=2 S1=3 S2=5, seed 2: the operator's own examples.
    const Said said = run_cli("dropout --shape 1,2,3:5,8 --keep-prob 0.5 --seed 2");
    EXPECT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out, "b=0 n=0\n11001\n00111\n11101\nb=0 n=1\n11010\n11010\n00110\n");
    const Said more = run_cli("dropout --shape 1,1,4:20,8 --keep-prob 0.9 --seed 2");
    EXPECT_EQ(more.out,
              "b=0 n=0\n11111110111111110111\n11111111111111111111\n11111111001111111111\n11111111111111111011\n");
    EXPECT_EQ(run_cli("dropout --shape 1,1,1:3,8").out, "b=0 n=0\n111\n") << "keep_prob 1 drops nothing";
}

TEST(Cli, dropout_writes_what_a_problem_may_bring) {
    const Scratch scratch;
    ASSERT_EQ(
        run_cli(fmt::format("dropout --shape 1,2,3:5,8 --keep-prob 0.5 --seed 2 -o {}", scratch.path("m"))).status, 0);
    const HostTensor bits = tensor_of(scratch.path("m"), "drop_mask");
    const HostTensor keep = tensor_of(scratch.path("m"), "keep");
    EXPECT_EQ(keep.shape(), (std::vector<std::int64_t>{1, 2, 3, 5}));
    const double wanted[] = {0x93, 0xdf, 0xb5, 0x18};
    ASSERT_EQ(bits.count(), 4);
    for (std::int64_t at = 0; at < 4; ++at) EXPECT_EQ(bits.load(at), wanted[at]);
    for (std::int64_t at = 0; at < 30; ++at) {
        EXPECT_EQ(keep.load(at), (static_cast<unsigned>(bits.load(at / 8)) >> static_cast<unsigned>(at % 8)) & 1U);
    }
    // Given as a tensor it does what seed and offset do, and is printed as it is, in packed sequences too.
    for (const char* problem : {"--shape 2,2,9:13,8", "--shape 3,2,0..9,8 --layout TND"}) {
        const std::string options = fmt::format("{} --dtype f32 --keep-prob 0.6 --seed 3 --offset 40", problem);
        ASSERT_EQ(run_cli(fmt::format("score {} --with-inputs -o {}", options, scratch.path("p"))).status, 0);
        const Said printed = run_cli(fmt::format("dropout {} -o {}", options, scratch.path("m")));
        ASSERT_EQ(printed.status, 0) << printed.err;
        std::vector<HostTensor> tensors;
        const SafetensorsFile file(scratch.path("p"));
        for (const char* name : {"query", "key", "value"}) {
            tensors.push_back(file.describe(name));
            file.load(tensors.back());
        }
        tensors.push_back(tensor_of(scratch.path("m"), "drop_mask"));
        std::vector<const HostTensor*> list;
        for (const HostTensor& tensor : tensors) list.push_back(&tensor);
        write_safetensors(scratch.path("external"), list);
        std::string again =
            fmt::format("{} --keep-prob 0.6 --scale {}", scratch.path("external"), 1.0 / std::sqrt(8.0));
        if (contains(problem, "TND")) {
            // The lengths that were drawn, read off the printed mask: a block of lines for each head.
            const std::string ends = packed_ends(printed.out, 3);
            again += fmt::format(" --layout TND --actual-seq-qlen {} --actual-seq-kvlen {}", ends, ends);
        }
        const Said scored = run_cli(fmt::format("score {} -o {}", again, scratch.path("again")));
        ASSERT_EQ(scored.status, 0) << scored.err;
        expect_same(tensor_of(scratch.path("p"), "attention_out"), tensor_of(scratch.path("again"), "attention_out"));
        EXPECT_EQ(run_cli("dropout " + again).out, printed.out);
    }
}

TEST(Cli, half_of_the_statistics_is_refused) {
    const Scratch scratch;
    ASSERT_EQ(run_cli(fmt::format("score {} --with-inputs -o {}", small, scratch.path("full"))).status, 0);
    const SafetensorsFile full(scratch.path("full"));
    std::vector<HostTensor> tensors;
    for (const auto& [name, entry] : full.entries()) {
        if (name == "softmax_sum") continue;
        tensors.push_back(full.describe(name));
        full.load(tensors.back());
    }
    std::vector<const HostTensor*> list;
    for (const HostTensor& tensor : tensors) list.push_back(&tensor);
    write_safetensors(scratch.path("half"), list);
    const Said said = run_cli(fmt::format("grad {} -o {}", scratch.path("half"), scratch.path("g")));
    EXPECT_EQ(said.status, 2);
    EXPECT_TRUE(contains(said.err, ": softmax_sum: absent, must be given when softmax_max is\n")) << said.err;
}

TEST(Cli, hostile_input_leaves_the_output_alone) {
    const Scratch scratch;
    write_bytes(scratch.path("bad"),
                safetensors_bytes(R"({"query":{"dtype":"F32","shape":[1,1,2,2],"data_offsets":[0,16]}})", "short"));
    write_bytes(scratch.path("out"), "precious");
    const Said said = run_cli(fmt::format("grad {} -o {}", scratch.path("bad"), scratch.path("out")));
    EXPECT_EQ(said.status, 2);
    EXPECT_EQ(said.err,
              fmt::format("fascore: {}: \"query\": data_offsets is [0,16], must be begin <= end <= 5, the bytes of "
                          "data in the file\n",
                          scratch.path("bad")));
    EXPECT_EQ(read_bytes(scratch.path("out")), "precious");
    EXPECT_EQ(scratch.files().size(), 2U);
}

TEST(Cli, dtype_mix_is_refused_by_name) {
    const Scratch scratch;
    HostTensor query("query", DType::f32, {1, 1, 2, 1}), key("key", DType::f16, {1, 1, 2, 1}),
        value("value", DType::f32, {1, 1, 2, 1});
    for (HostTensor* tensor : {&query, &key, &value}) tensor->allocate();
    write_safetensors(scratch.path("in"), {&query, &key, &value});
    const Said said = run_cli(fmt::format("score {} -o {}", scratch.path("in"), scratch.path("o")));
    EXPECT_EQ(said.status, 2);
    EXPECT_EQ(said.err.rfind("fascore: key: dtype is f16", 0), 0U) << said.err;
}

TEST(Cli, plan_runs_nothing) {
    // A million rows: would take hours to run and 100s of MB to draw.
    const Said said = run_cli("grad --shape 1,1,1000000,64 --window 127,0 --plan");
    EXPECT_EQ(said.status, 0) << said.err;
    for (const char* part :
         {"forward\n", "gradient\n", "isa ", "kernel ", "tiles ", "skipped (99.", "workspace ", " bytes x "}) {
        EXPECT_TRUE(contains(said.out, part)) << part << "\n" << said.out;
    }
    EXPECT_FALSE(contains(run_cli("score --shape 1,1,64,64 --plan").out, "gradient"));
}

TEST(Cli, threads_and_isa_take_effect) {
    const Scratch scratch;
    const std::string problem = "grad --shape 1,2,300,64 --causal --seed 3";
    ASSERT_EQ(run_cli(fmt::format("{} --threads 1 -o {}", problem, scratch.path("one"))).status, 0);
    ASSERT_EQ(run_cli(fmt::format("{} --threads 3 -o {}", problem, scratch.path("three"))).status, 0);
    EXPECT_EQ(read_bytes(scratch.path("one")), read_bytes(scratch.path("three"))) << "bits must not depend on threads";
    for (const IsaInfo& isa : built_isas()) {
        const Said option = run_cli(fmt::format("{} --plan --isa {}", problem, isa.name));
        const Said variable = run_cli(problem + " --plan", "FASCORE_ISA=" + isa.name);
        EXPECT_EQ(option.status, isa.runnable ? 0 : 2) << isa.name;
        EXPECT_EQ(variable.status, isa.runnable ? 0 : 2) << isa.name;
        if (!isa.runnable) continue;
        EXPECT_TRUE(contains(option.out, fmt::format("isa            {}\n", isa.name))) << option.out;
        EXPECT_EQ(option.out, variable.out);
    }
}

// ---------------------------------------------------------------------------------------------------- verify

TEST(Cli, verify_says_yes) {
    const Said said = run_cli(fmt::format("verify {} --causal", small));
    EXPECT_EQ(said.status, 0) << said.out << said.err;
    for (const char* output : {"attention_out ", "softmax_max ", "softmax_sum ", "dq ", "dk ", "dv "}) {
        EXPECT_TRUE(contains(said.out, std::string("\n") + output)) << output;
    }
    EXPECT_FALSE(contains(said.out, "WORSE"));
}

TEST(Cli, verify_says_no_to_wrong_gradients) {
    const Scratch scratch;
    ASSERT_EQ(run_cli(fmt::format("grad {} -o {}", small, scratch.path("g"))).status, 0);
    const Said right = run_cli(fmt::format("verify {} {}", small, scratch.path("g")));
    EXPECT_EQ(right.status, 0) << right.out << right.err;
    EXPECT_FALSE(contains(right.out, "attention_out")) << "only what the file holds is judged";
    const Said wrong = run_cli(fmt::format("verify {} --scale 0.3 {}", small, scratch.path("g")));
    EXPECT_EQ(wrong.status, 1);
    EXPECT_TRUE(contains(wrong.out, "WORSE"));
    EXPECT_EQ(wrong.err, "") << "an answer is no error";
    const Said shape = run_cli(fmt::format("verify --shape 1,2,24:41,16 {}", scratch.path("g")));
    EXPECT_EQ(shape.status, 2);
    EXPECT_TRUE(contains(shape.err, ": dk: shape is [1, 2, 40, 16], must be [1, 2, 41, 16]\n")) << shape.err;
}

TEST(Cli, verify_of_8_bit_problems) {
    for (const char* problem :
         {"--dtype f8e4m3", "--dtype f8e5m2 --out-dtype f16 --causal", "--dtype f8e4m3 --out-dtype f32 --rope 8"}) {
        const Said said = run_cli(fmt::format("verify --shape 1,2,150:260,32 {}", problem));
        EXPECT_EQ(said.status, 0) << problem << said.out << said.err;
    }
}

TEST(Cli, verify_takes_given_statistics_as_given) {
    const Scratch scratch;
    ASSERT_EQ(run_cli(fmt::format("score {} --dtype f32 --with-inputs -o {}", small, scratch.path("p"))).status, 0);
    EXPECT_EQ(run_cli(fmt::format("verify {} --scale 0.25", scratch.path("p"))).status, 0);
}

TEST(Cli, verify_outputs_that_cancel_to_nothing) {
    // One key: P = 1, so dq and dk are exactly 0; the rounding of their terms is no error.
    for (const char* dtype : {"bf16", "f16", "f32", "f64"}) {
        EXPECT_EQ(run_cli(fmt::format("verify --shape 1,2,5:1,64 --dtype {}", dtype)).status, 0) << dtype;
    }
}

// ---------------------------------------------------------------------------------------------------- bench and info

TEST(Cli, bench_json) {
    const Scratch scratch;
    write_bytes(scratch.path("s.txt"), "tiny --shape 1,4:2,32:48,16:8 --dtype f32 --causal\nother --shape 1,1,16,16\n");
    const Said said = run_cli(fmt::format("bench {} --only tiny --threads 1 --json", scratch.path("s.txt")));
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.err, "");
    const auto list = nlohmann::json::parse(said.out);
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0]["direction"], "forward");
    EXPECT_EQ(list[1]["direction"], "backward");
    // visible: row i of 32 sees i + 17 of 48 keys
    double pairs = 0;
    for (int row = 0; row < 32; ++row) pairs += 4 * (row + 17);
    for (const auto& row : list) {
        for (const char* key : {"name", "direction", "B", "N1", "N2", "S1", "S2", "D", "Dv", "dtype", "isa", "threads",
                                "seconds", "gflops", "peak_gflops", "share", "workspace_bytes"}) {
            EXPECT_TRUE(row.contains(key)) << key;
        }
        EXPECT_EQ(row["name"], "tiny");
        EXPECT_EQ(row["B"], 1);
        EXPECT_EQ(row["N1"], 4);
        EXPECT_EQ(row["N2"], 2);
        EXPECT_EQ(row["S1"], 32);
        EXPECT_EQ(row["S2"], 48);
        EXPECT_EQ(row["D"], 16);
        EXPECT_EQ(row["Dv"], 8);
        EXPECT_EQ(row["dtype"], "f32");
        EXPECT_EQ(row["threads"], 1);
        EXPECT_GE(row["repetitions"].get<int>(), 5);
        const double operations = pairs * (row["direction"] == "forward" ? 2 * 16 + 2 * 8 : 6 * 16 + 4 * 8);
        EXPECT_DOUBLE_EQ(row["gflops"].get<double>(), operations / row["seconds"].get<double>() * 1e-9);
        EXPECT_DOUBLE_EQ(row["share"].get<double>(), row["gflops"].get<double>() / row["peak_gflops"].get<double>());
        EXPECT_GT(row["workspace_bytes"].get<std::int64_t>(), 0);
    }
}

TEST(Cli, bench_table_and_direction) {
    const Scratch scratch;
    write_bytes(scratch.path("s.txt"), "tiny --shape 1,1,16,16\n");
    const Said said = run_cli(fmt::format("bench {} --direction backward --threads 1", scratch.path("s.txt")));
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_TRUE(contains(said.out, "peak of one core, "));
    EXPECT_TRUE(contains(said.out, "\ntiny "));
    EXPECT_FALSE(contains(said.out, " forward "));
    write_bytes(scratch.path("bad.txt"), "a --shape 1,1,16,16\nb --shape 1,1,16,1000\n");
    const Said bad = run_cli("bench " + scratch.path("bad.txt"));
    EXPECT_EQ(bad.status, 2) << "the last row is judged before the first is timed";
    EXPECT_EQ(bad.out, "");
    EXPECT_TRUE(contains(bad.err, "b: query: head_dim is 1000")) << bad.err;
}

TEST(Cli, every_suite_row_is_a_problem_the_library_takes) {
    for (const char* suite : {"demo", "standard", "features"}) {
        std::istringstream text(read_bytes(fmt::format("{}/bench/suites/{}.txt", FASCORE_SOURCE_DIR, suite)));
        int rows = 0;
        for (std::string line; std::getline(text, line);) {
            const auto at = line.find("--shape");
            if (line.starts_with("#") || at == std::string::npos) continue;
            const Said said = run_cli("grad --plan " + line.substr(at));
            EXPECT_EQ(said.status, 0) << line << "\n" << said.err;
            EXPECT_TRUE(contains(said.out, "gradient\n")) << line;
            ++rows;
        }
        EXPECT_GT(rows, 5) << suite;
    }
}

TEST(Cli, operations_of_packed_sequences_are_summed) {
    // Causal, lengths 3, 0 and 5: 6 + 15 pairs a head; 6·D + 4·Dv each.
    const Said said = run_cli(
        "grad --plan --shape 3,2,8,16:8 --layout TND --actual-seq-qlen 3,3,8 --actual-seq-kvlen 3,3,8 --causal");
    EXPECT_EQ(said.status, 0) << said.err;
    const std::string gradient = said.out.substr(said.out.find("gradient\n"));
    EXPECT_TRUE(contains(gradient, "visible pairs  42\n")) << gradient;
    EXPECT_TRUE(contains(gradient, fmt::format("operations     {}\n", 42 * (6 * 16 + 4 * 8)))) << gradient;
}

TEST(Cli, info_tells_all) {
    const Said said = run_cli("info");
    EXPECT_EQ(said.status, 0) << said.err;
    EXPECT_TRUE(contains(said.out, fmt::format("fascore {}\n", version)));
    for (const IsaInfo& isa : built_isas()) EXPECT_TRUE(contains(said.out, isa.name)) << isa.name;
    for (const char* part : {"compiler ", "threads ", "FASCORE_ISA ", "FASCORE_NUM_THREADS ", "not set"}) {
        EXPECT_TRUE(contains(said.out, part)) << part;
    }
    const Said set = run_cli("info", "FASCORE_ISA=baseline FASCORE_NUM_THREADS=3");
    EXPECT_TRUE(contains(set.out, "isa        baseline: ")) << set.out;
    EXPECT_TRUE(contains(set.out, "threads    3\n")) << set.out;
    EXPECT_TRUE(contains(set.out, "= \"baseline\"")) << set.out;
}

TEST(Cli, full_standard_output_is_an_error) {
    for (const char* line : {"info > /dev/full", "--help > /dev/full"}) {
        const Said said = run_cli(line);
        EXPECT_EQ(said.status, 2) << line;
        EXPECT_EQ(said.err, "fascore: standard output cannot be written\n") << line;
    }
}

// ---------------------------------------------------------------------------------------------------- terminal and
// Ctrl-C

/// Starts the program on a terminal of its own; the parent reads what it draws.
struct OnTerminal {
    pid_t process = -1;
    int terminal = -1;
};

OnTerminal start_on_terminal(std::vector<std::string> arguments) {
    OnTerminal started;
    arguments.insert(arguments.begin(), FASCORE_CLI_PATH);
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    started.process = forkpty(&started.terminal, nullptr, nullptr, nullptr);
    if (started.process == 0) {
        execv(words[0], words.data());
        _exit(127);
    }
    return started;
}

/// Reads until `wanted` has been drawn or the program ends.
std::string read_until(int terminal, const std::string& wanted) {
    std::string drawn;
    char buffer[4096];
    while (wanted.empty() || !contains(drawn, wanted)) {
        const ssize_t got = read(terminal, buffer, sizeof(buffer));
        if (got <= 0) break;
        drawn.append(buffer, static_cast<std::size_t>(got));
    }
    return drawn;
}

TEST(Cli, ctrl_c_stops_a_long_run) {
    if (std::string(FASCORE_CLI_LAUNCHER) != "") GTEST_SKIP() << "signals go to the emulator";
    const Scratch scratch;
    // Hours at the baseline; the bar shows that the engine has begun.
    const OnTerminal run = start_on_terminal(
        {"score", "--shape", "1,1,400000,8", "--dtype", "f64", "--isa", "baseline", "-o", scratch.path("never")});
    if (run.process < 0 && errno == ENOENT) GTEST_SKIP() << "no pseudo-terminals here (/dev/pts is not mounted)";
    ASSERT_GT(run.process, 0);
    const std::string drawn = read_until(run.terminal, "left");
    EXPECT_TRUE(contains(drawn, "forward  [")) << drawn;
    EXPECT_TRUE(contains(drawn, " %  ")) << drawn;
    const auto start = std::chrono::steady_clock::now();
    kill(run.process, SIGINT);
    const std::string rest = read_until(run.terminal, "");
    int status = 0;
    waitpid(run.process, &status, 0);
    close(run.terminal);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130);
    EXPECT_TRUE(contains(rest, "fascore: interrupted")) << rest;
    // A tile takes microseconds. Not a speed: a run that ignores the token would take hours.
    EXPECT_LT(seconds, 60.0);
    EXPECT_TRUE(scratch.files().empty()) << "a cancelled run must not leave output";
}

}  // namespace
}  // namespace fascore::cli
