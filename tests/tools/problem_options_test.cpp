// SPDX-License-Identifier: Apache-2.0
//
// The problem syntax: what each text means, what is refused, and what a description of a problem says. What drawn
// tensors hold is in drawn_test.cpp.
#include "problem.h"

#include <gtest/gtest.h>

#include <algorithm>
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
    const Extents plain = parse_shape("2,8,128,64").most;
    EXPECT_EQ(plain.B, 2);
    EXPECT_EQ(plain.N1, 8);
    EXPECT_EQ(plain.N2, 8);
    EXPECT_EQ(plain.S1, 128);
    EXPECT_EQ(plain.S2, 128);
    EXPECT_EQ(plain.D, 64);
    EXPECT_EQ(plain.Dv, 64);
    const Shape full = parse_shape("1,32:8,100:200,192:128");
    EXPECT_EQ(full.most.N2, 8);
    EXPECT_EQ(full.most.S2, 200);
    EXPECT_EQ(full.most.Dv, 128);
    EXPECT_FALSE(full.has_range());
    const Shape range = parse_shape("64,8,16..2048:0..7,128");
    EXPECT_TRUE(range.has_range());
    EXPECT_EQ(range.least_S1, 16);
    EXPECT_EQ(range.most.S1, 2048);
    EXPECT_EQ(range.least_S2, 0);
    EXPECT_EQ(range.most.S2, 7);
    EXPECT_TRUE(range.own_S2);
    EXPECT_FALSE(parse_shape("64,8,16..2048,128").own_S2);
    for (const char* bad : {"",           "1",          "1,2,3",       "1,2,3,4,5",
                            "1,2,3,x",    "1:2,2,3,4",  "1,2:3:4,5,6", "1,,3,4",
                            "1,2,-3,4",   "1,2,3,4 ",   "1,2,3,4:",    "0x1,2,3,4",
                            "1,2,5..3,4", "1,2,3..,4",  "1,2,..3,4",   "1,2,3...5,4",
                            "1..2,2,3,4", "1,2,3,4..5", "1,2,-1..5,4", "1,2,3,99999999999999999999"}) {
        EXPECT_EQ(refusal([&] { (void)parse_shape(bad); }),
                  "--shape: " + std::string(bad) +
                      ", must be B,N1[:N2],S1[:S2],D[:Dv], like 2,8,1024,64 or 1,32:8,4096,128, in layout TND also "
                      "64,8,16..2048,128");
    }
}

TEST(ProblemOptions, names_in_any_case) {
    EXPECT_EQ(parse_layout("bsh"), Layout::BSH);
    EXPECT_EQ(parse_layout("BnSd"), Layout::BNSD);
    EXPECT_EQ(parse_layout("tnd"), Layout::TND);
    EXPECT_EQ(parse_dtype("BF16"), DType::bf16);
    EXPECT_EQ(parse_dtype("F8E4M3"), DType::f8e4m3);
    EXPECT_EQ(parse_dtype("e5m2"), DType::f8e5m2);
    EXPECT_EQ(parse_statistics_order("by-token"), StatisticsOrder::by_token);
    EXPECT_EQ(parse_statistics_order("BY_SEQUENCE"), StatisticsOrder::by_sequence);
    EXPECT_EQ(parse_statistics_order("same_as_input"), StatisticsOrder::by_token);
    EXPECT_EQ(refusal([] { (void)parse_layout("NTD"); }), "--layout: NTD, must be BNSD, BSND, BSH, SBH or TND");
    EXPECT_EQ(refusal([] { (void)parse_dtype("bool"); }),
              "--dtype: bool, must be f64, f32, bf16, f16, f8e4m3 or f8e5m2");
    EXPECT_EQ(refusal([] { (void)parse_wide_dtype("--out-dtype", "f64"); }),
              "--out-dtype: f64, must be f32, bf16 or f16");
    EXPECT_EQ(refusal([] { (void)parse_statistics_order("ntd"); }),
              "--statistics-order: ntd, must be by_sequence or by_token");
}

