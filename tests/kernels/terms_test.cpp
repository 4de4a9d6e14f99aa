// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the operator's further terms against scalar definitions, on every ISA: 8-bit floats on all patterns
// and around every rounding boundary, dropout words against base/philox.h and against a bit loop, hidden infinities,
// slopes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "base/philox.h"
#include "kernels/kernel_table.h"
#include "kernels/select.h"

namespace fascore {
namespace {

using namespace kernels;

std::vector<const KernelTable*> tables() {
    std::vector<const KernelTable*> runnable;
    for (const IsaEntry& entry : isa_entries()) {
        if (entry.runnable) runnable.push_back(entry.table);
    }
    return runnable;
}

class Terms : public testing::TestWithParam<const KernelTable*> {};
INSTANTIATE_TEST_SUITE_P(Isa, Terms, testing::ValuesIn(tables()),
                         [](const auto& one) { return std::string(one.param->name); });

struct Format {
    Element element;
    DType dtype;
};
constexpr Format formats[] = {{Element::f8e4m3, DType::f8e4m3}, {Element::f8e5m2, DType::f8e5m2}};

std::vector<std::uint8_t> all_bytes() {
    std::vector<std::uint8_t> bytes(256);
    for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<std::uint8_t>(k);
    return bytes;
}

TEST_P(Terms, EightBitsWidenExactly) {
    const std::vector<std::uint8_t> bytes = all_bytes();
    for (const Format& format : formats) {
        std::vector<float> wide(256);
        LoadArgs args{};
        args.src = bytes.data();
        args.element = format.element;
        args.row_stride = 16;
        args.column_stride = 1;
        args.rows = args.padded_rows = 16;
        args.columns = 16;
        args.factor = 1;
        args.dst = wide.data();
        args.ld = args.width = 16;
        GetParam()->f32.load_rows(args);
        for (std::size_t k = 0; k < 256; ++k) {
            const auto expected = static_cast<float>(load_scalar(&bytes[k], format.dtype));
            ASSERT_TRUE((std::isnan(expected) && std::isnan(wide[k])) ||
                        std::memcmp(&expected, &wide[k], sizeof expected) == 0)
                << "pattern " << k << ": " << wide[k] << ", expected " << expected;
        }
    }
}

// A value, its two neighbours in f32, and the same for the tie between it and the next 8-bit number.
TEST_P(Terms, QuantisingIsTheDefinition) {
    const std::vector<std::uint8_t> bytes = all_bytes();
    for (const Format& format : formats) {
        std::vector<float> values;
        for (std::size_t k = 0; k < 256; ++k) {
            const auto value = static_cast<float>(load_scalar(&bytes[k], format.dtype));
            const auto next = static_cast<float>(load_scalar(&bytes[(k + 1) % 256], format.dtype));
            for (const float centre : {value, (value + next) / 2}) {
                if (!std::isfinite(centre)) continue;
                values.insert(values.end(), {centre, std::nextafter(centre, 1e9F), std::nextafter(centre, -1e9F)});
            }
        }
        values.insert(values.end(), {0.0F, 1e-30F, 1e6F, -1e6F});
        while (values.size() % 16 != 0) values.push_back(0);
        std::vector<float> got = values;
        QuantiseArgs args{};
        args.x = got.data();
        args.ld = 16;
        args.rows = static_cast<std::int32_t>(values.size() / 16);
        args.columns = 16;
        args.element = format.element;
        GetParam()->f32.quantise(args);
        for (std::size_t k = 0; k < values.size(); ++k) {
            std::uint8_t stored = 0;
            store_scalar(&stored, format.dtype, static_cast<double>(values[k]));
            ASSERT_EQ(got[k], static_cast<float>(load_scalar(&stored, format.dtype))) << "of " << values[k];
        }
    }
}

TEST_P(Terms, ABlockIsQuantisedByItsLargestElement) {
    // 448 / 7 = 64: exact, so 7 and 3.5 stay; 0.01·64 = 0.64 rounds to 0.625 and comes back as 0.625 / 64.
    std::vector<float> tile(32, 0.0F);
    tile[0] = -7.0F;
    tile[5] = 3.5F;
    tile[17] = 0.01F;
    QuantiseArgs args{};
    args.x = tile.data();
    args.ld = 16;
    args.rows = 2;
    args.columns = 16;
    args.element = Element::f8e4m3;
    args.block = true;
    GetParam()->f32.quantise(args);
    EXPECT_EQ(tile[0], -7.0F);
    EXPECT_EQ(tile[5], 3.5F);
    EXPECT_EQ(tile[17], 0.625F / 64.0F);
    // Below the threshold nothing is left.
    tile.assign(32, 9e-9F);
    GetParam()->f32.quantise(args);
    EXPECT_EQ(tile[3], 0.0F);
}

TEST_P(Terms, GeneratedKeepBitsAreThoseOfTheStream) {
    constexpr std::int32_t rows = 5;
    constexpr std::int32_t columns = 300;  // more blocks than the kernel takes at once, and a tail
    for (const std::uint64_t seed : {std::uint64_t{2}, std::uint64_t{0x0123456789ABCDEF}}) {
        for (const std::uint32_t threshold : {0U, 50U, 127U, 128U, 229U, 255U}) {
            std::vector<std::uint16_t> words(rows * 20, 0xABCD);
            KeepArgs args{};
            args.first = 16 * 7;
            args.pitch = 304;
            args.seed = seed;
            args.block = 0xFFFFFFFFULL - 3;  // the counter's first word overflows on the way
            args.threshold = threshold;
            args.rows = rows;
            args.columns = columns;
            args.words = words.data();
            args.row_words = 20;
            GetParam()->f32.keep_words(args);
            for (std::int64_t r = 0; r < rows; ++r) {
                for (std::int64_t c = 0; c < columns; ++c) {
                    const std::int64_t e = args.first + r * args.pitch + c;
                    const auto block = philox_block(seed, args.block + static_cast<std::uint64_t>(e / 16));
                    const bool keep = philox_byte(block, static_cast<int>(e % 16)) <= threshold;
                    ASSERT_EQ((words[static_cast<std::size_t>(r * 20 + c / 16)] >> (c % 16)) & 1, keep ? 1 : 0)
                        << "threshold " << threshold << " row " << r << " column " << c;
                }
            }
        }
    }
}

TEST_P(Terms, ExternalKeepBitsStartAnywhereAndReadNoFurther) {
    std::vector<std::uint8_t> bits(40);
    for (std::size_t k = 0; k < bits.size(); ++k) bits[k] = static_cast<std::uint8_t>(k * 73 + 11);
    for (std::int64_t first = 0; first < 9; ++first) {
        const std::int32_t rows = 4;
        const std::int32_t columns = 37;
        const std::int64_t last = first + 3 * 71 + columns - 1;
        std::vector<std::uint8_t> exact(bits.begin(), bits.begin() + last / 8 + 1);  // a read beyond is the sanitizer's
        std::vector<std::uint16_t> words(rows * 3);
        KeepArgs args{};
        args.bits = exact.data();
        args.first = first;
        args.pitch = 71;
        args.rows = rows;
        args.columns = columns;
        args.words = words.data();
        args.row_words = 3;
        GetParam()->f32.keep_words(args);
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < columns; ++c) {
                const std::int64_t e = first + r * 71 + c;
                ASSERT_EQ((words[static_cast<std::size_t>(r * 3 + c / 16)] >> (c % 16)) & 1,
                          (bits[static_cast<std::size_t>(e / 8)] >> (e % 8)) & 1);
            }
        }
    }
}

