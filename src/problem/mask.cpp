// SPDX-License-Identifier: Apache-2.0
//
// The table of bands (δ = S2 − S1; a missing limit is ∓(S1 + S2), which no pair reaches):
//
//   from                        lower ≤ j − i     j − i ≤ upper     prefix
//   sparse_mode 0               −pre              next              0            ┐
//   sparse_mode 1, 5            –                 –                 0            │
//   sparse_mode 2               –                 0                 0            │
//   sparse_mode 3               –                 δ                 0            │ only when an atten_mask is given
//   sparse_mode 4               δ − pre           δ + next          0            │
//   sparse_mode 6               –                 δ                 prefix[b]    │
//   sparse_mode 7               as 4 in the cut sequence, else as 3              │
//   sparse_mode 8               as 4 in the cut sequence, else as 2              ┘
//   rule causal_top_left        –                 0
//   rule causal_bottom_right    –                 δ
//   rule window                 δ − left          δ + right         each unless −1
//
// A pair must pass both halves: lower is the larger lower limit; cap, which holds before the prefix too, is the upper
// limit of the rule; upper is the smaller of both.
#include "problem/mask.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fascore {

namespace {

// Tokens and window bounds saturate here: beyond any length, and far from the ends of an int64.
std::int64_t saturate(std::int64_t tokens) { return std::clamp(tokens, -unlimited_tokens, unlimited_tokens); }

// The sparse mode of one batch.
int mode_of(int sparse_mode, bool is_cut) {
    switch (sparse_mode) {
        case 7: return is_cut ? 4 : 3;
        case 8: return is_cut ? 4 : 2;
        default: return sparse_mode;
    }
}

// Σ_{i < rows} clamp(i + shift, 0, limit): zeros, then an arithmetic series, then limits.
std::int64_t clamped_sum(std::int64_t rows, std::int64_t shift, std::int64_t limit) {
    const std::int64_t rising = std::clamp(-shift, std::int64_t{0}, rows);  // first i with i + shift ≥ 0
    const std::int64_t flat = std::clamp(limit - shift, rising, rows);      // first i with i + shift ≥ limit
    const std::int64_t series = (flat - rising) * (rising + flat - 1 + 2 * shift) / 2;
    return series + (rows - flat) * limit;
}

// Pairs of lower ≤ j − i ≤ upper, i < S1, j < S2: row i sees clamp(i + upper + 1) − clamp(i + lower) columns.
std::int64_t pairs_between(std::int64_t lower, std::int64_t upper, std::int64_t S1, std::int64_t S2) {
    if (lower > upper || S2 <= 0) return 0;
    return clamped_sum(S1, upper + 1, S2) - clamped_sum(S1, lower, S2);
}

// Some pair of rows × columns has lower ≤ j − i ≤ upper: j − i takes every value from its smallest (bottom left corner)
// to its largest (top right one).
bool touches(std::int64_t lower, std::int64_t upper, Range rows, Range columns) {
    if (columns.empty()) return false;
    const std::int64_t smallest = columns.begin - (rows.end - 1);
    const std::int64_t largest = (columns.end - 1) - rows.begin;
    return std::max(lower, smallest) <= std::min(upper, largest);
}

// One past the last column row i sees, not clamped to the matrix.
std::int64_t end_of_row(const Band& band, std::int64_t i) {
    const std::int64_t end = i + band.upper + 1;
    return band.prefix == 0 ? end : std::max(end, std::min(i + band.cap + 1, band.prefix));
}

// One row of a tile as its words, from the columns it sees: 64 bits at a time, since a narrow band has a mask to make
// for most of its tiles.
void put_row(Range visible, std::uint16_t* words, std::int64_t row_words) {
    constexpr std::int64_t piece = 64;
    const auto low = [](std::int64_t count) {
        return count >= piece ? ~std::uint64_t{0} : (std::uint64_t{1} << std::max<std::int64_t>(count, 0)) - 1;
    };
    for (std::int64_t word = 0; word < row_words; word += piece / granule) {
        const std::int64_t first = word * granule;
        std::uint64_t bits = low(visible.end - first) & ~low(visible.begin - first);
        for (std::int64_t w = word; w < std::min(word + piece / granule, row_words); ++w, bits >>= granule) {
            words[w] = static_cast<std::uint16_t>(bits);
        }
    }
}

// Bit k of the result = byte k of `bytes` is zero (visible). In three steps:
//   adding 0x7F to a byte's low 7 bits carries into its top bit unless they are all 0; or-ing the byte itself adds its
//   own top bit: now each byte's bit 7 says "non-zero"; shifted down it stands at bit 8k;
//   the product by Σ_m 2^(56 − 7m) moves bit 8k to 56 + k (m = k) without any two terms meeting
//   (8k − 7m = 8k' − 7m' asks that 8 divide m − m'), so nothing carries, and the top byte is the answer.
std::uint32_t zero_bytes(std::uint64_t bytes) {
    constexpr std::uint64_t low7 = 0x7F7F7F7F7F7F7F7FU;
    constexpr std::uint64_t gather = 0x0102040810204080U;
    const std::uint64_t non_zero = ((((bytes & low7) + low7) | bytes) & ~low7) >> 7;
    return static_cast<std::uint32_t>((non_zero * gather) >> 56) ^ 0xFFU;
}

// Visibility of `count` ≤ 16 neighbouring mask bytes `stride` apart. Never reads beyond them.
std::uint32_t mask_bits(const std::uint8_t* mask, std::int64_t stride, std::int64_t count) {
    std::uint32_t bits = 0;
    std::int64_t c = 0;
    if constexpr (std::endian::native == std::endian::little) {
        if (stride == 1) {
            for (; c + 8 <= count; c += 8) {
                std::uint64_t bytes = 0;
                std::memcpy(&bytes, mask + c, sizeof bytes);
                bits |= zero_bytes(bytes) << c;
            }
        }
    }
    for (; c < count; ++c) bits |= static_cast<std::uint32_t>(mask[c * stride] == 0) << c;
    return bits;
}

}  // namespace