TEST(ProblemOptions, lists) {
    EXPECT_EQ(parse_list("--prefix", "3"), (std::vector<std::int64_t>{3}));
    EXPECT_EQ(parse_list("--prefix", "2,-5,9,0,0"), (std::vector<std::int64_t>{2, -5, 9, 0, 0}));
    for (const char* bad : {"", ",", "2,", "2;3", "2,x", "2 ,3", "9223372036854775808"}) {
        EXPECT_EQ(refusal([&] { (void)parse_list("--prefix", bad); }),
                  "--prefix: " + std::string(bad) + ", must be integers separated by commas, like 2,5,9");
    }
}

TEST(ProblemOptions, forms) {
    EXPECT_EQ(parse_bias_form("full").axes, "BNSK");
    EXPECT_EQ(parse_bias_form("1nss").axes, parse_bias_form("heads").axes);
    EXPECT_EQ(parse_bias_form("BN1S").axes, parse_bias_form("row").axes);
    EXPECT_EQ(parse_mask_form("TT", 0).axes, "TU");
    // The form a mode takes by itself.
    const char* const of_mode[] = {"SK", "SK", "CC", "CC", "CC", "B1SK", "XC", "CC", "CC"};
    for (int mode = 0; mode <= 8; ++mode) EXPECT_EQ(parse_mask_form("true", mode).axes, of_mode[mode]) << mode;
    for (int mode : {-1, 9}) EXPECT_EQ(parse_mask_form("true", mode).axes, "SK") << "the library's to refuse";
    EXPECT_EQ(refusal([] { (void)parse_mask_form("S", 0); }),
              "--mask: S, must be SS, 11SS, B1SS, BNSS, TT, template or prefix-template");
    EXPECT_EQ(refusal([] { (void)parse_bias_form("SNSS"); }).rfind("--bias: SNSS, must be full, heads, row, ", 0), 0U);
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

TEST(ProblemOptions, every_parameter_arrives) {
    const Problem all = problem(
        "--shape 2,4,6:8,16 --sparse-mode 6 --pre-tokens 3 --next-tokens -2 --prefix 5,7 --check-mask --mask "
        "--pse-type 0 --bias row --dbias --q-start 11 --kv-start -12 --keep-prob 0.75 --seed 18446744073709551615 "
        "--offset 33 --softcap 2.5 --inner-precise 2 --statistics-order by_token --sink --dlse --drop-mask");
    const AttentionParams& params = all.params;
    EXPECT_EQ(params.sparse_mode, 6);
    EXPECT_EQ(params.pre_tokens, 3);
    EXPECT_EQ(params.next_tokens, -2);
    EXPECT_EQ(std::vector<std::int64_t>(params.prefix.begin(), params.prefix.end()), (std::vector<std::int64_t>{5, 7}));
    EXPECT_TRUE(params.check_mask);
    EXPECT_EQ(params.pse_type, 0);
    EXPECT_EQ(params.q_start_idx, 11);
    EXPECT_EQ(params.kv_start_idx, -12);
    EXPECT_EQ(params.keep_prob, 0.75);
    EXPECT_EQ(params.seed, 18446744073709551615U);
    EXPECT_EQ(params.offset, 33U);
    EXPECT_EQ(params.softcap, 2.5);
    EXPECT_EQ(params.inner_precise, 2);
    EXPECT_EQ(params.statistics_order, StatisticsOrder::by_token);
    EXPECT_TRUE(all.dbias);
    EXPECT_EQ(all.pse.shape(), (std::vector<std::int64_t>{2, 4, 1, 8}));
    EXPECT_EQ(all.atten_mask.shape(), (std::vector<std::int64_t>{3072, 2048}));
    EXPECT_EQ(all.sink.shape(), (std::vector<std::int64_t>{4}));
    EXPECT_EQ(all.sink.dtype(), DType::f32);
    EXPECT_EQ(all.dlse.shape(), (std::vector<std::int64_t>{2, 4, 6}));
    EXPECT_EQ(all.drop_mask.shape(), (std::vector<std::int64_t>{2 * 4 * 6 * 8 / 8}));
    // And without any of them, the operator's defaults.
    const Problem none = problem("--shape 2,4,6:8,16");
    const AttentionParams start;
    EXPECT_EQ(none.params.pse_type, start.pse_type);
    EXPECT_EQ(none.params.keep_prob, start.keep_prob);
    EXPECT_EQ(none.params.sparse_mode, start.sparse_mode);
    EXPECT_EQ(none.params.statistics_order, start.statistics_order);
    EXPECT_TRUE(none.params.prefix.empty());
    for (const HostTensor* tensor : {&none.pse, &none.atten_mask, &none.sink, &none.dlse, &none.drop_mask,
                                     &none.query_rope, &none.key_rope, &none.d_scale_q}) {
        EXPECT_FALSE(tensor->present());
    }
    EXPECT_EQ(none.own_tensors().size(), 4U);
}

TEST(ProblemOptions, packed) {
    const Problem listed =
        problem("--shape 4,6:3,20:30,16:8 --layout TND --actual-seq-qlen 2,5,5,0 --actual-seq-kvlen 7,7,30,0 --rope 4");
    EXPECT_EQ(listed.query.shape(), (std::vector<std::int64_t>{20, 6, 16}))
        << "S1 is T1: rows behind the last sequence";
    EXPECT_EQ(listed.key.shape(), (std::vector<std::int64_t>{30, 3, 16}));
    EXPECT_EQ(listed.value.shape(), (std::vector<std::int64_t>{30, 3, 8}));
    EXPECT_EQ(listed.dy.shape(), (std::vector<std::int64_t>{20, 6, 8}));
    EXPECT_EQ(listed.query_rope.shape(), (std::vector<std::int64_t>{20, 6, 4}));
    EXPECT_EQ(listed.key_rope.shape(), (std::vector<std::int64_t>{30, 3, 4}));
    EXPECT_EQ(listed.attention_shape(), (std::vector<std::int64_t>{20, 6, 8}));
    EXPECT_EQ(listed.statistic_shape(), (std::vector<std::int64_t>{20, 6, 8}));
    EXPECT_EQ(listed.extents.S1, 3) << "the longest sequence";
    EXPECT_EQ(listed.extents.S2, 23);
    EXPECT_EQ(listed.params.actual_seq_qlen.size(), 4U);
    EXPECT_NEAR(listed.params.scale, 1.0 / std::sqrt(20.0), 1e-15) << "rope columns count";
    const Rows rows = listed.query_rows();
    EXPECT_EQ(rows.total(), 5);
    const std::int64_t lengths[] = {2, 3, 0, 0};
    for (std::int64_t b = 0; b < 4; ++b) EXPECT_EQ(rows.length(b), lengths[b]);

    const Problem alike = problem("--shape 3,2,5:7,16 --layout TND");
    EXPECT_EQ(alike.q_ends, (std::vector<std::int64_t>{5, 10, 15}));
    EXPECT_EQ(alike.k_ends, (std::vector<std::int64_t>{7, 14, 21}));

    const Problem drawn = problem("--shape 64,8,16..2048,128 --layout TND");
    EXPECT_EQ(drawn.q_ends.size(), 64U);
    EXPECT_EQ(drawn.q_ends, drawn.k_ends) << "no S2 of its own: as many keys as queries";
    std::int64_t least = 2048, most = 0;
    for (std::int64_t b = 0; b < 64; ++b) {
        least = std::min(least, drawn.query_rows().length(b));
        most = std::max(most, drawn.query_rows().length(b));
    }
    // Bounds of one in a million: 64 draws all below 1640 or above 424 of 16..2048.
    EXPECT_GE(least, 16);
    EXPECT_LT(least, 424);
    EXPECT_LE(most, 2048);
    EXPECT_GT(most, 1640);
    EXPECT_EQ(drawn.extents.T1, 64814) << "a fixed seed means fixed lengths";
    EXPECT_NE(problem("--shape 64,8,16..2048,128 --layout TND --seed 1").q_ends, drawn.q_ends);
    const Problem both = problem("--shape 9,1,3..5:0..1,8 --layout TND");
    for (std::int64_t b = 0; b < 9; ++b) {
        EXPECT_TRUE(both.query_rows().length(b) >= 3 && both.query_rows().length(b) <= 5);
        EXPECT_TRUE(both.key_rows().length(b) >= 0 && both.key_rows().length(b) <= 1);
    }

    EXPECT_EQ(refusal([] { (void)problem("--shape 1,1,2..3,4"); }),
              "--shape: 1,1,2..3,4, must have one S1 and one S2 unless --layout is TND");
    EXPECT_EQ(refusal([] { (void)problem("--shape 1,1,2,3 --layout TND --actual-seq-qlen 2"); }),
              "--actual-seq-kvlen: absent, must be given when --actual-seq-qlen is");
    EXPECT_EQ(refusal([] { (void)problem("--shape 1,1,2,3 --layout TND --actual-seq-kvlen 2"); }),
              "--actual-seq-qlen: absent, must be given when --actual-seq-kvlen is");
    EXPECT_EQ(refusal([] {
                  (void)problem("--shape 3,1,9,3 --layout TND --actual-seq-qlen 2,9 --actual-seq-kvlen 2,9");
              }).rfind("--shape: 3,1,9,3, must be B = 2, the entries of --actual-seq-qlen", 0),
              0U);
    EXPECT_EQ(refusal([] { (void)problem("--shape 99999999999,1,1,3 --layout TND"); }),
              "--shape: B is 99999999999, must be at most 16777216 in layout TND");
    EXPECT_EQ(refusal([] { (void)problem("--shape 3,1,4611686018427387904,3 --layout TND"); }),
              "--shape: the sum of all lengths must be below 2^63");
}

TEST(ProblemOptions, eight_bit) {
    const Problem e4m3 = problem("--shape 2,4:2,300:128,16 --dtype f8e4m3 --bias BN1S --sink --dlse");
    EXPECT_EQ(e4m3.query.dtype(), DType::f8e4m3);
    EXPECT_EQ(e4m3.out_dtype, DType::bf16);
    EXPECT_EQ(e4m3.pse.dtype(), DType::bf16);
    EXPECT_EQ(e4m3.statistic_dtype(), DType::f32);
    EXPECT_EQ(e4m3.d_scale_q.shape(), (std::vector<std::int64_t>{2, 4, 3, 1}));
    EXPECT_EQ(e4m3.d_scale_dy.shape(), (std::vector<std::int64_t>{2, 4, 3, 1}));
    EXPECT_EQ(e4m3.d_scale_k.shape(), (std::vector<std::int64_t>{2, 2, 1, 1}));
    EXPECT_EQ(e4m3.d_scale_v.dtype(), DType::f32);
    EXPECT_EQ(e4m3.own_tensors().size(), 4U + 4U + 3U);
    EXPECT_EQ(problem("--shape 1,1,2,3 --dtype e5m2 --out-dtype F16 --bias BN1S").pse.dtype(), DType::f16);
    EXPECT_EQ(problem("--shape 1,1,2,3 --dtype e5m2 --out-dtype f32").out_dtype, DType::f32);
    EXPECT_EQ(refusal([] { (void)problem("--shape 1,1,2,3 --out-dtype f32"); }),
              "--out-dtype: f32, must not be given: only results of 8-bit problems have a choice, these are bf16");
}

TEST(ProblemOptions, bias_and_its_dtype) {
    EXPECT_EQ(problem("--shape 2,3,4:5,6 --bias full").pse.dtype(), DType::bf16);
    EXPECT_EQ(problem("--shape 2,3,4:5,6 --bias full --bias-dtype f32").pse.dtype(), DType::f32);
    EXPECT_EQ(problem("--shape 2,3,4:5,6 --bias BN --pse-type 3").pse.dtype(), DType::f32);
    struct Wanted {
        const char* form;
        std::vector<std::int64_t> shape;
    };
    for (const Wanted& wanted : std::vector<Wanted>{{"full", {2, 3, 4, 5}},
                                                    {"heads", {1, 3, 4, 5}},
                                                    {"row", {2, 3, 1, 5}},
                                                    {"1N1S", {1, 3, 1, 5}},
                                                    {"B1SS", {2, 1, 4, 5}},
                                                    {"11SS", {1, 1, 4, 5}},
                                                    {"B11S", {2, 1, 1, 5}},
                                                    {"111S", {1, 1, 1, 5}},
                                                    {"BNHS", {2, 3, 1024, 5}},
                                                    {"1NHS", {1, 3, 1024, 5}},
                                                    {"BN", {2, 3}},
                                                    {"N", {3}}}) {
        EXPECT_EQ(problem(std::string("--shape 2,3,4:5,6 --bias ") + wanted.form).pse.shape(), wanted.shape)
            << wanted.form;
    }
    const std::string packed = "--shape 2,3,5:9,6 --layout TND --actual-seq-qlen 2,5 --actual-seq-kvlen 4,9 --bias ";
    EXPECT_EQ(problem(packed + "NSS").pse.shape(), (std::vector<std::int64_t>{3 * (2 * 4 + 3 * 5)}));
    EXPECT_EQ(problem(packed + "N1S").pse.shape(), (std::vector<std::int64_t>{3 * 9}));
    EXPECT_EQ(problem(packed + "1NHS").pse.shape(), (std::vector<std::int64_t>{1, 3, 1024, 5}));
    EXPECT_EQ(problem(packed + "N --mask=TT").atten_mask.shape(), (std::vector<std::int64_t>{5, 9}));
    EXPECT_EQ(problem(packed + "N --mask").atten_mask.shape(), (std::vector<std::int64_t>{3, 5}));
    EXPECT_EQ(refusal([] { (void)problem("--shape 1,1,2,3 --dbias"); }),
              "--dbias: given without pse, must be with one (a file's, or drawn with --bias)");
    EXPECT_EQ(refusal([] { (void)problem("--shape 1,1,2,3 --bias-dtype f32"); }),
              "--bias-dtype: given without --bias, must be with it");
    EXPECT_EQ(refusal([] { (void)problem("--shape 1,1,2,3 --rope -1"); }), "--rope: -1, must be at least 0");
}

TEST(ProblemOptions, what_is_to_be_drawn_needs_a_shape) {
    for (const char* option :
         {"--dtype f32", "--rope 4", "--mask", "--bias full", "--bias-dtype f32", "--drop-mask", "--sink", "--dlse"}) {
        const std::string text = option;
        const std::string line = "/nonexistent " + text;
        EXPECT_EQ(refusal([&] { (void)problem(line); }),
                  text.substr(0, text.find(' ')) +
                      ": given with a file, must be with --shape; a file brings its own tensors");
    }
    EXPECT_NE(refusal([] { (void)problem("/nonexistent --seed 3 --keep-prob 0.5"); }).find("cannot be read"),
              std::string::npos)
        << "the seed is dropout's too";
}

TEST(ProblemOptions, warns_of_a_mode_without_a_mask) {
    for (const char* option : {"--sparse-mode 2", "--pre-tokens 5", "--next-tokens 0", "--prefix 3", "--check-mask"}) {
        const ProblemOptions options = parse_problem_line(std::string("--shape 1,1,2,3 ") + option, "test");
        const auto warning = warning_of(options, describe(options, Needs::forward));
        ASSERT_TRUE(warning.has_value()) << option;
        EXPECT_NE(warning->find("has no effect without an atten_mask tensor; use --causal or --window, or draw one"),
                  std::string::npos);
    }
    for (const char* line : {"--shape 1,1,2,3 --causal", "--shape 1,1,2,3 --sparse-mode 2 --mask"}) {
        const ProblemOptions quiet = parse_problem_line(line, "test");
        EXPECT_FALSE(warning_of(quiet, describe(quiet, Needs::forward)).has_value());
    }
}

}  // namespace
}  // namespace fascore::cli
