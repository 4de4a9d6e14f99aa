// SPDX-License-Identifier: Apache-2.0
//
// Dropout: the generator against published and worked-out numbers, the mask bit by bit, and both sources of bits
// through the operator. Every number here was made elsewhere.
#include "reference/dropout.h"

#include <array>
#include <string>

#include "base/philox.h"
#include "fascore/dropout.h"
#include "reference/problem.h"

namespace fascore::test {
namespace {

using Block = std::array<std::uint32_t, 4>;
constexpr std::uint32_t ones = 0xFFFFFFFFU;
constexpr std::uint64_t long_seed = 0x0123456789ABCDEFU;

TEST(Philox, PublishedVectorsOfTenRounds) {
    EXPECT_EQ(reference::philox({0, 0, 0, 0}, 0, 10), (Block{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
    EXPECT_EQ(reference::philox({ones, ones, ones, ones}, ~std::uint64_t{0}, 10),
              (Block{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
}

struct Numbered {
    std::uint64_t seed, offset, block;
    Block words;
};

const Numbered blocks[] = {
    {0, 0, 0, {0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48}},
    {2, 0, 0, {0xAFCF3062, 0xF6539C39, 0x9B1D477A, 0x89CEA381}},
    {2, 0, 1, {0x754695EE, 0x887A6249, 0xC5764A61, 0x1AF56C9E}},
    {2, 17, 0, {0xDD6C6571, 0x39B99B68, 0x647D6322, 0x289DD30F}},
    {long_seed, 0, 0, {0xF4701821, 0x94947E0D, 0x0B7B993B, 0x02D0C2A6}},
    {long_seed, 0, 1, {0x75093820, 0x24814010, 0x2473C7DF, 0x1F41C779}},
};

TEST(Philox, BlocksOfSevenRounds) {
    for (const Numbered& row : blocks) {
        const std::uint64_t number = (row.offset + 15) / 16 + row.block;
        const Block counter{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0};
        EXPECT_EQ(reference::philox(counter, row.seed, 7), row.words) << row.seed;
        EXPECT_EQ(philox_block(row.seed, dropout_block(row.offset) + row.block), row.words) << row.seed;
    }
    static_assert(philox_block(2, 0)[0] == 0xAFCF3062U);
}

TEST(Philox, BothGeneratorsAgreeOnTheUpperWordOfTheCounter) {
    for (const std::uint64_t number : {std::uint64_t{1} << 32, (std::uint64_t{1} << 60) + 12345, ~std::uint64_t{0}}) {
        const Block counter{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0};
        EXPECT_EQ(reference::philox(counter, long_seed, 7), philox_block(long_seed, number));
    }
}

TEST(Philox, BytesAreTheWordsLowestFirst) {
    const int bytes[] = {98,  48,  207, 175, 57, 156, 83,  246, 122, 71, 29,  155, 129, 163, 206, 137,
                         238, 149, 70,  117, 73, 98,  122, 136, 97,  74, 118, 197, 158, 108, 245, 26};
    for (int e = 0; e < 32; ++e) {
        EXPECT_EQ(philox_byte(philox_block(2, static_cast<std::uint64_t>(e / 16)), e % 16), bytes[e]) << e;
    }
}

TEST(Philox, OffsetsAreRoundedUpToBlocks) {
    EXPECT_EQ(dropout_block(0), 0U);
    EXPECT_EQ(dropout_block(1), 1U);
    EXPECT_EQ(dropout_block(16), 1U);
    EXPECT_EQ(dropout_block(17), 2U);
    EXPECT_EQ(dropout_block(~std::uint64_t{0}), std::uint64_t{1} << 60);
}

TEST(Philox, ThresholdsAreF32Products) {
    for (const auto& [keep_prob, threshold] :
         {std::pair{0.9, 229U}, {0.8, 204U}, {0.5, 127U}, {0.2, 51U}, {1.0, 255U}}) {
        EXPECT_EQ(dropout_threshold(keep_prob), threshold) << keep_prob;
    }
}

// The public view of the mask as a text of 0 and 1, rows separated by '/'.
std::string kept(std::uint64_t seed, std::uint64_t offset, double keep_prob, std::int64_t first, std::int64_t rows,
                 std::int64_t columns) {
    Tensor keep(DType::u8, Form::SS, {1, 1, rows, columns}, Arrangement::padded_rows);
    EXPECT_TRUE(dropout_keep(seed, offset, keep_prob, first, keep.out()).ok());
    EXPECT_TRUE(keep.untouched_outside());
    std::string text;
    for (std::int64_t r = 0; r < rows; ++r) {
        if (r > 0) text += "/";
        for (std::int64_t c = 0; c < columns; ++c) text += keep.get(0, 0, r, c) != 0 ? "1" : "0";
    }
    return text;
}

std::string bits_of(std::initializer_list<int> bytes) {
    std::string text;
    for (const int byte : bytes) {
        for (int bit = 0; bit < 8; ++bit) text += (byte >> bit & 1) != 0 ? "1" : "0";
    }
    return text;
}

TEST(Keep, FirstSixtyFourElements) {
    EXPECT_EQ(kept(2, 0, 0.9, 0, 1, 64), "1111111011111111011111111111110111111111111111111111010101111111");
    EXPECT_EQ(kept(2, 0, 0.9, 0, 1, 64), bits_of({0x7F, 0xFF, 0xFE, 0xBF, 0xFF, 0xFF, 0xAF, 0xFE}));
    EXPECT_EQ(kept(2, 0, 0.8, 0, 1, 64), bits_of({0x7B, 0xBF, 0xFE, 0xBF, 0xF7, 0xDF, 0xAF, 0xFE}));
    EXPECT_EQ(kept(2, 0, 0.5, 0, 1, 64), bits_of({0x53, 0x07, 0x7C, 0xA7, 0x97, 0x9F, 0xAB, 0xE0}));
    for (const std::uint64_t offset : {1U, 16U}) {
        EXPECT_EQ(kept(2, offset, 0.9, 0, 1, 64), bits_of({0xFE, 0xBF, 0xFF, 0xFF, 0xAF, 0xFE, 0xFF, 0xFC}));
    }
    EXPECT_EQ(kept(2, 17, 0.9, 0, 1, 64), bits_of({0xFF, 0xFF, 0xAF, 0xFE, 0xFF, 0xFC, 0x7F, 0x7F}));
    EXPECT_EQ(kept(long_seed, 0, 0.9, 0, 1, 64), bits_of({0xF7, 0xFF, 0xFF, 0xFF, 0xEF, 0x7B, 0xFF, 0xF7}));
}

TEST(Keep, RowsArePaddedToSixteen) {
    EXPECT_EQ(kept(2, 0, 0.9, 0, 6, 5), "11111/01111/11111/11110/11111/11111");
    EXPECT_EQ(kept(2, 0, 0.5, 0, 6, 5), "11001/00111/11101/11010/11010/00110");
    EXPECT_EQ(kept(2, 0, 0.9, 0, 4, 20),
              "11111110111111110111/11111111111111111111/11111111001111111111/11111111111111111011");
    // Any element may be the first: 32 is the second row of the last, 3 stands inside a block.
    EXPECT_EQ(kept(2, 0, 0.9, 32, 1, 20), "11111111111111111111");
    EXPECT_EQ(kept(2, 0, 0.9, 3, 1, 16), "1111011111111011");
}

TEST(Keep, ShareOfTheFirstMillion) {
    const std::string text = kept(2, 0, 0.9, 0, 1024, 1024);
    const auto count = std::count(text.begin(), text.end(), '1');
    EXPECT_EQ(std::nearbyint(static_cast<double>(count) / 0x1p20 * 1e5), 89862.0);
}

TEST(Keep, Refusals) {
    Tensor keep(DType::u8, Form::SS, {1, 1, 2, 3});
    Tensor wide(DType::f32, Form::SS, {1, 1, 2, 3});
    Tensor cube(DType::u8, Form::BNS, {1, 2, 3, 1});
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double keep_prob : {0.0, -0.5, 1.0000001, nan}) {
        EXPECT_EQ(dropout_keep(0, 0, keep_prob, 0, keep.out()).code(), StatusCode::invalid_argument);
    }
    EXPECT_EQ(dropout_keep(0, 0, 0.5, -1, keep.out()).message(), "first_element: given -1, must be 0 or more");
    EXPECT_EQ(dropout_keep(0, 0, 0.5, 0, wide.out()).message(), "keep: dtype is f32, must be bool or u8");
    EXPECT_EQ(dropout_keep(0, 0, 0.5, 0, cube.out()).message(), "keep: rank is 3, must be 2");
    EXPECT_TRUE(keep.still_poisoned());
}

// ---- through the operator -------------------------------------------------------------------------------------------

// With Q = 0 and V the identity, attention_out[i][j] = keep(i,j) / (keep_prob · S2).
Attention transparent(Sizes sizes, Layout layout, double keep_prob) {
    sizes.Dv = sizes.D = sizes.S2;
    Attention a(sizes, DType::f64, layout);
    a.params.keep_prob = keep_prob;
    a.params.seed = 2;
    a.query.fill(0.0);
    a.key.fill(1.0);
    a.identity_values();
    return a;
}

std::string seen(const Attention& a, std::int64_t b, std::int64_t n, double keep_prob, std::int64_t S2) {
    std::string text;
    for (std::int64_t i = 0; i < a.sizes.S1; ++i) {
        if (i > 0) text += "/";
        for (std::int64_t j = 0; j < S2; ++j) {
            const double value = a.attention_out.get(b, n, i, j) * static_cast<double>(S2) * keep_prob;
            EXPECT_TRUE(value == 0.0 || std::fabs(value - 1.0) < 1e-15) << value;
            text += value == 0.0 ? "0" : "1";
        }
    }
    return text;
}

TEST(Dropout, DrawnAndGivenMasksOfTheWorkedExamples) {
    struct Row {
        std::int64_t S2;
        double keep_prob;
        std::vector<std::uint8_t> bytes;
        const char* heads[2];
    };
    for (const Row& row : {Row{5, 0.9, {0xDF, 0xFF, 0xF7, 0x3F}, {"11111/01111/11111", "11110/11111/11111"}},
                           Row{5, 0.5, {0x93, 0xDF, 0xB5, 0x18}, {"11001/00111/11101", "11010/11010/00110"}},
                           Row{4, 0.5, {0xC3, 0xB7, 0xCB}, {"1100/0011/1110", "1101/1101/0011"}}}) {
        for (const bool given : {false, true}) {
            Attention a = transparent({1, 2, 1, 3, row.S2, 1, 1}, Layout::BNSD, row.keep_prob);
            if (given) {
                a.params.seed = 12345;
                a.with_drop_mask(row.bytes);
            }
            ASSERT_TRUE(a.forward().ok());
            EXPECT_EQ(seen(a, 0, 0, row.keep_prob, row.S2), row.heads[0]);
            EXPECT_EQ(seen(a, 0, 1, row.keep_prob, row.S2), row.heads[1]);
            EXPECT_EQ(a.softmax_sum.get(0, 0, 0, 0), static_cast<double>(row.S2));  // statistics are before dropout
        }
    }
}

// Batches and heads follow each other in the stream as dropout_keep writes them.
TEST(Dropout, WholeMaskAsThePublicCallWritesIt) {
    const std::int64_t B = 2, N = 3, S1 = 4, S2 = 21;
    for (const Layout layout : {Layout::BNSD, Layout::SBH}) {
        Attention a = transparent({B, N, 1, S1, S2, 1, 1}, layout, 0.4);
        a.params.seed = long_seed;
        a.params.offset = 100;
        ASSERT_TRUE(a.forward().ok());
        for (std::int64_t b = 0; b < B; ++b) {
            for (std::int64_t n = 0; n < N; ++n) {
                EXPECT_EQ(seen(a, b, n, 0.4, S2), kept(long_seed, 100, 0.4, (b * N + n) * S1 * 32, S1, S2));
            }
        }
    }
}

TEST(Dropout, KeepProbOneIgnoresTheMask) {
    Attention a = transparent({1, 1, 1, 3, 4, 1, 1}, Layout::BNSD, 1.0);
    a.with_drop_mask({0, 0});
    ASSERT_TRUE(a.forward().ok());
    EXPECT_EQ(seen(a, 0, 0, 1.0, 4), "1111/1111/1111");
}

}  // namespace
}  // namespace fascore::test
