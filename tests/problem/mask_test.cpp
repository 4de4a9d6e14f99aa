// SPDX-License-Identifier: Apache-2.0
//
// The engine's masks (bands, tile classes, words) against a predicate written here from the operator's words, pair by
// pair, over every small shape, mode, token, prefix and rule; and against tables written by hand, so that both cannot
// be wrong together.
#include "problem/mask.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

namespace fascore {
namespace {

struct Rule {
    bool mask_given = false;
    int sparse_mode = 0;
    std::int64_t pre = unlimited_tokens;
    std::int64_t next = unlimited_tokens;
    MaskRule rule{};
    std::int64_t prefix = 0;
    bool cut = false;  // modes 7 and 8: this is the sequence that is cut
};

std::string words(const Rule& rule) {
    return "mask " + std::to_string(rule.mask_given) + " mode " + std::to_string(rule.sparse_mode) + " pre " +
           std::to_string(rule.pre) + " next " + std::to_string(rule.next) + " rule " +
           std::to_string(static_cast<int>(rule.rule.kind)) + " " + std::to_string(rule.rule.left) + " " +
           std::to_string(rule.rule.right) + " prefix " + std::to_string(rule.prefix) + " cut " +
           std::to_string(rule.cut);
}

// What the operator says, in its own words and in 128 bits, so that no token is too large to add. (A mask tensor hides
// nothing here.)
bool visible(const Rule& rule, std::int64_t S1, std::int64_t S2, std::int64_t row, std::int64_t column) {
    __extension__ using Wide = __int128;
    const Wide i = row;
    const Wide j = column;
    const Wide delta = Wide{S2} - S1;
    // Tokens beyond the largest mean the largest, which no pair of these lengths reaches.
    const Wide pre = rule.pre;
    const Wide next = rule.next;
    const auto band = [&] { return i + delta - pre <= j && j <= i + delta + next; };
    bool seen = true;
    if (rule.mask_given) {
        switch (rule.sparse_mode) {
            case 0: seen = i - pre <= j && j <= i + next; break;
            case 2: seen = j <= i; break;
            case 3: seen = j <= i + delta; break;
            case 4: seen = band(); break;
            case 6: seen = j < rule.prefix || j <= i + delta; break;
            case 7: seen = rule.cut ? band() : j <= i + delta; break;
            case 8: seen = rule.cut ? band() : j <= i; break;
            default: break;  // 1 and 5: the mask alone
        }
    }
    switch (rule.rule.kind) {
        case MaskRule::Kind::none: break;
        case MaskRule::Kind::causal_top_left: seen = seen && j <= i; break;
        case MaskRule::Kind::causal_bottom_right: seen = seen && j <= i + delta; break;
        case MaskRule::Kind::window:
            seen = seen && (rule.rule.left < 0 || i + delta - rule.rule.left <= j) &&
                   (rule.rule.right < 0 || j <= i + delta + rule.rule.right);
            break;
    }
    return seen;
}

// The band of batch 1 of a call; in modes 7 and 8 batch 1 or batch 0 is the one that is cut.
Band band_of(const Rule& rule, std::int64_t S1, std::int64_t S2) {
    const std::array<std::int64_t, 2> prefixes = {S2, rule.prefix};
    AttentionParams params;
    params.sparse_mode = rule.sparse_mode;
    params.pre_tokens = rule.pre;
    params.next_tokens = rule.next;
    params.rule = rule.rule;
    params.prefix = prefixes;
    return make_band(params, rule.mask_given, S1, S2, 1, rule.cut ? 1 : 0);
}

struct Masked {
    std::int64_t S1;
    std::int64_t S2;
    Rule rule;
    Band band;

