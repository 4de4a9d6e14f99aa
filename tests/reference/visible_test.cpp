// SPDX-License-Identifier: Apache-2.0
//
// Which pairs each sparse mode shows, against tables written by hand: 1 = visible, rows separated by '/'. The answer is
// read off the operator: with Q = 0 and V the identity, attention_out[i][j] is 1 / (visible columns of row i) or 0.
#include <sstream>

#include "reference/problem.h"

namespace fascore::test {
namespace {

Attention transparent(Sizes sizes, Layout layout = Layout::BNSD) {
    sizes.D = 1;
    sizes.Dv = sizes.S2;
    Attention a(sizes, DType::f64, layout);
    a.query.fill(0.0);
    a.key.fill(1.0);
    a.identity_values();
    return a;
}

// Rows first … of one head, as far as `columns` go from column `from`.
std::string seen(const Attention& a, std::int64_t b, std::int64_t first, std::int64_t rows, std::int64_t from,
                 std::int64_t columns) {
    std::string text;
    for (std::int64_t i = first; i < first + rows; ++i) {
        if (i > first) text += "/";
        for (std::int64_t j = from; j < from + columns; ++j) text += a.attention_out.get(b, 0, i, j) != 0 ? "1" : "0";
    }
    return text;
}

std::string all_of(const Attention& a, std::int64_t b = 0) { return seen(a, b, 0, a.sizes.S1, 0, a.sizes.S2); }

struct Table {
    int mode;
    std::int64_t pre, next, prefix;
    const char* wide;  // 4 × 6, "" = refused
    const char* tall;  // 6 × 4
};

const Table tables[] = {
    {0, 2, 1, 0, "110000/111000/111100/011110", "1100/1110/1111/0111/0011/0001"},
    {0, 4, -1, 0, "000000/100000/110000/111000", "0000/1000/1100/1110/1111/0111"},
    {0, -1, 3, 0, "011100/001110/000111/000011", "0111/0011/0001/0000/0000/0000"},
    {2, 0, 0, 0, "100000/110000/111000/111100", "1000/1100/1110/1111/1111/1111"},
    {3, 0, 0, 0, "111000/111100/111110/111111", "0000/0000/1000/1100/1110/1111"},
    {4, 2, 1, 0, "111100/011110/001111/000111", "0000/1000/1100/1110/1111/0111"},
    {4, 3, -1, 0, "110000/111000/011100/001110", "0000/0000/0000/1000/1100/1110"},
    {6, 0, 0, 3, "111000/111100/111110/111111", "1110/1110/1110/1110/1110/1111"},
    {6, 0, 0, 0, "", "0000/0000/1000/1100/1110/1111"},
};

TEST(Visible, ModesOfWideAndTallProblems) {
    for (const Table& table : tables) {
        for (const bool wide : {true, false}) {
            for (const Layout layout : {Layout::BNSD, Layout::TND}) {
                const std::int64_t S1 = wide ? 4 : 6, S2 = wide ? 6 : 4;
                Attention a = transparent({1, 1, 1, S1, S2}, layout);
                if (a.packed()) {
                    a.q_ends = {S1};
                    a.k_ends = {S2};
                }
                a.compressed(table.mode, table.pre, table.next);
                if (table.mode == 0) a.atten_mask = Tensor(DType::u8, Form::SS, {1, 1, S1, S2}).fill(0.0);
                if (table.mode == 6) a.prefix = {table.prefix};
                const std::string expected = wide ? table.wide : table.tall;
                const Status status = a.forward();
                EXPECT_EQ(status.ok(), !expected.empty()) << status.message();
                if (!expected.empty()) {
                    EXPECT_EQ(all_of(a), expected) << "mode " << table.mode << " pre " << table.pre;
                }
                // Without a mask they say nothing.
                a.atten_mask = Tensor();
                if (!expected.empty()) {
                    ASSERT_TRUE(a.forward().ok());
                    EXPECT_EQ(all_of(a).find('0'), std::string::npos);
                }
            }
        }
    }
}

TEST(Visible, BandOfUnequalLengths) {
    Attention a = transparent({1, 1, 1, 13, 16});
    a.compressed(4, 6, 4);
    ASSERT_TRUE(a.forward().ok());
    EXPECT_EQ(seen(a, 0, 0, 1, 0, 16), "1111111100000000");   // 0 … 7
    EXPECT_EQ(seen(a, 0, 12, 1, 0, 16), "0000000001111111");  // 9 … 15
}

TEST(Visible, PrefixOfEachBatch) {
    Attention a = transparent({2, 1, 1, 10, 10});
    a.compressed(6);
    a.prefix = {4, 5};
    ASSERT_TRUE(a.forward().ok());
    for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t i = 0; i < 10; ++i) {
            const std::int64_t count = std::max(i + 1, a.prefix[static_cast<std::size_t>(b)]);
            EXPECT_EQ(a.softmax_sum.get(b, 0, i, 0), static_cast<double>(count)) << b << " " << i;
            EXPECT_NE(a.attention_out.get(b, 0, i, count - 1), 0.0);
        }
    }
}

