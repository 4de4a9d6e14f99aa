// SPDX-License-Identifier: Apache-2.0
//
// dtype conversion, defined: scalar, constexpr, one function a pair. kernels/body/convert.h is the fast form and is
// tested equal to this on all 65,536 patterns.
//
//   bf16   1 sign, 8 exponent, 7 fraction     the upper half of an f32
//   f16    1 sign, 5 exponent, 10 fraction    IEEE binary16
//
// Rounding is to nearest even; overflow goes to infinity; a NaN stays a NaN (made quiet).
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

/// A double rounded once to bf16 or f16 (via f32 it would be rounded twice).
std::uint16_t f64_to_bf16(double value) noexcept;
std::uint16_t f64_to_f16(double value) noexcept;

/// One element of any dtype; masks read as 0 or 1.
double load_scalar(const void* element, DType dtype) noexcept;
void store_scalar(void* element, DType dtype, double value) noexcept;

}  // namespace fascore
