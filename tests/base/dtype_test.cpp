// SPDX-License-Identifier: Apache-2.0
//
// Conversions against a derivation that shares nothing with them: a 16-bit pattern's value comes from the definition of
// the format (sign · fraction · 2^exponent, by ldexp), and rounding from a search among neighbouring values.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace fascore {
namespace {

struct Format {
    const char* name;
    DType dtype;
    int exponent_bits;
    int fraction_bits;
    float (*widen)(std::uint16_t);
    std::uint16_t (*narrow)(float);
    std::uint16_t (*narrow_double)(double);
};

const Format formats[] = {
    {"bf16", DType::bf16, 8, 7, bf16_to_f32, f32_to_bf16, f64_to_bf16},
    {"f16", DType::f16, 5, 10, f16_to_f32, f32_to_f16, f64_to_f16},
};

// The value of a pattern, by definition.
double meaning(const Format& format, std::uint32_t pattern) {
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const int exponent = static_cast<int>(pattern >> format.fraction_bits) & ((1 << format.exponent_bits) - 1);
    const int fraction = static_cast<int>(pattern) & ((1 << format.fraction_bits) - 1);
    const double sign = (pattern & 0x8000U) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << format.exponent_bits) - 1) {
        return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
    }
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - format.fraction_bits);
    return sign * std::ldexp((1 << format.fraction_bits) + fraction, exponent - bias - format.fraction_bits);
}

// The pattern nearest to a finite value ≥ 0, ties to the even pattern. Beyond the largest finite value the format goes
// on as if it had one more step: half of that step or more is infinity.
std::uint16_t nearest(const Format& format, double value) {
    const std::uint32_t infinity = static_cast<std::uint32_t>((1 << format.exponent_bits) - 1) << format.fraction_bits;
    const auto extended = [&](std::uint32_t pattern) {
        if (pattern < infinity) return meaning(format, pattern);
        return 2.0 * meaning(format, infinity - 1) - meaning(format, infinity - 2);
    };
    std::uint32_t low = 0;  // the largest pattern whose value is ≤ value
    for (std::uint32_t step = 0x4000; step != 0; step >>= 1) {
        if (low + step <= infinity && extended(low + step) <= value) low += step;
    }
    if (low == infinity) return static_cast<std::uint16_t>(infinity);
    const double below = value - extended(low);
    const double above = extended(low + 1) - value;
    const bool up = above < below || (above == below && (low & 1U) != 0);
    return static_cast<std::uint16_t>(up ? low + 1 : low);
}

class Narrow : public ::testing::TestWithParam<Format> {};

TEST_P(Narrow, EveryPatternMeansWhatTheFormatSays) {
    const Format& format = GetParam();
    for (std::uint32_t pattern = 0; pattern <= 0xFFFF; ++pattern) {
        const auto bits = static_cast<std::uint16_t>(pattern);
        const double expected = meaning(format, pattern);
        const float got = format.widen(bits);
        double loaded = load_scalar(&bits, format.dtype);
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(got)) << pattern;
            ASSERT_TRUE(std::isnan(loaded)) << pattern;
            const std::uint16_t back = format.narrow(got);
            ASSERT_TRUE(std::isnan(format.widen(back))) << pattern;  // a NaN stays a NaN,
            ASSERT_EQ((back ^ pattern) & 0x8000U, 0U) << pattern;    // of the same sign
        } else {
            ASSERT_EQ(static_cast<double>(got), expected) << pattern;
            ASSERT_EQ(std::signbit(got), std::signbit(expected)) << pattern;
            ASSERT_EQ(loaded, expected) << pattern;
            ASSERT_EQ(format.narrow(got), bits) << pattern;  // there and back
            ASSERT_EQ(format.narrow_double(expected), bits) << pattern;
        }
    }
}

