// SPDX-License-Identifier: Apache-2.0
//
// dtype conversion, defined: scalar, constexpr, one function a pair. kernels/body/convert.h is the fast form and is
// tested equal to this on all 65,536 patterns.
//
//   bf16     1 sign, 8 exponent, 7 fraction     the upper half of an f32
//   f16      1 sign, 5 exponent, 10 fraction    IEEE binary16
//   f8e5m2   1 sign, 5 exponent, 2 fraction     the upper half of an f16; largest 57344
//   f8e4m3   1 sign, 4 exponent, 3 fraction     largest 448 = 0x7E; no infinity, 0x7F is the NaN
//
// Rounding is to nearest even. Overflow goes to infinity in the 16-bit types; in the 8-bit ones it saturates, infinity
// too: one has no infinity, and both alike is one rule less. A NaN stays a NaN (made quiet).
#pragma once

#include <bit>
#include <cstdint>

#include "fascore/tensor.h"

namespace fascore {

constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr std::uint16_t f32_to_bf16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float f16_to_f32(std::uint16_t bits) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t magnitude = bits & 0x7FFFU;
    if (magnitude >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
    if (magnitude >= 0x0400U) return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
    // Subnormal: fraction · 2^-24, exact in f32.
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

constexpr std::uint16_t f32_to_f16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x1FFU));
    if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // rounds to 65536 or more
    if (magnitude < 0x38800000U) {
        // Below 2^-14: adding 0.5 leaves fraction · 2^-24 in the low bits, rounded to nearest even by the adder.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
    }
    const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
    return static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
}

constexpr float f8e5m2_to_f32(std::uint8_t bits) noexcept {
    return f16_to_f32(static_cast<std::uint16_t>(static_cast<unsigned>(bits) << 8));
}

constexpr float f8e4m3_to_f32(std::uint8_t bits) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80U) << 24;
    const std::uint32_t magnitude = bits & 0x7FU;
    if (magnitude == 0x7FU) return std::bit_cast<float>(sign | 0x7FC00000U);
    if (magnitude >= 0x08U) return std::bit_cast<float>(sign | ((magnitude << 20) + (120U << 23)));
    // Subnormal: fraction · 2^-9.
    const float value = static_cast<float>(magnitude) * 0x1p-9F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

/// An 8-bit float in numbers: fraction bits, exponent bias, the code of its largest number and of its quiet NaN.
struct Float8 {
    std::uint32_t fraction;
    std::uint32_t bias;
    std::uint32_t largest;
    std::uint32_t quiet;
};
inline constexpr Float8 e4m3{3, 7, 0x7E, 0x7F};
inline constexpr Float8 e5m2{2, 15, 0x7B, 0x7E};

constexpr std::uint8_t f32_to_f8(float value, const Float8& type) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24) & 0x80U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return static_cast<std::uint8_t>(sign | type.quiet);
    const std::uint32_t cut = 23U - type.fraction;
    const std::uint32_t rebias = (127U - type.bias) << 23;
    if (magnitude < rebias + (1U << 23)) {
        // Subnormal: the ulp of 2^(24 − bias − fraction) is the type's smallest number, so the adder rounds to it.
        const std::uint32_t one = (127U + 24U - type.bias - type.fraction) << 23;
        const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(one);
        return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - one));
    }
    const std::uint32_t rounded = magnitude + ((1U << (cut - 1U)) - 1U) + ((magnitude >> cut) & 1U);
    const std::uint32_t code = (rounded - rebias) >> cut;
    return static_cast<std::uint8_t>(sign | (code < type.largest ? code : type.largest));
}

constexpr std::uint8_t f32_to_f8e4m3(float value) noexcept { return f32_to_f8(value, e4m3); }
constexpr std::uint8_t f32_to_f8e5m2(float value) noexcept { return f32_to_f8(value, e5m2); }

/// f8e4m3 or f8e5m2: a tensor of query, key, value or dy that comes with dequantisation factors.
constexpr bool is_8bit(DType dtype) noexcept { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

/// A double rounded once to a narrower type (via f32 it would be rounded twice).
std::uint16_t f64_to_bf16(double value) noexcept;
std::uint16_t f64_to_f16(double value) noexcept;
std::uint8_t f64_to_f8e4m3(double value) noexcept;
std::uint8_t f64_to_f8e5m2(double value) noexcept;

/// The number as f32 holds it. Not inline on purpose: GCC 12 drops the pair of conversions where it vectorises two of
/// them side by side (dtype_test.cpp would see it).
double narrowed_to_f32(double value) noexcept;

/// One element of any dtype; masks read as 0 or 1.
double load_scalar(const void* element, DType dtype) noexcept;
void store_scalar(void* element, DType dtype, double value) noexcept;

}  // namespace fascore
