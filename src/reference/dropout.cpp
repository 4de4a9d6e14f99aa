// SPDX-License-Identifier: Apache-2.0
//
// The formulas of dropout.h.
#include "reference/dropout.h"

namespace fascore::reference {

namespace {

std::int64_t up_to_16(std::int64_t columns) { return (columns + 15) / 16 * 16; }

// Elements of the batches before `b`, a row of S2 columns counted as row(S2).
template <class Row>
std::int64_t elements_before(const Problem& problem, const Batch& batch, Row row) {
    if (!problem.packed) return batch.index * problem.N1 * problem.S1 * row(problem.S2);
    std::int64_t elements = 0;
    for (std::int64_t b = 0; b < batch.index; ++b) {
        const Sequence& sequence = problem.sequences[static_cast<std::size_t>(b)];
        elements += problem.N1 * sequence.S1 * row(sequence.S2);
    }
    return elements;
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key, int rounds) {
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < rounds; ++round) {
        if (round > 0) {
            k0 += 0x9E3779B9U;
            k1 += 0xBB67AE85U;
        }
        const auto [c0, c1, c2, c3] = counter;
        const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * c0;
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * c2;
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0, static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1, static_cast<std::uint32_t>(product0)};
    }
    return counter;
}

Keep::Keep(const Problem& problem, const Batch& batch)
    : seed_(problem.stated.seed),
      first_block_(problem.stated.offset / 16 + (problem.stated.offset % 16 != 0 ? 1 : 0)),
      threshold_(static_cast<std::uint32_t>(static_cast<float>(problem.stated.keep_prob) * 255.0F)),
      bits_(problem.dropout.bits),
      generated_(problem.dropout.generated),
      before_(0),
      S1_(batch.S1),
      S2_(batch.S2),
      pitch_(generated_ ? up_to_16(batch.S2) : batch.S2) {
    before_ = generated_ ? elements_before(problem, batch, up_to_16)
                         : elements_before(problem, batch, [](std::int64_t columns) { return columns; });
}

void Keep::row(std::int64_t n, std::int64_t i, std::uint8_t* keep) const {
    const std::int64_t first = before_ + (n * S1_ + i) * pitch_;
    if (!generated_) {
        for (std::int64_t j = 0; j < S2_; ++j) {
            const std::int64_t e = first + j;
            keep[j] = (bits_[e / 8] >> (e % 8)) & 1U;
        }
        return;
    }
    for (std::int64_t j = 0; j < S2_; j += 16) {  // rows start at a whole block
        const std::uint64_t block = first_block_ + static_cast<std::uint64_t>((first + j) / 16);
        const std::array<std::uint32_t, 4> words =
            philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0U, 0U}, seed_, 7);
        for (std::int64_t t = 0; t < 16 && j + t < S2_; ++t) {
            const std::uint32_t byte = (words[static_cast<std::size_t>(t / 4)] >> (8 * (t % 4))) & 255U;
            keep[j + t] = byte <= threshold_ ? 1 : 0;
        }
    }
}

}  // namespace fascore::reference
