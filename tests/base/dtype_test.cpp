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

// ---- 8 bits --------------------------------------------------------------------------------------------------------

struct Format8 {
    const char* name;
    DType dtype;
    int exponent_bits;
    int fraction_bits;
    int largest;  // pattern of the largest number
    float (*widen)(std::uint8_t);
    std::uint8_t (*narrow)(float);
    std::uint8_t (*narrow_double)(double);
};

const Format8 formats8[] = {
    {"f8e4m3", DType::f8e4m3, 4, 3, 0x7E, f8e4m3_to_f32, f32_to_f8e4m3, f64_to_f8e4m3},
    {"f8e5m2", DType::f8e5m2, 5, 2, 0x7B, f8e5m2_to_f32, f32_to_f8e5m2, f64_to_f8e5m2},
};

// The value of a pattern below the sign bit, by definition; what lies beyond the largest is said by hand.
double meaning(const Format8& format, int pattern) {
    if (pattern > format.largest) {
        return format.dtype == DType::f8e5m2 && pattern == 0x7C ? std::numeric_limits<double>::infinity()
                                                                : std::nan("");
    }
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const int exponent = pattern >> format.fraction_bits;
    const int fraction = pattern & ((1 << format.fraction_bits) - 1);
    if (exponent == 0) return std::ldexp(fraction, 1 - bias - format.fraction_bits);
    return std::ldexp((1 << format.fraction_bits) + fraction, exponent - bias - format.fraction_bits);
}

class Eight : public ::testing::TestWithParam<Format8> {};

TEST_P(Eight, EveryPatternMeansWhatTheFormatSays) {
    const Format8& format = GetParam();
    for (int pattern = 0; pattern <= 0xFF; ++pattern) {
        const auto bits = static_cast<std::uint8_t>(pattern);
        const double magnitude = meaning(format, pattern & 0x7F);
        const double expected = (pattern & 0x80) != 0 ? -magnitude : magnitude;
        const float got = format.widen(bits);
        EXPECT_EQ(std::signbit(got), (pattern & 0x80) != 0) << pattern;
        if (std::isnan(magnitude)) {
            EXPECT_TRUE(std::isnan(got)) << pattern;
            EXPECT_TRUE(std::isnan(format.widen(format.narrow(got)))) << pattern;
            EXPECT_EQ(format.narrow(got) & 0x80, pattern & 0x80) << pattern;
            EXPECT_TRUE(std::isnan(load_scalar(&bits, format.dtype))) << pattern;
            continue;
        }
        EXPECT_EQ(static_cast<double>(got), expected) << pattern;
        EXPECT_EQ(load_scalar(&bits, format.dtype), expected) << pattern;
        std::uint8_t stored = 0x55;
        store_scalar(&stored, format.dtype, expected);
        const int back = std::isinf(magnitude) ? (pattern & 0x80) | format.largest : pattern;
        EXPECT_EQ(stored, back) << pattern;
        EXPECT_EQ(format.narrow(got), back) << pattern;
    }
    EXPECT_EQ(meaning(format, format.largest), format.dtype == DType::f8e4m3 ? 448.0 : 57344.0);
}

