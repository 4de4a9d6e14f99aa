// SPDX-License-Identifier: Apache-2.0
//
// bf16 is the upper half of an f32: sign, 8 exponent bits, 7 mantissa bits.
#pragma once

#include <bit>

#include "common.h"

namespace char_lm {

/// Nearest, ties to even. Adding 0x7FFF, plus one when the kept part is odd, carries into it exactly when it must.
/// The values here are finite; a NaN would need a case of its own.
inline std::uint16_t round_to_bf16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// Exact.
inline float widen_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

template <class Real>
void to_bf16(const Real* from, Index count, std::uint16_t* to) {
    parallel_ranges(count, elements_per_task, [&](Index first, Index last) {
        for (Index i = first; i < last; ++i) to[i] = round_to_bf16(static_cast<float>(from[i]));
    });
}

template <class Real>
void from_bf16(const std::uint16_t* from, Index count, Real* to) {
    parallel_ranges(count, elements_per_task, [&](Index first, Index last) {
        for (Index i = first; i < last; ++i) to[i] = static_cast<Real>(widen_bf16(from[i]));
    });
}

}  // namespace char_lm
