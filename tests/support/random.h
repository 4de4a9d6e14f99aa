// SPDX-License-Identifier: Apache-2.0
//
// Random test data that is the same on every machine and with every standard library: a 64-bit mixing generator (one
// addition, three xor-shifts, two multiplications a draw) and Box-Muller for normal numbers. std::normal_distribution
// would differ between libraries, and then a seed printed by one machine would not repeat on another.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace fascore::test {

class Random {
  public:
    explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

    /// 64 random bits.
    [[nodiscard]] std::uint64_t bits() noexcept {
        state_ += 0x9E3779B97F4A7C15U;
        std::uint64_t x = state_;
        x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
        x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
        return x ^ (x >> 31U);
    }

    /// In [0, 1), 53 bits.
    [[nodiscard]] double uniform() noexcept { return static_cast<double>(bits() >> 11U) * 0x1p-53; }

    [[nodiscard]] double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }

    /// Standard normal.
    [[nodiscard]] double normal() noexcept {
        const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
        return radius * std::cos(2.0 * std::numbers::pi * uniform());
    }

    /// 0 … limit − 1.
    [[nodiscard]] std::int64_t below(std::int64_t limit) noexcept {
        return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(limit));
    }

  private:
    std::uint64_t state_;
};

/// A seed made from a name, so that every row of a table has data of its own (FNV-1a).
[[nodiscard]] constexpr std::uint64_t seed_of(std::string_view text) noexcept {
    std::uint64_t hash = 0xCBF29CE484222325U;
    for (const char letter : text) hash = (hash ^ static_cast<std::uint8_t>(letter)) * 0x100000001B3U;
    return hash;
}

}  // namespace fascore::test
