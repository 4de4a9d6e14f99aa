// SPDX-License-Identifier: Apache-2.0
//
// The reference's own dropout mask: bits of a tensor, or drawn from seed and offset.
//
//   external    keep = bit e mod 8 of byte ⌊e / 8⌋,  e = ((b·N1 + n)·S1 + i)·S2 + j
//   generated   keep = byte e ≤ trunc(f32(keep_prob) · 255),  e = ((b·N1 + n)·S1 + i)·A + j,  A = 16·⌈S2/16⌉
//   TND         what comes before batch b is Σ_{b'<b} N1·Sq_b'·Skv_b', or ·A_b', in place of b·N1·S1·S2
//
//   byte e = byte e mod 16 of Philox block ⌈offset/16⌉ + ⌊e / 16⌋. A block is four 32-bit words, lowest byte first:
//   the 128-bit counter (words c0 c1 c2 c3, lowest first) after 7 rounds with the 64-bit key (words k0 k1):
//
//     (hi0, lo0) = 0xD2511F53 · c0      c0' = hi1 ^ c1 ^ k0      c2' = hi0 ^ c3 ^ k1
//     (hi1, lo1) = 0xCD9E8D57 · c2      c1' = lo1                c3' = lo0
//     before every round but the first  k0 += 0x9E3779B9, k1 += 0xBB67AE85
//
// Shares nothing with base/philox.h and the engine, so that a mistake in either shows as a difference.
#pragma once

#include <array>
#include <cstdint>

#include "problem/problem.h"

namespace fascore::reference {

/// The block of a counter whose upper 64 bits are 0. Ten rounds are the published generator, the operator takes 7.
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key, int rounds);

/// The kept columns of a batch, row by row.
class Keep {
  public:
    Keep(const Problem& problem, const Batch& batch);
    /// keep[j] = 1 or 0 for 0 ≤ j < S2.
    void row(std::int64_t n, std::int64_t i, std::uint8_t* keep) const;

  private:
    std::uint64_t seed_;
    std::uint64_t first_block_;
    std::uint32_t threshold_;
    const std::uint8_t* bits_;
    bool generated_;
    std::int64_t before_;  // elements of the batches before this one
    std::int64_t S1_;
    std::int64_t S2_;
    std::int64_t pitch_;
};

}  // namespace fascore::reference