    Masked(std::int64_t rows, std::int64_t columns, const Rule& what)
        : S1(rows), S2(columns), rule(what), band(band_of(what, rows, columns)) {}
    [[nodiscard]] bool expected(std::int64_t i, std::int64_t j) const { return visible(rule, S1, S2, i, j); }
};

// problem.h, literally.
bool in_band(const Band& band, std::int64_t i, std::int64_t j) {
    if (j - i < band.lower) return false;
    return j - i <= band.upper || (j < band.prefix && j - i <= band.cap);
}

std::vector<Rule> all_rules() {
    std::vector<MaskRule> kinds = {{}, {MaskRule::Kind::causal_top_left}, {MaskRule::Kind::causal_bottom_right}};
    const std::int64_t bounds[] = {-1, 0, 2, 5, 1000, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()};
    for (const std::int64_t left : bounds) {
        for (const std::int64_t right : bounds) kinds.push_back({MaskRule::Kind::window, left, right});
    }
    std::vector<Rule> rules;
    for (const MaskRule& kind : kinds) {
        rules.push_back({false, 0, -3, -3, kind});  // tokens without a mask say nothing
        for (const int mode : {1, 2, 3, 5}) rules.push_back({true, mode, -3, -3, kind, 2});
        for (const std::int64_t prefix : {0, 1, 2, 4, 7, 9}) rules.push_back({true, 6, -3, -3, kind, prefix});
        for (const int mode : {7, 8}) {
            rules.push_back({true, mode, -3, -3, kind, 2, false});
            rules.push_back({true, mode, 3, -2, kind, 2, true});
        }
    }
    const std::int64_t tokens[] = {
        std::numeric_limits<std::int64_t>::min(), -40, -9, -3, -1, 0, 1, 2, 4, 9, 40, unlimited_tokens,
        std::numeric_limits<std::int64_t>::max()};
    for (const int mode : {0, 4}) {
        for (const std::int64_t pre : tokens) {
            for (const std::int64_t next : tokens) {
                rules.push_back({true, mode, pre, next, {}});
                rules.push_back({true, mode, pre, next, {MaskRule::Kind::causal_top_left}});
                rules.push_back({true, mode, pre, next, {MaskRule::Kind::window, 2, -1}});
                if (mode == 0) continue;
                rules.push_back({true, 7, pre, next, {}, 0, true});
                rules.push_back({true, 8, pre, next, {MaskRule::Kind::causal_bottom_right}, 0, true});
            }
        }
    }
    return rules;
}

// ---- against the reference -----------------------------------------------------------------------------------------

class SmallShapes : public ::testing::TestWithParam<std::int64_t> {};

// Everything mask.h answers from the band, by counting pairs: those of the rule, or of a band no rule makes.
void check_band(const Masked& m, bool of_rule = true) {
    const Band band = m.band;
    const std::int64_t S1 = m.S1;
    const std::int64_t S2 = m.S2;
    double pairs = 0;
    Range before{0, 0};
    std::int64_t first_row = S1, last_row = -1, first_column = S2, last_column = -1;
    for (std::int64_t i = 0; i < S1; ++i) {
        const Range columns = visible_columns(band, i, S2);
        ASSERT_LE(columns.begin, columns.end);
        ASSERT_LE(before.begin, columns.begin);  // both ends never fall
        ASSERT_LE(before.end, columns.end);
        before = columns;
        for (std::int64_t j = 0; j < S2; ++j) {
            const bool seen = of_rule ? m.expected(i, j) : in_band(band, i, j);
            ASSERT_EQ(in_band(band, i, j), seen) << "pair " << i << " " << j;
            ASSERT_EQ(columns.begin <= j && j < columns.end, seen) << "columns of row " << i << ", column " << j;
            const Range rows = visible_rows(band, j, S1);
            ASSERT_EQ(rows.begin <= i && i < rows.end, seen) << "rows of column " << j << ", row " << i;
            if (!seen) continue;
            pairs += 1;
            first_row = std::min(first_row, i);
            last_row = std::max(last_row, i);
            first_column = std::min(first_column, j);
            last_column = std::max(last_column, j);
        }
    }
    ASSERT_EQ(visible_pairs(band, S1, S2), pairs);
    const Range rows = live_rows(band, S1, S2);
    const Range columns = live_columns(band, S1, S2);
    ASSERT_EQ(rows.empty(), pairs == 0);
    ASSERT_EQ(columns.empty(), pairs == 0);
    if (pairs > 0) {
        ASSERT_EQ(rows.begin, first_row);
        ASSERT_EQ(rows.end, last_row + 1);
        ASSERT_EQ(columns.begin, first_column);
        ASSERT_EQ(columns.end, last_column + 1);
    }
}

// Class of every tile of every size.
void check_classes(const Masked& m) {
    const std::int64_t S1 = m.S1;
    const std::int64_t S2 = m.S2;
    for (std::int64_t r0 = 0; r0 < S1; ++r0) {
        for (std::int64_t r1 = r0 + 1; r1 <= S1; ++r1) {
            for (std::int64_t c0 = 0; c0 < S2; ++c0) {
                std::int64_t seen = 0;
                for (std::int64_t c1 = c0 + 1; c1 <= S2; ++c1) {
                    for (std::int64_t i = r0; i < r1; ++i) seen += in_band(m.band, i, c1 - 1) ? 1 : 0;
                    const TileClass expected = seen == 0                       ? TileClass::empty
                                               : seen == (r1 - r0) * (c1 - c0) ? TileClass::full
                                                                               : TileClass::partial;
                    ASSERT_EQ(classify(m.band, {r0, r1}, {c0, c1}), expected)
                        << "rows " << r0 << ".." << r1 << " columns " << c0 << ".." << c1;
                }
            }
        }
    }
}

TEST_P(SmallShapes, BandIsThePredicate) {
    const std::int64_t S1 = GetParam();
    for (std::int64_t S2 = 0; S2 <= 9; ++S2) {
        for (const Rule& rule : all_rules()) {
            SCOPED_TRACE(words(rule) + " S1 " + std::to_string(S1) + " S2 " + std::to_string(S2));
            check_band(Masked(S1, S2, rule));
            if (HasFatalFailure()) return;
        }
    }
}

TEST_P(SmallShapes, TileClassesByCounting) {
    const std::int64_t S1 = GetParam();
    for (std::int64_t S2 = 1; S2 <= 9; ++S2) {
        // The class depends on the band alone: every band, each once.
        for (std::int64_t lower = -S1 - S2; lower <= S1 + S2; ++lower) {
            for (std::int64_t upper = -S1 - S2; upper <= S1 + S2; ++upper) {
                Masked m(S1, S2, {});
                m.band = {lower, upper, 0, upper};
                SCOPED_TRACE("band " + std::to_string(lower) + " " + std::to_string(upper));
                check_classes(m);
                if (HasFatalFailure()) return;
            }
        }
    }
}

TEST_P(SmallShapes, AnyBandWithAPrefix) {
    const std::int64_t S1 = GetParam();
    if (S1 > 6) return;  // five numbers free: beyond that the same geometry over and over
    for (std::int64_t S2 = 1; S2 <= 6; ++S2) {
        for (std::int64_t lower = -S1; lower <= S2; ++lower) {
            for (std::int64_t upper = -S1 - 1; upper <= S2; ++upper) {
                for (std::int64_t cap = upper; cap <= S2; ++cap) {
                    for (std::int64_t prefix = 1; prefix <= S2; ++prefix) {
                        Masked m(S1, S2, {});
                        m.band = {lower, upper, prefix, cap};
                        SCOPED_TRACE("band " + std::to_string(lower) + " " + std::to_string(upper) + " prefix " +
                                     std::to_string(prefix) + " cap " + std::to_string(cap));
                        check_band(m, false);
                        if (HasFatalFailure()) return;
                        check_classes(m);
                        if (HasFatalFailure()) return;
                    }
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(S1, SmallShapes, ::testing::Range<std::int64_t>(0, 10));

// ---- against tables written by hand ---------------------------------------------------------------------------------

struct Written {
    const char* name;
    Rule rule;
    std::int64_t S1;
    std::int64_t S2;
    const char* rows;  // one word a row, 1 = visible
};

constexpr std::int64_t any = unlimited_tokens;

const Written tables[] = {
    {"mode0_4x6", {true, 0, 2, 1, {}}, 4, 6, "110000/111000/111100/011110"},
    {"mode0_6x4", {true, 0, 2, 1, {}}, 6, 4, "1100/1110/1111/0111/0011/0001"},
    {"mode0_next_negative_4x6", {true, 0, 4, -1, {}}, 4, 6, "000000/100000/110000/111000"},
    {"mode0_next_negative_6x4", {true, 0, 4, -1, {}}, 6, 4, "0000/1000/1100/1110/1111/0111"},
    {"mode0_pre_negative_4x6", {true, 0, -1, 3, {}}, 4, 6, "011100/001110/000111/000011"},
    {"mode0_pre_negative_6x4", {true, 0, -1, 3, {}}, 6, 4, "0111/0011/0001/0000/0000/0000"},
    {"mode2_4x6", {true, 2, any, any, {}}, 4, 6, "100000/110000/111000/111100"},
    {"mode2_6x4", {true, 2, any, any, {}}, 6, 4, "1000/1100/1110/1111/1111/1111"},
    {"mode3_4x6", {true, 3, any, any, {}}, 4, 6, "111000/111100/111110/111111"},
    {"mode3_6x4", {true, 3, any, any, {}}, 6, 4, "0000/0000/1000/1100/1110/1111"},
    {"mode4_4x6", {true, 4, 2, 1, {}}, 4, 6, "111100/011110/001111/000111"},
    {"mode4_6x4", {true, 4, 2, 1, {}}, 6, 4, "0000/1000/1100/1110/1111/0111"},
    {"mode4_next_negative_4x6", {true, 4, 3, -1, {}}, 4, 6, "110000/111000/011100/001110"},
    {"mode4_next_negative_6x4", {true, 4, 3, -1, {}}, 6, 4, "0000/0000/0000/1000/1100/1110"},
    // MSK-04: which corner?
    {"MSK04_top_left_2x5", {false, 0, any, any, {MaskRule::Kind::causal_top_left}}, 2, 5, "10000/11000"},
    {"MSK04_bottom_right_2x5", {false, 0, any, any, {MaskRule::Kind::causal_bottom_right}}, 2, 5, "11110/11111"},
    {"MSK04_top_left_5x2", {false, 0, any, any, {MaskRule::Kind::causal_top_left}}, 5, 2, "10/11/11/11/11"},
    {"MSK04_bottom_right_5x2", {false, 0, any, any, {MaskRule::Kind::causal_bottom_right}}, 5, 2, "00/00/00/10/11"},
    // MSK-07: both ends of a window count.
    {"MSK07_window_3_0",
     {false, 0, any, any, {MaskRule::Kind::window, 3, 0}},
     8,
     8,
     "10000000/11000000/11100000/11110000/01111000/00111100/00011110/00001111"},
    {"MSK07_window_0_0", {false, 0, any, any, {MaskRule::Kind::window, 0, 0}}, 3, 3, "100/010/001"},
    // MSK-09: negative tokens of a band.
    {"MSK09_pre_9_next_minus_3", {true, 4, 9, -3, {}}, 6, 6, "000000/000000/000000/100000/110000/111000"},
    {"MSK09_pre_minus_3_next_7", {true, 4, -3, 7, {}}, 6, 6, "000111/000011/000001/000000/000000/000000"},
    // MSK-23
    {"MSK23_mode4", {true, 4, 3, 1, {}}, 4, 6, "111100/111110/011111/001111"},
    {"mode6_prefix_3_4x6", {true, 6, any, any, {}, 3}, 4, 6, "111000/111100/111110/111111"},
    {"mode6_prefix_3_6x4", {true, 6, any, any, {}, 3}, 6, 4, "1110/1110/1110/1110/1110/1111"},
    {"mode6_prefix_0_6x4", {true, 6, any, any, {}, 0}, 6, 4, "0000/0000/1000/1100/1110/1111"},
    {"mode6_prefix_4_square", {true, 6, any, any, {}, 4}, 6, 6, "111100/111100/111100/111100/111110/111111"},
    {"mode6_and_causal", {true, 6, any, any, {MaskRule::Kind::causal_top_left}, 3}, 4, 4, "1000/1100/1110/1111"},
    // A window cuts the prefix on both sides.
    {"mode6_and_window", {true, 6, any, any, {MaskRule::Kind::window, 2, 1}, 3}, 5, 5, "11000/11100/11100/01110/00111"},
    // A packed problem cut between devices: modes 7 and 8 and the rest of the cut sequence.
    {"mode7_cut", {true, 7, 6, -2, {}, 0, true}, 2, 6, "111000/111100"},
    {"mode7_rest", {true, 3, any, any, {}}, 2, 6, "111110/111111"},
    {"mode7_other", {true, 7, 6, -2, {}, 0, false}, 3, 3, "100/110/111"},
    {"mode8_cut", {true, 8, 4, 1, {}, 0, true}, 3, 4, "1110/1111/1111"},
    {"mode8_other", {true, 8, 4, 1, {}, 0, false}, 5, 4, "1000/1100/1110/1111/1111"},
    {"mode5_is_the_mask_alone", {true, 5, 0, 0, {}, 1}, 2, 3, "111/111"},
    {"rule_and_mode_meet", {true, 0, 1, any, {MaskRule::Kind::causal_top_left}}, 4, 4, "1000/1100/0110/0011"},
    {"window_of_another_corner",
     {true, 2, any, any, {MaskRule::Kind::window, 3, -1}},
     4,
     6,
     "100000/110000/011000/001100"},
};

class WrittenOut : public ::testing::TestWithParam<Written> {};

TEST_P(WrittenOut, BandAndPredicateAgreeWithTheTable) {
    const Written& table = GetParam();
    const Masked m(table.S1, table.S2, table.rule);
    std::string by_band;
    std::string by_predicate;
    for (std::int64_t i = 0; i < table.S1; ++i) {
        if (i > 0) by_band += '/', by_predicate += '/';
        for (std::int64_t j = 0; j < table.S2; ++j) {
            by_band += in_band(m.band, i, j) ? '1' : '0';
            by_predicate += m.expected(i, j) ? '1' : '0';
        }
    }
    EXPECT_EQ(by_band, table.rows);
    EXPECT_EQ(by_predicate, table.rows);
}

INSTANTIATE_TEST_SUITE_P(Tables, WrittenOut, ::testing::ValuesIn(tables),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Band, LargeBandOfTheFigure) {
    // S1 13, S2 16, pre 6, next 4: row 0 sees 0 … 7, row 12 sees 9 … 15.
    const Masked m(13, 16, {true, 4, 6, 4, {}});
    EXPECT_EQ(visible_columns(m.band, 0, 16).begin, 0);
    EXPECT_EQ(visible_columns(m.band, 0, 16).end, 8);
    EXPECT_EQ(visible_columns(m.band, 12, 16).begin, 9);
    EXPECT_EQ(visible_columns(m.band, 12, 16).end, 16);
}

TEST(Band, CountsPairsOfLongProblems) {
    const std::int64_t S = std::int64_t{1} << 20;
    const double n = static_cast<double>(S);
    EXPECT_EQ(visible_pairs(make_band({}, false, S, S), S, S), n * n);
    EXPECT_EQ(visible_pairs(band_of({true, 2, any, any, {}}, S, S), S, S), n * (n + 1) / 2);
    // A prefix of half adds the triangle above the diagonal of the first half.
    EXPECT_EQ(visible_pairs(band_of({true, 6, any, any, {}, S / 2}, S, S), S, S),
              n * (n + 1) / 2 + (n / 2) * (n / 2 - 1) / 2);
}

// ---- words ---------------------------------------------------------------------------------------------------------

struct Bytes {
    std::int64_t stride_b, stride_n, stride_i, stride_j;
    const char* name;
};

class Fill : public ::testing::TestWithParam<Bytes> {};

// Tiles of every width around a granule, at every start, with bands and mask values of all kinds.
TEST_P(Fill, WordsAreThePredicate) {
    const Bytes strides = GetParam();
    const std::int64_t S1 = 7, S2 = 75;
    std::vector<std::uint8_t> bytes(6000);
    std::uint32_t state = 12345;
    for (std::uint8_t& byte : bytes) {
        state = state * 1664525U + 1013904223U;
        // Half visible; hidden ones with every kind of non-zero byte, 0x80 and 0x01 among them.
        const std::uint8_t kinds[] = {0, 0, 0, 0, 1, 0x80, 0xFF, 0x7F};
        byte = kinds[state >> 29];
    }
    const Band bands[] = {{-82, 82, 0, 82}, {-82, 0, 0, 0},  {-82, 33, 0, 33}, {-2, 40, 0, 40},  {20, 60, 0, 60},
                          {5, 4, 0, 4},     {60, 82, 0, 82}, {-82, 3, 35, 82}, {-3, 10, 50, 44}, {12, 5, 33, 82}};
    for (const Band& band : bands) {
        for (const bool with_mask : {false, true}) {
            Problem problem;
            problem.B = 2;
            problem.N1 = 3;
            problem.S1 = S1;
            problem.S2 = S2;
            problem.band = band;
            if (with_mask) {
                // A negative stride starts from the far end.
                const std::int64_t origin = (strides.stride_i < 0 ? -strides.stride_i * (S1 - 1) : 0) +
                                            (strides.stride_j < 0 ? -strides.stride_j * (S2 - 1) : 0);
                problem.mask.data = bytes.data() + origin;
                problem.mask.present = true;
                problem.mask.stride_b = strides.stride_b;
                problem.mask.stride_n = strides.stride_n;
                problem.mask.stride_i = strides.stride_i;
                problem.mask.stride_j = strides.stride_j;
            }
            const std::int64_t b = 1, n = 2;
            const Batch batch = problem.batch(b);
            for (std::int64_t c0 = 0; c0 < S2; c0 += 5) {
                for (const std::int64_t width : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 70}) {
                    const std::int64_t c1 = std::min(S2, c0 + width);
                    const Range rows{1, 6};
                    const Range columns{c0, c1};
                    constexpr std::int64_t row_words = 7;
                    std::vector<std::uint16_t> bits(5 * row_words + 1, 0xBEEF);
                    const TileClass got = fill_tile(batch, n, rows, columns, bits.data(), row_words);
                    std::int64_t seen = 0;
                    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
                        for (std::int64_t c = 0; c < row_words * granule; ++c) {
                            const std::int64_t j = c0 + c;
                            bool expected = j < c1 && in_band(band, i, j);
                            if (expected && with_mask) {
                                const std::int64_t at = b * strides.stride_b + n * strides.stride_n +
                                                        i * strides.stride_i + j * strides.stride_j;
                                expected = problem.mask.data[at] == 0;
                            }
                            const std::size_t word =
                                static_cast<std::size_t>((i - rows.begin) * row_words + c / granule);
                            ASSERT_EQ((bits[word] >> (c % granule)) & 1, expected ? 1 : 0)
                                << "row " << i << " column " << j << " of " << c0 << ".." << c1;
                            seen += expected ? 1 : 0;
                        }
                    }
                    ASSERT_EQ(bits.back(), 0xBEEF);
                    const TileClass expected = seen == 0                              ? TileClass::empty
                                               : seen == rows.size() * columns.size() ? TileClass::full
                                                                                      : TileClass::partial;
                    ASSERT_EQ(got, expected);
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Strides, Fill,
                         ::testing::Values(Bytes{1575, 525, 75, 1, "contiguous"},
                                           Bytes{0, 0, 75, 1, "one_for_all_heads"}, Bytes{0, 0, 81, 1, "padded_rows"},
                                           Bytes{525, 0, 1, 7, "transposed"},
                                           Bytes{0, 0, 150, 2, "every_second_column"},
                                           Bytes{0, 0, -75, -1, "backwards"}, Bytes{0, 75, 0, 1, "same_for_all_rows"},
                                           Bytes{0, 7, 1, 0, "same_for_all_columns"}, Bytes{1, 2, 0, 0, "one_byte"}),
                         [](const auto& row) { return std::string(row.param.name); });

// The tile's bytes, 3 rows of 21 columns, end where a page ends that may not be touched.
TEST(FillTile, ReadsNothingBehindTheTile) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* const pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(mprotect(static_cast<std::uint8_t*>(pages) + page, page, PROT_NONE), 0);
    Batch batch;
    batch.S1 = 3;
    batch.S2 = 21;
    batch.band = {-24, 24, 0, 24};
    batch.mask.data = static_cast<std::uint8_t*>(pages) + page - 3 * 21;
    batch.mask.present = true;
    batch.mask.stride_i = 21;
    batch.mask.stride_j = 1;
    std::vector<std::uint16_t> bits(3 * 2);
    EXPECT_EQ(fill_tile(batch, 0, {0, 3}, {0, 21}, bits.data(), 2), TileClass::full);
    EXPECT_EQ(bits, (std::vector<std::uint16_t>{0xFFFF, 0x1F, 0xFFFF, 0x1F, 0xFFFF, 0x1F}));
    munmap(pages, 2 * page);
}

}  // namespace
}  // namespace fascore
