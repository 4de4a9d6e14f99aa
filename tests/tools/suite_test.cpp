// SPDX-License-Identifier: Apache-2.0
//
// Suite files: syntax, refusals with line numbers, and that the standard suite has the rows it promises.
#include "suite.h"

#include <gtest/gtest.h>

#include "command.h"
#include "tools/run_cli.h"

namespace fascore::cli {
namespace {

std::string refusal(std::string_view text) {
    try {
        (void)parse_suite(text, "s.txt");
    } catch (const Failure& failure) {
        return failure.what();
    }
    return "";
}

TEST(Suite, lines) {
    const auto rows =
        parse_suite("# head\n\n a  --shape 1,2,3,4 --causal # tail\r\n\tb.2-x\t--shape 1,1,8,8 --dtype f32", "s.txt");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].name, "a");
    EXPECT_EQ(rows[0].problem.shape, "1,2,3,4");
    EXPECT_EQ(rows[0].problem.causal, "true");
    EXPECT_EQ(rows[1].name, "b.2-x");
    EXPECT_EQ(rows[1].problem.dtype, "f32");
}

TEST(Suite, refusals_name_the_line) {
    EXPECT_EQ(refusal(""), "s.txt: has no rows, must have at least one");
    EXPECT_EQ(refusal("\n--shape 1,2,3,4"),
              "s.txt:2: name is --shape, must be letters, digits, '_', '-' and '.', before the problem");
    EXPECT_EQ(refusal("a --shape 1,2,3,4\na --shape 1,2,3,4"), "s.txt:2: name is a, must be given once a file");
    EXPECT_EQ(refusal("a"), "s.txt:1: a: problem is absent, must be a file or --shape");
    EXPECT_EQ(refusal("a --shape 1,2,3,4 --seed q"), "s.txt:1: --seed: q, must be a number in range");
    EXPECT_EQ(refusal("a --shape 1,2,3,4 --bogus").rfind("s.txt:1: ", 0), 0U);
}

TEST(Suite, standard_has_its_rows) {
    struct Wanted {
        const char* name;
        const char* shape;
        const char* dtype;
        bool causal;
    };
    const Wanted wanted[] = {
        {"level0", "1,8,128,64", "bf16", false},          {"level2", "2,8,256,64", "bf16", false},
        {"full_4096_128", "1,8,4096,128", "bf16", false}, {"causal_4096_128", "1,8,4096,128", "bf16", true},
        {"full_4096_64", "1,8,4096,64", "bf16", false},   {"fp32_1024_64", "4,16,1024,64", "f32", false},
        {"growth_2k", "1,1,2048,64", "bf16", true},       {"growth_4k", "1,1,4096,64", "bf16", true},
        {"growth_8k", "1,1,8192,64", "bf16", true},       {"growth_16k", "1,1,16384,64", "bf16", true},
        {"growth_32k", "1,1,32768,64", "bf16", true},
    };
    for (const char* request : {"", "standard"}) {
        const auto rows = read_suite(request);
        ASSERT_EQ(rows.size(), std::size(wanted));
        for (std::size_t row = 0; row < rows.size(); ++row) {
            EXPECT_EQ(rows[row].name, wanted[row].name);
            EXPECT_EQ(rows[row].problem.shape, wanted[row].shape);
            EXPECT_EQ(rows[row].problem.dtype, wanted[row].dtype);
            EXPECT_EQ(!rows[row].problem.causal.empty(), wanted[row].causal);
        }
    }
}

TEST(Suite, features_has_its_rows) {
    // The rows whose shares are promised, by name and by what makes them what they are.
    struct Wanted {
        const char* name;
        const char* shape;
        bool (*is_right)(const ProblemOptions& problem);
    };
    const Wanted wanted[] = {
        {"band_1024", "1,1,65536,64", [](const ProblemOptions& p) { return p.window == "1023,0"; }},
        {"packed_64", "64,8,16..2048,128",
         [](const ProblemOptions& p) { return p.layout == "TND" && !p.causal.empty() && p.seed == 0; }},
        {"mla_192_128", "1,8,4096,192:128", [](const ProblemOptions& p) { return !p.causal.empty(); }},
        {"small_16", "1024,32,16,64", [](const ProblemOptions& p) { return p.causal.empty(); }},
        {"bias_dbias", "1,8,4096,128", [](const ProblemOptions& p) { return p.bias == "1NSS" && p.dbias; }},
        {"dropout", "1,8,4096,128", [](const ProblemOptions& p) { return p.keep_prob < 1.0 && !p.drop_mask; }},
        {"fp8", "1,8,4096,128", [](const ProblemOptions& p) { return p.dtype == "f8e4m3"; }},
    };
    const auto rows = read_suite("features");
    ASSERT_EQ(rows.size(), std::size(wanted));
    for (std::size_t row = 0; row < rows.size(); ++row) {
        EXPECT_EQ(rows[row].name, wanted[row].name);
        EXPECT_EQ(rows[row].problem.shape, wanted[row].shape);
        EXPECT_TRUE(wanted[row].is_right(rows[row].problem)) << rows[row].name;
        EXPECT_EQ(rows[row].problem.dtype, rows[row].name == "fp8" ? "f8e4m3" : "bf16");
    }
}

TEST(Suite, only) {
    const auto rows = parse_suite("a --shape 1,1,1,1\nb --shape 1,1,1,1\nc --shape 1,1,1,1", "s.txt");
    EXPECT_EQ(select_rows(rows, {}).size(), 3U);
    const auto some = select_rows(rows, {"c", "a"});
    ASSERT_EQ(some.size(), 2U);
    EXPECT_EQ(some[0].name, "a") << "the suite's order";
    try {
        (void)select_rows(rows, {"d"});
        FAIL();
    } catch (const Failure& failure) {
        EXPECT_STREQ(failure.what(), "--only: d, must be one of a, b, c");
    }
}

}  // namespace
}  // namespace fascore::cli