TEST_P(Terms, MinusInfinityHidesAndNothingElseDoes) {
    std::vector<float> bias(32, 0.0F);
    bias[3] = -std::numeric_limits<float>::infinity();
    bias[4] = std::numeric_limits<float>::infinity();
    bias[5] = std::numeric_limits<float>::quiet_NaN();
    bias[16 + 9] = -std::numeric_limits<float>::infinity();
    const std::uint8_t flags[2] = {1, 0};  // the second row is not asked about
    std::uint16_t words[2] = {0xFFF7 | 8, 0xFFFF};
    GetParam()->f32.hide_infinite({bias.data(), 16, 2, 16, flags, words, 1});
    EXPECT_EQ(words[0], 0xFFF7);
    EXPECT_EQ(words[1], 0xFFFF);
}

TEST_P(Terms, SlopesMeasureTheDistanceToTheDiagonal) {
    for (const bool root : {false, true}) {
        std::vector<float> tile(3 * 16);
        SlopeArgs args{0.5, root, -2, 3, 16, tile.data(), 16};
        GetParam()->f32.slope_bias(args);
        double sum = 0;
        for (std::int64_t r = 0; r < 3; ++r) {
            for (std::int64_t c = 0; c < 16; ++c) {
                const double distance = std::fabs(static_cast<double>(c - r - 2));
                const double measure = root ? std::sqrt(distance) : distance;
                ASSERT_FLOAT_EQ(tile[static_cast<std::size_t>(r * 16 + c)], static_cast<float>(-0.5 * measure));
                sum += -0.5 * measure * measure;
            }
        }
        EXPECT_NEAR(GetParam()->f32.slope_sum(args), sum, 1e-4);  // 48 products of f32 numbers up to 100
    }
}

}  // namespace
}  // namespace fascore
