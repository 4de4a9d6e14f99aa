// SPDX-License-Identifier: Apache-2.0
//
// What differs from batch to batch: the sequences of a packed call, and the bands.
//
//   actual_seq_qlen   {2, 5, 5, 0}    cumulative ends; a 0 after the first entry: batches that are not there
//   lengths            2  3  0  –
//   rows              |q q|q q q|. .  T may be more than the rows in use
//
// Only those tokens are refused that nobody's reading of the operator allows. A band that misses the matrix is defined:
// its rows see nothing.
#include <algorithm>

#include "problem/mask.h"
#include "problem/rules.h"

namespace fascore {

namespace {

using Ends = std::span<const std::int64_t>;

constexpr std::int64_t most_sequences = 20000;
constexpr std::int64_t most_prefixes = 2048;         // 2K
constexpr std::int64_t most_packed_prefixes = 1024;  // 1K

std::string entry(std::size_t b) { return "entry " + text(static_cast<std::int64_t>(b)); }

Status ends_rule(std::string_view parameter, Ends ends, std::int64_t rows, const char* owner) {
    std::int64_t last = 0;
    for (std::size_t b = 0; b < ends.size(); ++b) {
        const std::string_view who = parameter;
        const std::int64_t end = ends[b];
        if (end < 0) return refuse(who, entry(b) + " is " + text(end), "must be 0 or more");
        const std::int64_t before = b == 0 ? 0 : ends[b - 1];
        if (before == 0 && last > 0 && end != 0) {
            return refuse(who, entry(b) + " is " + text(end), "must be 0 after " + entry(b - 1) + ", which is 0");
        }
        if (end < before && end != 0) {
            return refuse(who, entry(b) + " is " + text(end),
                          "must be at least " + entry(b - 1) + "'s " + text(before) + ", or 0 (not there)");
        }
        last = std::max(last, end);
    }
    if (last > rows) {
        return refuse(parameter, "ends at " + text(last), std::string("must be at most ") + owner + "'s " + text(rows));
    }
    return {};
}

std::int64_t length(Ends ends, std::size_t b) {
    return std::max(std::int64_t{0}, ends[b] - (b == 0 ? 0 : ends[b - 1]));
}

Status token_rules(const Call& call) {
    const AttentionParams& params = call.params;
    const int mode = params.sparse_mode;
    if (mode != 0 && mode != 4 && mode != 7 && mode != 8) return {};
    const std::int64_t pre = params.pre_tokens;
    const std::int64_t next = params.next_tokens;
    const auto refused = [&](const char* allowed) {
        return refuse("pre_tokens", "given " + text(pre) + " with next_tokens " + text(next),
                      std::string(allowed) + " in sparse_mode " + text(std::int64_t{mode}));
    };
    if (mode == 0 && pre < 0 && next < 0) return refused("must not both be negative");
    // In modes 4, 7 and 8 both are measured from the other corner, pre − δ and next + δ: the sum is the same.
    const auto saturate = [](std::int64_t tokens) { return std::clamp(tokens, -unlimited_tokens, unlimited_tokens); };
    if (saturate(pre) + saturate(next) < 0) return refused("must add up to 0 or more");
    return {};
}

// Modes 5 (where the mask decides, and prefix may be missing) and 6.
Status prefix_rules(const Call& call) {
    const AttentionParams& params = call.params;
    const Problem& p = call.problem;
    const int mode = params.sparse_mode;
    if (mode != 6 && (mode != 5 || params.prefix.empty())) return {};
    const auto count = static_cast<std::int64_t>(params.prefix.size());
    const std::string in_mode = " in sparse_mode " + text(std::int64_t{mode});
    if (count == 0 && p.B > 0) return refuse("prefix", "absent", "must be given" + in_mode);
    if (count != p.B) return refuse("prefix", text(count) + " entries", "must be " + text(p.B) + ", one a batch");
    const std::int64_t most = p.packed ? most_packed_prefixes : most_prefixes;
    if (count > most) return refuse("prefix", text(count) + " entries", "must be at most " + text(most));
    for (std::size_t b = 0; b < params.prefix.size(); ++b) {
        const std::int64_t S1 = p.packed ? p.sequences[b].S1 : p.S1;
        const std::int64_t S2 = p.packed ? p.sequences[b].S2 : p.S2;
        // Less than δ says nothing, since row 0 sees more; without rows there is no row 0.
        const std::int64_t least = S1 == 0 ? 0 : std::max(std::int64_t{0}, S2 - S1);
        if (params.prefix[b] < least || params.prefix[b] > S2) {
            return refuse("prefix", entry(b) + " is " + text(params.prefix[b]),
                          "must be " + text(least) + " to " + text(S2) + in_mode + " with lengths " + text(S1) +
                              " and " + text(S2));
        }
    }
    return {};
}

Status mode_rules(const Call& call) {
    const int mode = call.params.sparse_mode;
    const bool packed = call.problem.packed;
    const std::string given = "given " + text(std::int64_t{mode});
    if (mode == 5 && packed) return refuse("sparse_mode", given, "must not be 5 in layout TND");
    if (mode >= 7 && !packed) {
        return refuse("sparse_mode", given, "must be 0 to 6 unless layout is TND");
    }
    return {};
}

}  // namespace

Status packed_rules(Call& call) {
    if (call.params.layout != Layout::TND) return {};
    const Ends query = call.params.actual_seq_qlen;
    const Ends key = call.params.actual_seq_kvlen;
    struct Given {
        const char* parameter;
        std::size_t entries;
    };
    for (const Given& given : {Given{"actual_seq_qlen", query.size()}, Given{"actual_seq_kvlen", key.size()}}) {
        if (given.entries == 0) return refuse(given.parameter, "absent", "must be given in layout TND");
        const auto entries = static_cast<std::int64_t>(given.entries);
        if (entries > most_sequences) {
            return refuse(given.parameter, text(entries) + " entries", "must be at most " + text(most_sequences));
        }
    }
    if (key.size() != query.size()) {
        return refuse("actual_seq_kvlen", text(static_cast<std::int64_t>(key.size())) + " entries",
                      "must be " + text(static_cast<std::int64_t>(query.size())) + " as in actual_seq_qlen");
    }
    Problem& p = call.problem;
    p.packed = true;
    p.T1 = call.query.S;
    p.T2 = call.key.S;
    p.B = static_cast<std::int64_t>(query.size());
    p.statistics_order = call.params.statistics_order;
    const Status status = in_order([&] { return ends_rule("actual_seq_qlen", query, p.T1, "query"); },
                                   [&] { return ends_rule("actual_seq_kvlen", key, p.T2, "key"); });
    if (!status.ok()) return status;

    p.S1 = p.S2 = 0;
    p.sequences.resize(query.size());
    Sequence next;
    for (std::size_t b = 0; b < query.size(); ++b) {
        next.S1 = length(query, b);
        next.S2 = length(key, b);
        p.sequences[b] = next;
        next.q_begin += next.S1;
        next.k_begin += next.S2;
        next.pairs_begin += next.S1 * next.S2;
        next.padded_begin += next.S1 * ((next.S2 + 15) / 16 * 16);
        p.S1 = std::max(p.S1, next.S1);
        p.S2 = std::max(p.S2, next.S2);
    }
    return {};
}

std::int64_t cut_sequence(const Call& call) {
    const std::vector<Sequence>& sequences = call.problem.sequences;
    std::int64_t cut = -1;
    for (std::size_t b = 0; b < sequences.size(); ++b) {
        if (sequences[b].S1 == 0) continue;
        cut = static_cast<std::int64_t>(b);
        if (call.params.sparse_mode == 8) break;
    }
    return cut;
}

Status band_rules(Call& call) {
    Problem& p = call.problem;
    if (p.mask_given) {
        const Status status = in_order([&] { return mode_rules(call); }, [&] { return token_rules(call); },
                                       [&] { return prefix_rules(call); });
        if (!status.ok()) return status;
    }
    const bool prefixed = p.mask_given && call.params.sparse_mode == 6;
    if (prefixed && !p.packed) {
        p.sequences.resize(static_cast<std::size_t>(p.B));
        Sequence next;
        next.S1 = p.S1;
        next.S2 = p.S2;
        for (Sequence& sequence : p.sequences) {
            sequence = next;
            next.pairs_begin += p.S1 * p.S2;
            next.padded_begin += p.S1 * ((p.S2 + 15) / 16 * 16);
        }
    }
    const std::int64_t cut = cut_sequence(call);
    for (std::size_t b = 0; b < p.sequences.size(); ++b) {
        Sequence& here = p.sequences[b];
        here.band = make_band(call.params, p.mask_given, here.S1, here.S2, static_cast<std::int64_t>(b), cut);
    }
    if (p.sequences.empty() && !prefixed) p.band = make_band(call.params, p.mask_given, p.S1, p.S2);
    return {};
}

}  // namespace fascore