// In mode 5 the tensor decides, whatever prefix says; the rule is intersected with any of them.
TEST(Visible, ModeFiveReadsTheMask) {
    Attention a = transparent({1, 1, 1, 3, 4});
    a.params.sparse_mode = 5;
    a.atten_mask = Tensor(DType::boolean, Form::BNSD, {1, 1, 3, 4});
    a.atten_mask.fill([](auto, auto, std::int64_t i, std::int64_t j) { return (i + j) % 2 == 0 ? 1.0 : 0.0; });
    for (const bool given : {false, true}) {
        if (given) a.prefix = {2};
        ASSERT_TRUE(a.forward().ok());
        EXPECT_EQ(all_of(a), "0101/1010/0101");
    }
    a.params.rule.kind = MaskRule::Kind::causal_top_left;
    ASSERT_TRUE(a.forward().ok());
    EXPECT_EQ(all_of(a), "0000/1000/0100");
}

Attention packed(std::vector<std::int64_t> q_ends, std::vector<std::int64_t> k_ends) {
    Attention a = transparent({1, 1, 1, q_ends.back(), k_ends.back()}, Layout::TND);
    a.q_ends = std::move(q_ends);
    a.k_ends = std::move(k_ends);
    return a;
}

// One sequence of a packed problem: its rows and columns.
std::string sequence(const Attention& a, std::size_t b) {
    const std::int64_t q = b > 0 ? a.q_ends[b - 1] : 0, k = b > 0 ? a.k_ends[b - 1] : 0;
    return seen(a, 0, q, a.q_ends[b] - q, k, a.k_ends[b] - k);
}

// A packed problem whose second sequence is cut between two devices: together they show what the uncut one shows.
TEST(Visible, ModeSevenIsAnOuterSplit) {
    Attention whole = packed({3, 7, 12, 16}, {3, 9, 14, 18});
    whole.compressed(3);
    ASSERT_TRUE(whole.forward().ok());
    EXPECT_EQ(sequence(whole, 1), "111000/111100/111110/111111");

    Attention first = packed({3, 5}, {3, 9});
    first.compressed(7, 6, -2);
    ASSERT_TRUE(first.forward().ok());
    EXPECT_EQ(sequence(first, 0), "100/110/111");
    EXPECT_EQ(sequence(first, 1), "111000/111100");

    Attention second = packed({2, 7, 11}, {6, 11, 15});
    second.compressed(3);
    ASSERT_TRUE(second.forward().ok());
    EXPECT_EQ(sequence(second, 0), "111110/111111");
    EXPECT_EQ(sequence(second, 2), sequence(whole, 3));
}

TEST(Visible, ModeEightIsTheOtherOuterSplit) {
    Attention whole = packed({3, 8, 13, 17}, {3, 7, 12, 16});
    whole.compressed(2);
    ASSERT_TRUE(whole.forward().ok());
    EXPECT_EQ(sequence(whole, 1), "1000/1100/1110/1111/1111");

    Attention first = packed({3, 5}, {3, 7});
    first.compressed(2);
    ASSERT_TRUE(first.forward().ok());
    EXPECT_EQ(sequence(first, 1), "1000/1100");

    Attention second = packed({3, 8, 12}, {4, 9, 13});
    second.compressed(8, 4, 1);
    ASSERT_TRUE(second.forward().ok());
    EXPECT_EQ(sequence(second, 0), "1110/1111/1111");
    EXPECT_EQ(sequence(second, 1), sequence(whole, 2));
}

// The band is that of the last (first) sequence that has queries, not of the last (first) one.
TEST(Visible, SequencesWithoutQueriesAreNotTheBand) {
    Attention seven = packed({2, 5, 5}, {2, 5, 8});
    seven.compressed(7, 3, -1);
    ASSERT_TRUE(seven.forward().ok());
    EXPECT_EQ(sequence(seven, 0), "10/11");
    EXPECT_EQ(sequence(seven, 1), "000/100/110");
    Attention eight = packed({0, 3, 5}, {2, 5, 7});
    eight.compressed(8, 3, 1);
    ASSERT_TRUE(eight.forward().ok());
    EXPECT_EQ(sequence(eight, 1), "110/111/111");
    EXPECT_EQ(sequence(eight, 2), "10/11");
}

}  // namespace
}  // namespace fascore::test