// By search among all numbers of the format: the nearest, and of two equally near the one with an even pattern.
TEST_P(Eight, RoundsToNearestEvenAndSaturates) {
    const Format8& format = GetParam();
    const auto nearest = [&](double value) {
        int best = 0;
        for (int pattern = 1; pattern <= format.largest; ++pattern) {
            const double here = std::fabs(meaning(format, pattern) - value);
            const double there = std::fabs(meaning(format, best) - value);
            if (here < there || (here == there && pattern % 2 == 0)) best = pattern;
        }
        return best;
    };
    const double far = std::numeric_limits<double>::infinity();
    for (int pattern = 0; pattern < format.largest; ++pattern) {
        const double here = meaning(format, pattern);
        const double middle = 0.5 * (here + meaning(format, pattern + 1));
        for (const double value : {here, std::nextafter(here, far), 0.5 * (here + middle), std::nextafter(middle, 0.0),
                                   middle, std::nextafter(middle, far)}) {
            ASSERT_EQ(format.narrow_double(value), nearest(value)) << value;
            ASSERT_EQ(format.narrow_double(-value), nearest(value) | 0x80) << value;
        }
        const auto single = static_cast<float>(middle);  // exact
        for (const float value :
             {std::nextafter(single, 0.0F), single, std::nextafter(single, std::numeric_limits<float>::infinity())}) {
            ASSERT_EQ(format.narrow(value), nearest(static_cast<double>(value))) << value;
            ASSERT_EQ(format.narrow(-value), nearest(static_cast<double>(value)) | 0x80) << value;
        }
    }
    const double largest = meaning(format, format.largest);
    for (const double value : {largest * 1.01, largest * 1.5, 1e30, std::numeric_limits<double>::max(), far}) {
        EXPECT_EQ(format.narrow_double(value), format.largest) << value;
        EXPECT_EQ(format.narrow_double(-value), format.largest | 0x80) << value;
        EXPECT_EQ(format.narrow(static_cast<float>(value)), format.largest) << value;
    }
    EXPECT_EQ(format.narrow(std::numeric_limits<float>::denorm_min()), 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, Eight, ::testing::ValuesIn(formats8),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Dtype, NarrowsToF32) {
    struct Two {
        double a, b;
    };
    const auto narrow = [](const Two& wide) { return Two{narrowed_to_f32(wide.a), narrowed_to_f32(wide.b)}; };
    const Two narrow_pair = narrow({0.1, 1e300});
    EXPECT_EQ(narrow_pair.a, static_cast<double>(0.1F));
    EXPECT_EQ(narrow_pair.b, std::numeric_limits<double>::infinity());
}

TEST(Dtype, EightBitExamples) {
    // A block that holds 0.75, -0.3, 0.01, 0, stored with its largest number at 448 or 57344.
    EXPECT_EQ(f8e4m3_to_f32(f32_to_f8e4m3(-0.3F * (448.0F / 0.75F))), -176.0F);
    EXPECT_EQ(f8e4m3_to_f32(f32_to_f8e4m3(0.01F * (448.0F / 0.75F))), 6.0F);
    EXPECT_EQ(f8e5m2_to_f32(f32_to_f8e5m2(-0.3F * (57344.0F / 0.75F))), -24576.0F);
    EXPECT_EQ(f8e5m2_to_f32(f32_to_f8e5m2(0.01F * (57344.0F / 0.75F))), 768.0F);
    struct Row {
        float given, e4m3, e5m2;
    };
    for (const Row& row :
         {Row{0.3F, 0.3125F, 0.3125F}, Row{1.0F / 3.0F, 0.34375F, 0.3125F}, Row{0.1F, 0.1015625F, 0.09375F},
          Row{0.001F, 0x1p-9F, 0x1p-10F}, Row{0x1p-10F, 0.0F, 0x1p-10F}, Row{0x1p-17F, 0.0F, 0.0F}}) {
        EXPECT_EQ(f8e4m3_to_f32(f32_to_f8e4m3(row.given)), row.e4m3) << row.given;
        EXPECT_EQ(f8e5m2_to_f32(f32_to_f8e5m2(row.given)), row.e5m2) << row.given;
    }
    static_assert(f8e4m3_to_f32(0x7E) == 448.0F && f8e5m2_to_f32(0x7B) == 57344.0F && f32_to_f8e4m3(1.0F) == 0x38);
}

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
    // Half of a step and a little, lost in f32.
    EXPECT_EQ(f64_to_f8e4m3(1.0 + 0x1p-4 + 0x1p-40), f32_to_f8e4m3(1.125F));
    EXPECT_EQ(f64_to_f8e5m2(1.0 + 0x1p-3 + 0x1p-40), f32_to_f8e5m2(1.25F));
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
          Row{DType::u8, 200.0, 200.0}, Row{DType::f8e4m3, 3.14, 3.25}, Row{DType::f8e5m2, 3.14, 3.0}}) {
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
                           Row{DType::f16, 2, "f16"}, Row{DType::boolean, 1, "bool"}, Row{DType::u8, 1, "u8"},
                           Row{DType::f8e4m3, 1, "f8e4m3"}, Row{DType::f8e5m2, 1, "f8e5m2"}}) {
        EXPECT_EQ(size_of(row.dtype), row.bytes);
        EXPECT_EQ(name(row.dtype), row.name);
    }
}

}  // namespace
}  // namespace fascore
