// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32 with 7 rounds: the stream of bytes that dropout draws from (fascore/dropout.h). A block of 16 bytes is a
// function of its number and the key alone, so any tile can be drawn on its own.
//
//        c0          c1          c2          c3          four 32-bit words, the block's number lowest word first
//         │           │           │           │
//     ×D2511F53       │       ×CD9E8D57       │          each product 64 bits: high, low
//      hi0  lo0       │        hi1  lo1       │
//         │           │           │           │
//   hi1^c1^k0        lo1     hi0^c3^k1       lo0         one round; between rounds k0 += 9E3779B9, k1 += BB67AE85
//
// The reference has a generator of its own (reference/dropout.cpp).
#pragma once

#include <array>
#include <cstdint>

namespace fascore {

/// The four words of block `number` (a 128-bit counter whose upper half is 0) under a key. The bytes of the block are
/// those of the words, lowest first.
constexpr std::array<std::uint32_t, 4> philox_block(std::uint64_t key, std::uint64_t number) noexcept {
    constexpr int rounds = 7;
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32);
    auto c0 = static_cast<std::uint32_t>(number);
    auto c1 = static_cast<std::uint32_t>(number >> 32);
    std::uint32_t c2 = 0;
    std::uint32_t c3 = 0;
    for (int round = 0; round < rounds; ++round) {
        const std::uint64_t first = std::uint64_t{0xD2511F53U} * c0;
        const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * c2;
        c0 = static_cast<std::uint32_t>(second >> 32) ^ c1 ^ k0;
        c1 = static_cast<std::uint32_t>(second);
        c2 = static_cast<std::uint32_t>(first >> 32) ^ c3 ^ k1;
        c3 = static_cast<std::uint32_t>(first);
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return {c0, c1, c2, c3};
}

/// Byte t of a block.
constexpr std::uint8_t philox_byte(const std::array<std::uint32_t, 4>& block, int t) noexcept {
    return static_cast<std::uint8_t>(block[static_cast<std::size_t>(t) / 4] >> (8 * (t % 4)));
}

/// The stream of an offset starts at this block: ⌈offset / 16⌉.
constexpr std::uint64_t dropout_block(std::uint64_t offset) noexcept {
    return offset / 16 + (offset % 16 != 0 ? 1 : 0);
}

/// A byte up to this keeps its element: trunc(keep_prob · 255), the product in f32.
constexpr std::uint32_t dropout_threshold(double keep_prob) noexcept {
    return static_cast<std::uint32_t>(static_cast<float>(keep_prob) * 255.0F);
}

}  // namespace fascore