// Around every pattern: at it, just beside it, a quarter on, at the middle to the next, and just beside the middle.
TEST_P(Narrow, RoundsToNearestEven) {
    const Format& format = GetParam();
    const std::uint32_t infinity = static_cast<std::uint32_t>((1 << format.exponent_bits) - 1) << format.fraction_bits;
    for (std::uint32_t pattern = 0; pattern < infinity; ++pattern) {
        const double here = meaning(format, pattern);
        const double next =
            pattern + 1 < infinity ? meaning(format, pattern + 1) : 2.0 * here - meaning(format, pattern - 1);
        const double middle = 0.5 * (here + next);  // exact: one bit more than the format
        const double quarter = 0.5 * (here + middle);
        const double far = std::numeric_limits<double>::infinity();
        for (const double value : {here, std::nextafter(here, far), quarter, std::nextafter(middle, 0.0), middle,
                                   std::nextafter(middle, far)}) {
            const std::uint16_t expected = nearest(format, value);
            ASSERT_EQ(format.narrow_double(value), expected) << value;
            ASSERT_EQ(format.narrow_double(-value), expected | 0x8000U) << value;
            const auto single = static_cast<float>(value);  // may be another value: round that one
            const std::uint16_t from_single = nearest(format, static_cast<double>(single));
            ASSERT_EQ(format.narrow(single), from_single) << value;
            ASSERT_EQ(format.narrow(-single), from_single | 0x8000U) << value;
        }
        for (const float value : {std::nextafter(static_cast<float>(middle), 0.0F), static_cast<float>(middle),
                                  std::nextafter(static_cast<float>(middle), std::numeric_limits<float>::infinity())}) {
            ASSERT_EQ(format.narrow(value), nearest(format, static_cast<double>(value))) << value;
        }
    }
}

TEST_P(Narrow, OverflowIsInfinity) {
    const Format& format = GetParam();
    const auto infinity = static_cast<std::uint16_t>(((1 << format.exponent_bits) - 1) << format.fraction_bits);
    for (const double value : {1e300, std::numeric_limits<double>::max(), std::numeric_limits<double>::infinity()}) {
        EXPECT_EQ(format.narrow_double(value), infinity);
        EXPECT_EQ(format.narrow_double(-value), infinity | 0x8000U);
    }
    EXPECT_EQ(format.narrow(std::numeric_limits<float>::max()), infinity);
    EXPECT_EQ(format.narrow(std::numeric_limits<float>::infinity()), infinity);
}

INSTANTIATE_TEST_SUITE_P(Formats, Narrow, ::testing::ValuesIn(formats),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Dtype, RoundsADoubleOnce) {
    // 1 + 2^-8 + 2^-40: to f32 first it would lose the last term and then tie to even, down.
    EXPECT_EQ(f64_to_bf16(1.0 + 0x1p-8 + 0x1p-40), f32_to_bf16(1.0F + 0x1p-7F));
    EXPECT_EQ(f64_to_bf16(1.0 + 0x1p-8), f32_to_bf16(1.0F));
    EXPECT_EQ(f64_to_f16(1.0 + 0x1p-11 + 0x1p-40), f32_to_f16(1.0F + 0x1p-10F));
    // Just under half of the smallest subnormal is 0, half ties to 0, just over is the smallest.
    EXPECT_EQ(f64_to_f16(0x1p-25), 0);
    EXPECT_EQ(f64_to_f16(0x1p-25 + 0x1p-70), 1);
    EXPECT_EQ(f64_to_f16(1e-300), 0);
    EXPECT_EQ(f64_to_bf16(-1e-300), 0x8000);
}

TEST(Dtype, ScalarsOfEveryDtype) {
    std::byte bytes[8];
    struct Row {
        DType dtype;
        double given;
        double expected;
    };
    for (const Row& row :
         {Row{DType::f64, 0.1, 0.1}, Row{DType::f32, 0.1, static_cast<double>(0.1F)}, Row{DType::bf16, 3.14, 3.140625},
          Row{DType::f16, 3.14, 3.140625}, Row{DType::boolean, 7.0, 1.0}, Row{DType::boolean, 0.0, 0.0},
          Row{DType::u8, 200.0, 200.0}}) {
        store_scalar(bytes, row.dtype, row.given);
        EXPECT_EQ(load_scalar(bytes, row.dtype), row.expected) << name(row.dtype);
    }
    const std::uint8_t seven = 7;
    EXPECT_EQ(load_scalar(&seven, DType::boolean), 1.0);  // any non-zero byte is true
}

TEST(Dtype, SizesAndNames) {
    struct Row {
        DType dtype;
        std::int64_t bytes;
        const char* name;
    };
    for (const Row& row : {Row{DType::f64, 8, "f64"}, Row{DType::f32, 4, "f32"}, Row{DType::bf16, 2, "bf16"},
                           Row{DType::f16, 2, "f16"}, Row{DType::boolean, 1, "bool"}, Row{DType::u8, 1, "u8"}}) {
        EXPECT_EQ(size_of(row.dtype), row.bytes);
        EXPECT_EQ(name(row.dtype), row.name);
    }
}

}  // namespace
}  // namespace fascore
