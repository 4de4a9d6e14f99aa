// SPDX-License-Identifier: Apache-2.0
//
// Dropout bits of a tile. A word covers 16 neighbouring columns of a row; a block of the generator is 16 bytes: one
// block a word, so any tile can be made on its own and nothing is stored.
//
//   block (c0 c1 c2 c3), key (k0 k1), 7 rounds:
//     (hi0, lo0) = 0xD2511F53 · c0     (hi1, lo1) = 0xCD9E8D57 · c2
//     c = (hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0)          k0 += 0x9E3779B9, k1 += 0xBB67AE85 between rounds
//   byte t of the block is (c[t / 4] >> 8·(t mod 4)) & 255; kept when ≤ threshold
//
// Blocks go through the rounds 16 at a time in plain loops, which compile to each ISA's vectors.

constexpr int blocks_at_once = 16;

inline void philox_blocks(std::uint64_t counter, std::uint64_t seed, std::uint32_t (&c)[4][blocks_at_once]) {
    for (int i = 0; i < blocks_at_once; ++i) {
        const std::uint64_t number = counter + static_cast<std::uint64_t>(i);
        c[0][i] = static_cast<std::uint32_t>(number);
        c[1][i] = static_cast<std::uint32_t>(number >> 32);
        c[2][i] = number < counter ? 1 : 0;
        c[3][i] = 0;
    }
    auto k0 = static_cast<std::uint32_t>(seed);
    auto k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 7; ++round) {
        for (int i = 0; i < blocks_at_once; ++i) {
            const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c[0][i];
            const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c[2][i];
            c[0][i] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1][i] ^ k0;
            c[1][i] = static_cast<std::uint32_t>(p1);
            c[2][i] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3][i] ^ k1;
            c[3][i] = static_cast<std::uint32_t>(p0);
        }
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
}

// Bit k = byte k of `bytes` is at most the byte that `limit` repeats. Per byte: with unequal top bits the limit's
// decides; with equal ones (limit | 0x80) − (byte & 0x7F) keeps its top bit exactly when the lower 7 bits fit. The
// product gathers the eight answers, each at bit 8k after the shift, into the top byte (problem/mask.cpp says why
// nothing carries).
inline std::uint32_t bytes_up_to(std::uint64_t bytes, std::uint64_t limit) {
    constexpr std::uint64_t top = 0x8080808080808080U;
    const std::uint64_t fits = (limit | top) - (bytes & ~top);
    const std::uint64_t answer = ((limit & ~bytes) | (~(limit ^ bytes) & fits)) & top;
    return static_cast<std::uint32_t>(((answer >> 7) * 0x0102040810204080U) >> 56);
}

inline std::uint16_t external_word(const std::uint8_t* bits, std::int64_t first, std::int64_t count) {
    std::uint32_t word = 0;
    const std::int64_t last = first + count - 1;  // no byte beyond the last bit is read
    for (std::int64_t byte = first / 8; byte <= last / 8; ++byte) {
        const std::int64_t shift = byte * 8 - first;
        const auto value = static_cast<std::uint32_t>(bits[byte]);
        word |= shift >= 0 ? value << shift : value >> -shift;
    }
    return static_cast<std::uint16_t>(word);
}

inline void keep_words(const KeepArgs& args) {
    const std::int64_t words = (args.columns + 15) / 16;
    const std::uint64_t limit = std::uint64_t{args.threshold} * 0x0101010101010101U;
    for (std::int64_t r = 0; r < args.rows; ++r) {
        std::uint16_t* row = args.words + r * args.row_words;
        const std::int64_t first = args.first + r * args.pitch;
        if (args.bits != nullptr) {
            for (std::int64_t w = 0; w < words; ++w) {
                const std::int64_t left = args.columns - 16 * w;
                row[w] = external_word(args.bits, first + 16 * w, left < 16 ? left : 16);
            }
            continue;
        }
        for (std::int64_t w = 0; w < words; w += blocks_at_once) {
            std::uint32_t c[4][blocks_at_once];
            philox_blocks(args.block + static_cast<std::uint64_t>(first / 16 + w), args.seed, c);
            for (std::int64_t i = 0; i < blocks_at_once && w + i < words; ++i) {
                const std::uint64_t low = c[0][i] | static_cast<std::uint64_t>(c[1][i]) << 32;
                const std::uint64_t high = c[2][i] | static_cast<std::uint64_t>(c[3][i]) << 32;
                row[w + i] = static_cast<std::uint16_t>(bytes_up_to(low, limit) | bytes_up_to(high, limit) << 8);
            }
        }
    }
}
