// SPDX-License-Identifier: Apache-2.0
//
// The problem syntax: what each text means, what is refused, and that drawn data are the same in every layout.
#include "problem_options.h"

#include <gtest/gtest.h>

#include <cmath>

#include "command.h"

namespace fascore::cli {
namespace {

std::string refusal(const auto& call) {
    try {
        call();
    } catch (const Failure& failure) {
        return failure.what();
    }
    return "";
}

Problem problem(const std::string& line, Needs needs = Needs::gradient) {
    return describe(parse_problem_line(line, "test"), needs);
}

TEST(ProblemOptions, shape) {
    const Extents plain = parse_shape("2,8,128,64");
    EXPECT_EQ(plain.B, 2);
    EXPECT_EQ(plain.N1, 8);
    EXPECT_EQ(plain.N2, 8);
    EXPECT_EQ(plain.S1, 128);
    EXPECT_EQ(plain.S2, 128);
    EXPECT_EQ(plain.D, 64);
    EXPECT_EQ(plain.Dv, 64);
    const Extents full = parse_shape("1,32:8,100:200,192:128");
    EXPECT_EQ(full.N2, 8);
    EXPECT_EQ(full.S2, 200);
    EXPECT_EQ(full.Dv, 128);
    for (const char* bad : {"", "1", "1,2,3", "1,2,3,4,5", "1,2,3,x", "1:2,2,3,4", "1,2:3:4,5,6", "1,,3,4", "1,2,-3,4",
                            "1,2,3,4 ", "1,2,3,99999999999999999999", "1,2,3,4:", "0x1,2,3,4"}) {
        EXPECT_EQ(
            refusal([&] { (void)parse_shape(bad); }),
            "--shape: " + std::string(bad) + ", must be B,N1[:N2],S1[:S2],D[:Dv], like 2,8,1024,64 or 1,32:8,4096,128");
    }
}

TEST(ProblemOptions, names_in_any_case) {
    EXPECT_EQ(parse_layout("bsh"), Layout::BSH);
    EXPECT_EQ(parse_layout("BnSd"), Layout::BNSD);
    EXPECT_EQ(parse_dtype("BF16"), DType::bf16);
    EXPECT_EQ(refusal([] { (void)parse_layout("TND"); }), "--layout: TND, must be BNSD, BSND, BSH or SBH");
    EXPECT_EQ(refusal([] { (void)parse_dtype("bool"); }), "--dtype: bool, must be f64, f32, bf16 or f16");
}

TEST(ProblemOptions, rules) {
    EXPECT_EQ(parse_rule("", "").kind, MaskRule::Kind::none);
    EXPECT_EQ(parse_rule("bottom-right", "").kind, MaskRule::Kind::causal_bottom_right);
    EXPECT_EQ(parse_rule("top-left", "").kind, MaskRule::Kind::causal_top_left);
    const MaskRule window = parse_rule("", "128,-1");
    EXPECT_EQ(window.kind, MaskRule::Kind::window);
    EXPECT_EQ(window.left, 128);
    EXPECT_EQ(window.right, -1);
    // Both together: causal caps the right bound at 0.
    for (const char* text : {"64,-1", "64,7", "64,0"}) {
        const MaskRule both = parse_rule("bottom-right", text);
        EXPECT_EQ(both.kind, MaskRule::Kind::window);
        EXPECT_EQ(both.left, 64);
        EXPECT_EQ(both.right, 0);
    }
    EXPECT_NE(refusal([] { (void)parse_rule("top-left", "1,1"); }).find("top-left cannot be combined"),
              std::string::npos);
    EXPECT_EQ(refusal([] { (void)parse_rule("left", ""); }), "--causal: left, must be bottom-right or top-left");
    for (const char* bad : {"3", "1,2,3", "a,b", "-2,0", "0,-2", ","}) {
        EXPECT_EQ(refusal([&] { (void)parse_rule("", bad); }),
                  "--window: " + std::string(bad) + ", must be LEFT,RIGHT, two integers from -1 (no bound) up");
    }
}

TEST(ProblemOptions, lines) {
    const Problem causal =
        problem("--shape 1,4:2,10:20,16:8 --causal --layout sbh --dtype f32 --threads 3 --isa baseline");
    EXPECT_EQ(causal.params.rule.kind, MaskRule::Kind::causal_bottom_right);
    EXPECT_EQ(causal.query.shape(), (std::vector<std::int64_t>{10, 1, 64}));
    EXPECT_EQ(causal.key.shape(), (std::vector<std::int64_t>{20, 1, 32}));
    EXPECT_EQ(causal.value.shape(), (std::vector<std::int64_t>{20, 1, 16}));
    EXPECT_EQ(causal.attention_shape(), (std::vector<std::int64_t>{10, 1, 32}));
    EXPECT_EQ(causal.statistic_shape(), (std::vector<std::int64_t>{1, 4, 10, 8}));
    EXPECT_EQ(causal.params.head_num, 4);
    EXPECT_EQ(causal.threads, 3);
    EXPECT_EQ(causal.isa, "baseline");
    EXPECT_EQ(causal.params.scale, 0.25) << "1/sqrt(D) for a drawn problem";
    // A flag with an optional value must not swallow what follows; a value may begin with a minus sign.
    const Problem window =
        problem("--causal --window -1,5 --shape 1,1,2,3 --scale -2e-3 --pre-tokens -4 --sparse-mode 4");
    EXPECT_EQ(window.params.rule.left, -1);
    EXPECT_EQ(window.params.rule.right, 0);
    EXPECT_EQ(window.params.scale, -2e-3);
    EXPECT_EQ(window.params.pre_tokens, -4);
    EXPECT_EQ(window.params.sparse_mode, 4);
    EXPECT_EQ(problem("--causal=top-left --shape 1,1,2,3").params.rule.kind, MaskRule::Kind::causal_top_left);
    EXPECT_EQ(refusal([] { (void)problem("--shape 1,1,2,3 --seed x"); }), "test: --seed: x, must be a number in range");
    EXPECT_NE(refusal([] { (void)problem("--shape 1,1,2,3 --bogus 1"); }).find("test: "), std::string::npos);
    EXPECT_NE(refusal([] { (void)problem("--causal"); }).find("IN: absent"), std::string::npos);
    EXPECT_NE(refusal([] { (void)problem("file --shape 1,1,2,3"); }).find("cannot be combined"), std::string::npos);
}

TEST(ProblemOptions, warns_of_a_mode_without_a_mask) {
    for (const char* option : {"--sparse-mode 2", "--pre-tokens 5", "--next-tokens 0"}) {
        const ProblemOptions options = parse_problem_line(std::string("--shape 1,1,2,3 ") + option, "test");
        const auto warning = warning_of(options, describe(options, Needs::forward));
        ASSERT_TRUE(warning.has_value()) << option;
        EXPECT_NE(warning->find("has no effect without an atten_mask tensor; use --causal or --window"),
                  std::string::npos);
    }
    const ProblemOptions quiet = parse_problem_line("--shape 1,1,2,3 --causal", "test");
    EXPECT_FALSE(warning_of(quiet, describe(quiet, Needs::forward)).has_value());
}

/// Element (b, n, s, d) of a drawn tensor.
double element(const HostTensor& tensor, Layout layout, std::int64_t B, std::int64_t N, std::int64_t S, std::int64_t D,
               std::array<std::int64_t, 4> at) {
    const auto [b, n, s, d] = at;
    switch (layout) {
        case Layout::BSND:
        case Layout::BSH: return tensor.load(((b * S + s) * N + n) * D + d);
        case Layout::SBH: return tensor.load(((s * B + b) * N + n) * D + d);
        default: return tensor.load(((b * N + n) * S + s) * D + d);
    }
}

TEST(ProblemOptions, drawn_data_are_the_same_in_every_layout) {
    Problem reference = problem("--shape 2,4:2,3:5,7:3 --dtype f64 --seed 9");
    load(reference, Needs::gradient);
    for (const char* layout : {"BSND", "BSH", "SBH"}) {
        Problem other = problem(std::string("--shape 2,4:2,3:5,7:3 --dtype f64 --seed 9 --layout ") + layout);
        load(other, Needs::gradient);
        for (std::int64_t b = 0; b < 2; ++b) {
            for (std::int64_t n = 0; n < 4; ++n) {
                for (std::int64_t s = 0; s < 5; ++s) {
                    for (std::int64_t d = 0; d < 7; ++d) {
                        const std::array<std::int64_t, 4> at{b, n, s, d};
                        if (s < 3) {
                            EXPECT_EQ(element(other.query, other.params.layout, 2, 4, 3, 7, at),
                                      element(reference.query, Layout::BNSD, 2, 4, 3, 7, at));
                        }
                        if (n < 2 && d < 3) {
                            EXPECT_EQ(element(other.value, other.params.layout, 2, 2, 5, 3, at),
                                      element(reference.value, Layout::BNSD, 2, 2, 5, 3, at));
                        }
                    }
                }
            }
        }
    }
}

TEST(ProblemOptions, seed_and_tensor_decide) {
    Problem one = problem("--shape 1,2,8,16 --dtype f64 --seed 1");
    Problem two = problem("--shape 1,2,8,16 --dtype f64 --seed 2");
    load(one, Needs::gradient);
    load(two, Needs::gradient);
    int equal = 0;
    for (std::int64_t index = 0; index < one.query.count(); ++index) {
        equal += one.query.load(index) == two.query.load(index);
        equal += one.query.load(index) == one.key.load(index);
        equal += one.value.load(index) == one.dy.load(index);
    }
    EXPECT_EQ(equal, 0);
}

}  // namespace
}  // namespace fascore::cli