Band make_band(const AttentionParams& stated, bool mask_given, std::int64_t S1, std::int64_t S2, std::int64_t b,
               std::int64_t cut) {
    const std::int64_t limit = S1 + S2;
    const std::int64_t delta = S2 - S1;
    Band rule{-limit, limit, 0, 0};
    switch (stated.rule.kind) {
        case MaskRule::Kind::none: break;
        case MaskRule::Kind::causal_top_left: rule.upper = 0; break;
        case MaskRule::Kind::causal_bottom_right: rule.upper = delta; break;
        case MaskRule::Kind::window:
            if (stated.rule.left >= 0) rule.lower = delta - saturate(stated.rule.left);
            if (stated.rule.right >= 0) rule.upper = delta + saturate(stated.rule.right);
            break;
    }
    Band mode{-limit, limit, 0, 0};
    if (mask_given) {
        const std::int64_t pre = saturate(stated.pre_tokens);
        const std::int64_t next = saturate(stated.next_tokens);
        switch (mode_of(stated.sparse_mode, b == cut)) {
            case 0: mode = {-pre, next, 0, 0}; break;
            case 2: mode.upper = 0; break;
            case 3: mode.upper = delta; break;
            case 4: mode = {delta - pre, delta + next, 0, 0}; break;
            case 6:
                mode.upper = delta;
                mode.prefix = std::clamp(stated.prefix[static_cast<std::size_t>(b)], std::int64_t{0}, S2);
                break;
            default: break;
        }
    }
    return {std::clamp(std::max(rule.lower, mode.lower), -limit, limit),
            std::clamp(std::min(rule.upper, mode.upper), -limit, limit), mode.prefix,
            std::clamp(mode.prefix > 0 ? rule.upper : std::min(rule.upper, mode.upper), -limit, limit)};
}

Range visible_columns(const Band& band, std::int64_t i, std::int64_t S2) {
    const std::int64_t begin = std::clamp(i + band.lower, std::int64_t{0}, S2);
    return {begin, std::max(begin, std::clamp(end_of_row(band, i), std::int64_t{0}, S2))};
}

Range visible_rows(const Band& band, std::int64_t j, std::int64_t S1) {
    const std::int64_t begin = std::clamp(j - (j < band.prefix ? band.cap : band.upper), std::int64_t{0}, S1);
    return {begin, std::max(begin, std::clamp(j - band.lower + 1, std::int64_t{0}, S1))};
}

