// SPDX-License-Identifier: Apache-2.0
//
// Seeded normal data, the same values on every platform, in any order of asking.
//
//   word(k)     = mix(start + (k + 1)·γ)           SplitMix64 read at position k; start = mix(seed + (stream + 1)·γ)
//   normal(2k)   = r·cos(2πu)     normal(2k + 1) = r·sin(2πu)      Box-Muller on the words 2k and 2k + 1:
//   r = √(−2 ln v),  v = (word(2k)>>11 + 1)·2⁻⁵³ ∈ (0, 1],  u = (word(2k+1)>>11)·2⁻⁵³ ∈ [0, 1)
//
// Why not <random>: std::normal_distribution is different in each standard library, and ln and cos differ in the last
// bit between C libraries. So the logarithm and the circle are evaluated here with +, ·, / and √ alone, which IEEE 754
// fixes to the bit (this file is compiled with -ffp-contract=off so that no compiler fuses them). Their error, below
// 1e-13, does not matter to test data; that it is the same everywhere does.
//
// A counter instead of a running state lets the same element have the same value in every layout.
#pragma once

#include <cstdint>

namespace fascore::cli {

class NormalStream {
  public:
    NormalStream(std::uint64_t seed, std::uint64_t stream) noexcept;

    /// The standard normal value with this number, any number in any order.
    [[nodiscard]] double at(std::uint64_t index) const noexcept;

    /// Both values of a pair: numbers 2·pair and 2·pair + 1, at the cost of one.
    void pair(std::uint64_t pair, double& even, double& odd) const noexcept;

    /// 64 random bits: word(index) above.
    [[nodiscard]] std::uint64_t word(std::uint64_t index) const noexcept;

  private:
    std::uint64_t start_;
};

}  // namespace fascore::cli