Range live_rows(const Band& band, std::int64_t S1, std::int64_t S2) {
    if (S2 == 0) return {};
    // Row i sees something when its first column lies before the last of the matrix (or of the prefix) and its last one
    // not before 0: [−upper, S2 − lower), [−cap, prefix − lower). Where both exist, −upper ≤ prefix − lower: no gap.
    const bool plain = band.lower <= band.upper;
    const bool prefixed = band.prefix > 0 && band.lower <= band.cap;
    if (!plain && !prefixed) return {};
    const std::int64_t first = prefixed ? -band.cap : -band.upper;
    const std::int64_t last = plain ? S2 - band.lower : band.prefix - band.lower;
    const std::int64_t begin = std::clamp(first, std::int64_t{0}, S1);
    return {begin, std::max(begin, std::clamp(last, std::int64_t{0}, S1))};
}

Range live_columns(const Band& band, std::int64_t S1, std::int64_t S2) {
    if (S1 == 0) return {};
    // Both bands begin at column `lower`; they end below the last row, the prefixed one at the prefix too.
    std::int64_t end = 0;
    if (band.lower <= band.upper) end = S1 + band.upper;
    if (band.prefix > 0 && band.lower <= band.cap) end = std::max(end, std::min(S1 + band.cap, band.prefix));
    const std::int64_t begin = std::clamp(band.lower, std::int64_t{0}, S2);
    return {begin, std::max(begin, std::clamp(end, std::int64_t{0}, S2))};
}

TileClass classify(const Band& band, Range rows, Range columns) {
    if (rows.empty() || columns.empty()) return TileClass::empty;
    const Range prefixed{columns.begin, std::min(columns.end, band.prefix)};
    if (!touches(band.lower, band.upper, rows, columns) && !touches(band.lower, band.cap, rows, prefixed)) {
        return TileClass::empty;
    }
    // Both ends of a row never fall: the last row has the last begin, the first row the first end.
    const bool full = rows.end - 1 + band.lower <= columns.begin && columns.end <= end_of_row(band, rows.begin);
    return full ? TileClass::full : TileClass::partial;
}

double visible_pairs(const Band& band, std::int64_t S1, std::int64_t S2) {
    const std::int64_t plain = pairs_between(band.lower, band.upper, S1, S2);
    const std::int64_t beyond = std::max(band.lower, band.upper + 1);  // what only the prefix lets through
    return static_cast<double>(plain + (band.prefix > 0 ? pairs_between(beyond, band.cap, S1, band.prefix) : 0));
}

TileClass fill_tile(const Batch& batch, std::int64_t n, Range rows, Range columns, std::uint16_t* words,
                    std::int64_t row_words) {
    const MaskTensor& mask = batch.mask;
    const std::int64_t width = columns.size();
    bool seen_any = false;
    bool hidden_any = false;
    for (std::int64_t i = rows.begin; i < rows.end; ++i, words += row_words) {
        const Range visible = visible_columns(batch.band, i, batch.S2);
        const Range here{std::clamp(visible.begin - columns.begin, std::int64_t{0}, width),
                         std::clamp(visible.end - columns.begin, std::int64_t{0}, width)};
        put_row(here, words, row_words);
        hidden_any = hidden_any || here.size() < width;
        if (here.empty()) continue;
        if (!mask.present) {
            seen_any = true;
            continue;
        }
        // What the band hides is not read: a mask tile costs by its visible part.
        for (std::int64_t word = here.begin / granule; word * granule < here.end; ++word) {
            const std::int64_t left = word * granule;
            const std::int64_t count = std::min(width - left, std::int64_t{granule});
            const std::uint8_t* bytes = address(mask, n, i, columns.begin + left);
            const std::uint32_t bits = words[word] & mask_bits(bytes, mask.stride_j, count);
            hidden_any = hidden_any || bits != words[word];
            seen_any = seen_any || bits != 0;
            words[word] = static_cast<std::uint16_t>(bits);
        }
    }
    if (!seen_any) return TileClass::empty;
    return hidden_any ? TileClass::partial : TileClass::full;
}

}  // namespace fascore
