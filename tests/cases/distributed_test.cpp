// SPDX-License-Identifier: Apache-2.0
//
// DST: attention over several devices, simulated in one process by cutting tensors. What makes it possible (I9): with
// the keys in parts p, L = ln Σ exp L_p and out = Σ exp(L_p − L)·out_p; and the gradient of a part, given the *whole*
// problem's statistics and attention_out, is that part's share: dq adds up over parts, dk and dv concatenate.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>

#include "cases/cases.h"
#include "support/merge.h"

namespace fascore::test {
namespace {

/// Queries of `s` against a part of its keys, under a rule of the part's own.
Scenario against(const Scenario& s, const Tensor& query, const Tensor& dy, const Tensor& key, const Tensor& value,
                 MaskRule rule) {
    Scenario part = make_scenario(query, key, value, dy, s.params.scale);
    part.problem.f32_out = s.problem.f32_out;
    part.params.rule = rule;
    return part;
}

/// One step of a ring: which part of the local queries meets which part of the visiting keys, and how.
struct Block {
    std::int64_t first_query, queries, first_key, keys;
    MaskRule rule;
};

/// A ring over shards: shard r holds queries and keys at positions rows_of[r] (in order). blocks(q, k) says how shard
/// q's queries meet shard k's keys. Returns the unsharded results in the original row order.
Results ring(const Scenario& s, const std::vector<std::vector<std::int64_t>>& rows_of,
             const std::function<std::vector<Block>(std::size_t, std::size_t)>& blocks, const Options& run) {
    const auto gather = [](const Tensor& tensor, const std::vector<std::int64_t>& rows) {
        Extents extents = tensor.extents();
        extents.s = static_cast<std::int64_t>(rows.size());
        Tensor shard(tensor.dtype(), Form::BNSD, extents);
        return shard.fill(
            [&](auto b, auto n, auto r, auto d) { return tensor.get(b, n, rows[static_cast<std::size_t>(r)], d); });
    };
    const auto zeros = [](const Tensor& like) { return Tensor(f64, Form::BNSD, like.extents()).fill(0.0); };
    const auto add = [](Tensor& to, std::int64_t row, const Tensor& from) {
        const Tensor before = as_f64(to);
        Tensor part = to.rows(row, from.extents().s);
        part.fill([&](auto b, auto n, auto r, auto d) { return before.get(b, n, row + r, d) + from.get(b, n, r, d); });
    };
    Results whole;
    whole.attention_out = zeros(s.dy), whole.dq = zeros(s.query), whole.dk = zeros(s.key), whole.dv = zeros(s.value);
    for (std::size_t q = 0; q < rows_of.size(); ++q) {
        const Tensor query = gather(s.query, rows_of[q]), dy = gather(s.dy, rows_of[q]);
        // Forward: every block gives a part; rows it does not touch get an empty one.
        std::vector<Results> parts;
        std::vector<std::pair<Block, std::size_t>> steps;
        for (std::size_t k = 0; k < rows_of.size(); ++k) {
            for (const Block& block : blocks(q, k)) {
                const Tensor key = gather(s.key, rows_of[k]), value = gather(s.value, rows_of[k]);
                const Scenario part =
                    against(s, query.rows(block.first_query, block.queries), dy.rows(block.first_query, block.queries),
                            key.rows(block.first_key, block.keys), value.rows(block.first_key, block.keys), block.rule);
                const Results got = run_forward(part, run);
                Results spread = make_outputs(against(s, query, dy, key, value, {}));
                spread.attention_out.fill(0.0), spread.softmax_max.fill(-FLT_MAX), spread.softmax_sum.fill(FLT_MAX);
                Tensor out = spread.attention_out.rows(block.first_query, block.queries);
                Tensor max = spread.softmax_max.rows(block.first_query, block.queries);
                Tensor sum = spread.softmax_sum.rows(block.first_query, block.queries);
                got.attention_out.copy_into(out), got.softmax_max.copy_into(max), got.softmax_sum.copy_into(sum);
                parts.push_back(spread);
                steps.emplace_back(block, k);
            }
        }
        const Results merged = merge_parts(parts);
        // Gradient: each block again, with the merged statistics.
        Tensor dq = zeros(query);
        for (const auto& [block, k] : steps) {
            const Tensor key = gather(s.key, rows_of[k]), value = gather(s.value, rows_of[k]);
            const Scenario part =
                against(s, query.rows(block.first_query, block.queries), dy.rows(block.first_query, block.queries),
                        key.rows(block.first_key, block.keys), value.rows(block.first_key, block.keys), block.rule);
            Results given;
            given.attention_out = merged.attention_out.rows(block.first_query, block.queries);
            given.softmax_max = merged.softmax_max.rows(block.first_query, block.queries);
            given.softmax_sum = merged.softmax_sum.rows(block.first_query, block.queries);
            const Results got = run_backward(part, given, run);
            add(dq, block.first_query, got.dq);
            for (std::int64_t r = 0; r < block.keys; ++r) {
                const std::int64_t row = rows_of[k][static_cast<std::size_t>(block.first_key + r)];
                add(whole.dk, row, got.dk.rows(r, 1));
                add(whole.dv, row, got.dv.rows(r, 1));
            }
        }
        for (std::size_t r = 0; r < rows_of[q].size(); ++r) {
            add(whole.dq, rows_of[q][r], dq.rows(static_cast<std::int64_t>(r), 1));
            add(whole.attention_out, rows_of[q][r], merged.attention_out.rows(static_cast<std::int64_t>(r), 1));
        }
    }
    return whole;
}

void expect_whole(const Results& got, const Results& expected) {
    EXPECT_TRUE(within_fp64("out", got.attention_out, expected.attention_out));
    EXPECT_TRUE(within_fp64("dq", got.dq, expected.dq));
    EXPECT_TRUE(within_fp64("dk", got.dk, expected.dk));
    EXPECT_TRUE(within_fp64("dv", got.dv, expected.dv));
}

TEST_P(Cases, DST_01_a_ring_uses_each_visiting_block) {
    // R shards of one sequence; the values of shard r have size 10^r, so that taking the local block in place of the
    // visiting one cannot pass. Right: the unsharded gradients, FP64.
    constexpr std::int64_t S = 24;
    for (const std::int64_t R : {2, 3, 4}) {
        for (const bool causal : {false, true}) {
            SCOPED_TRACE(std::to_string(R) + (causal ? " causal" : " full"));
            Scenario s = make_scenario({.name = "DST_01",
                                        .N1 = 2,
                                        .N2 = 2,
                                        .S1 = S,
                                        .S2 = S,
                                        .D = 8,
                                        .Dv = 8,
                                        .dtype = f64,
                                        .rule = causal ? causal_top_left : MaskRule{}});
            const Tensor plain = as_f64(s.value);
            s.value.fill([&](auto b, auto n, auto j, auto d) {
                return plain.get(b, n, j, d) * std::pow(10.0, static_cast<double>(j * R / S));
            });
            std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(R));
            for (std::int64_t row = 0; row < S; ++row) rows[static_cast<std::size_t>(row * R / S)].push_back(row);
            const std::int64_t L = S / R;
            const auto blocks = [&](std::size_t q, std::size_t k) -> std::vector<Block> {
                if (!causal || k < q) return {{0, L, 0, L, {}}};
                if (k == q) return {{0, L, 0, L, causal_top_left}};
                return {};
            };
            expect_whole(ring(s, rows, blocks, options()), run_both(s, options()));
        }
    }
}

TEST_P(Cases, DST_02_error_does_not_grow_with_the_number_of_ranks) {
    // bf16 inputs, keys in R parts, partial outputs in f32, statistics merged, one final rounding. Right: the error of
    // out, dk and dv is at most 1.2 of that of R = 1. Partial dq leave the operator in bf16, so dq may be off by half
    // an ulp of each partial, which is added to what R = 1 is off by.
    constexpr std::int64_t S = 1024;
    Scenario s = make_scenario({.name = "DST_02", .S1 = S, .S2 = S, .D = 64, .Dv = 64, .dtype = bf16});
    s.problem.f32_out = true;
    static const Results exact = reference(s);  // shared by the instruction sets
    ErrorMeasure one_out, one_dq, one_dk, one_dv;
    for (const std::int64_t R : {1, 2, 4, 8, 16}) {
        SCOPED_TRACE(R);
        std::vector<Results> parts;
        std::vector<Scenario> scenarios;
        for (std::int64_t r = 0; r < R; ++r) {
            scenarios.push_back(
                against(s, s.query, s.dy, s.key.rows(r * S / R, S / R), s.value.rows(r * S / R, S / R), {}));
            parts.push_back(run_forward(scenarios.back(), options(2)));
        }
        // The order of merging must not matter either: every second R merges backwards.
        if (R % 4 == 0) std::reverse(parts.begin(), parts.end());
        const Results merged = merge_parts(parts);
        std::vector<Tensor> dq, dk, dv;
        double half_ulps = 0.0;
        for (const Scenario& part : scenarios) {
            const Results got = run_backward(part, merged, options(2));
            dq.push_back(got.dq), dk.push_back(got.dk), dv.push_back(got.dv);
            half_ulps += 0.5 * ulp(got.dq.max_abs(), bf16);
        }
        const ErrorMeasure out_error = measure(as_dtype(merged.attention_out, bf16), exact.attention_out);
        const ErrorMeasure dq_error = measure(sum_of(dq), exact.dq);
        const ErrorMeasure dk_error = measure(stack_rows(dk), exact.dk);
        const ErrorMeasure dv_error = measure(stack_rows(dv), exact.dv);
        if (R == 1) one_out = out_error, one_dq = dq_error, one_dk = dk_error, one_dv = dv_error;
        EXPECT_LE(out_error.max_abs, 1.2 * one_out.max_abs);
        EXPECT_LE(dk_error.max_abs, 1.2 * one_dk.max_abs);
        EXPECT_LE(dv_error.max_abs, 1.2 * one_dv.max_abs);
        EXPECT_LE(dq_error.max_abs, 1.2 * one_dq.max_abs + half_ulps);
    }
}

TEST_P(Cases, DST_03_load_balanced_causal_split) {
    // 2·R chunks; rank r holds chunks r and 2R−1−r, so all ranks have the same work. Right: the unsharded results,
    // FP64; with dy in chunk m only, dk and dv of later chunks are EXACT 0.
    for (const auto& [R, chunk] : {std::pair<std::int64_t, std::int64_t>{2, 6}, {4, 3}, {2, 1}, {4, 1}}) {
        const std::int64_t S = 2 * R * chunk;
        for (std::int64_t only = -1; only < 2 * R; only += R) {  // −1: dy everywhere
            SCOPED_TRACE(std::to_string(R) + " ranks, chunk " + std::to_string(chunk) + ", dy in " +
                         std::to_string(only));
            Scenario s = make_scenario({.name = "DST_03",
                                        .N1 = 4,
                                        .N2 = 2,
                                        .S1 = S,
                                        .S2 = S,
                                        .D = 8,
                                        .Dv = 8,
                                        .dtype = f64,
                                        .rule = causal_top_left});
            const Tensor dy = as_f64(s.dy);
            s.dy.fill([&](auto b, auto n, auto i, auto d) {
                return only < 0 || i / chunk == only ? dy.get(b, n, i, d) : 0.0;
            });
            std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(R));
            for (std::int64_t r = 0; r < R; ++r) {
                for (std::int64_t at = 0; at < chunk; ++at) rows[static_cast<std::size_t>(r)].push_back(r * chunk + at);
                for (std::int64_t at = 0; at < chunk; ++at) {
                    rows[static_cast<std::size_t>(r)].push_back((2 * R - 1 - r) * chunk + at);
                }
            }
            const auto blocks = [&, c = chunk](std::size_t q, std::size_t k) -> std::vector<Block> {
                if (k == q) return {{0, 2 * c, 0, 2 * c, causal_top_left}};
                if (k < q) return {{0, 2 * c, 0, c, {}}};  // both local chunks see the visitor's early chunk only
                return {{c, c, 0, 2 * c, {}}};             // the late local chunk sees both of the visitor's
            };
            const Results got = ring(s, rows, blocks, options());
            expect_whole(got, run_both(s, options()));
            if (only >= 0) {
                const std::int64_t later = (only + 1) * chunk;
                EXPECT_TRUE(got.dk.rows(later, S - later).all_zero());
                EXPECT_TRUE(got.dv.rows(later, S - later).all_zero());
            }
        }
    }
}

TEST_P(Cases, DST_06_statistics_merged_outside) {
    // The gradient of two key parts with global statistics, once as (max, sum) and once as (max = LSE, sum = 1): both
    // spell the same probabilities. A base-2 logarithm in place of the natural one is far off.
    Scenario s = make_scenario({.name = "DST_06", .N1 = 2, .N2 = 2, .S1 = 30, .S2 = 50, .D = 32, .Dv = 32});
    const Results whole = run_both(s, options());
    const auto parts_with = [&](const Results& given) {
        std::vector<Tensor> dq, dk, dv;
        for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 20}, {20, 30}}) {
            const Scenario part = against(s, s.query, s.dy, s.key.rows(first, count), s.value.rows(first, count), {});
            const Results got = run_backward(part, given, options());
            dq.push_back(got.dq), dk.push_back(got.dk), dv.push_back(got.dv);
        }
        Results joined;
        joined.dq = sum_of(dq), joined.dk = as_f64(stack_rows(dk)), joined.dv = as_f64(stack_rows(dv));
        return joined;
    };
    const auto with_lse = [&](double base) {
        Results given = whole;
        given.softmax_max = bnsd(f32, 1, 2, 30, 8);
        given.softmax_sum = bnsd(f32, 1, 2, 30, 8).fill(1.0);
        given.softmax_max.fill([&](auto b, auto n, auto i, auto) {
            return (whole.softmax_max.get(b, n, i, 0) + std::log(whole.softmax_sum.get(b, n, i, 0))) / std::log(base);
        });
        return given;
    };
    const Results by_max = parts_with(whole);
    const Results by_lse = parts_with(with_lse(std::exp(1.0)));
    const Results wrong = parts_with(with_lse(2.0));
    const auto compare = [](const char* what, const Tensor& max, const Tensor& lse, const Tensor& all,
                            const Tensor& base_2) {
        // LSE in f32 has an error of half an ulp (2.4e-7 at 4), which P inherits as a relative one.
        EXPECT_TRUE(within(what, lse, max, 1e-6 * max.max_abs()));
        EXPECT_TRUE(within(what, max, all, 1e-6 * max.max_abs()));
        EXPECT_GT(measure(base_2, max).relative_frobenius, 0.1) << what;
    };
    compare("dq", by_max.dq, by_lse.dq, whole.dq, wrong.dq);
    compare("dk", by_max.dk, by_lse.dk, whole.dk, wrong.dk);
    compare("dv", by_max.dv, by_lse.dv, whole.dv, wrong.dv);
}

TEST_P(Cases, DST_08_head_shards_with_fewer_kv_heads_than_ranks) {
    // 8 query heads over 4 ranks, 2 kv heads replicated: the gradients of replicas are summed. A second model with
    // other head counts runs in between; nothing of it may stay behind.
    const Case problem{.name = "DST_08", .N1 = 8, .N2 = 2, .S1 = 20, .S2 = 24, .D = 8, .Dv = 8, .dtype = f64};
    const Scenario s = make_scenario(problem);
    const Scenario other = make_scenario({.name = "DST_08_other", .N1 = 6, .N2 = 3, .S1 = 20, .S2 = 24, .dtype = f64});
    const Results other_expected = run_both(other, options());
    const Results whole = run_both(s, options());
    std::vector<Tensor> out, dq;
    std::vector<std::vector<Tensor>> dk(2), dv(2);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        const std::int64_t kv = rank / 2;
        const Scenario shard = make_scenario(s.query.heads(2 * rank, 2), s.key.heads(kv, 1), s.value.heads(kv, 1),
                                             s.dy.heads(2 * rank, 2), s.params.scale);
        const Results got = run_both(shard, options());
        out.push_back(got.attention_out), dq.push_back(got.dq);
        dk[static_cast<std::size_t>(kv)].push_back(got.dk), dv[static_cast<std::size_t>(kv)].push_back(got.dv);
        expect_same_bits(run_both(other, options()), other_expected);
    }
    EXPECT_TRUE(within_fp64("out", stack_heads(out), whole.attention_out));
    EXPECT_TRUE(within_fp64("dq", stack_heads(dq), whole.dq));
    EXPECT_TRUE(within_fp64("dk", stack_heads({sum_of(dk[0]), sum_of(dk[1])}), whole.dk));
    EXPECT_TRUE(within_fp64("dv", stack_heads({sum_of(dv[0]), sum_of(dv[1])}), whole.dv));
}

TEST_P(Cases, DST_09_padded_head_counts_keep_the_group) {
    // Head counts that R does not divide: pad kv heads to a multiple of R, query heads to kv·G, with zeros; cut by
    // rank; drop the padding. Right: the unpadded results, EXACT.
    struct Split {
        std::int64_t N1, N2, R;
    };
    for (const Split& split : {Split{28, 7, 2}, Split{12, 3, 2}, Split{5, 5, 4}, Split{6, 1, 4}}) {
        SCOPED_TRACE(split.N1);
        const std::int64_t G = split.N1 / split.N2;
        const std::int64_t kv = (split.N2 + split.R - 1) / split.R * split.R;
        const Scenario s =
            make_scenario({.name = "DST_09", .N1 = split.N1, .N2 = split.N2, .S1 = 9, .S2 = 14, .D = 8, .Dv = 8});
        const Results whole = run_both(s, options());
        const auto padded = [](const Tensor& tensor, std::int64_t heads) {
            Extents extents = tensor.extents();
            const std::int64_t own = extents.n;
            extents.n = heads;
            Tensor wide(tensor.dtype(), Form::BNSD, extents);
            return wide.fill([&](auto b, auto n, auto r, auto d) { return n < own ? tensor.get(b, n, r, d) : 0.0; });
        };
        const Tensor query = padded(s.query, kv * G), dy = padded(s.dy, kv * G), key = padded(s.key, kv),
                     value = padded(s.value, kv);
        std::vector<Tensor> out, dq, dk, dv;
        const std::int64_t local = kv / split.R;
        for (std::int64_t rank = 0; rank < split.R; ++rank) {
            const Scenario shard =
                make_scenario(query.heads(rank * local * G, local * G), key.heads(rank * local, local),
                              value.heads(rank * local, local), dy.heads(rank * local * G, local * G), s.params.scale);
            const Results got = run_both(shard, options());
            out.push_back(got.attention_out), dq.push_back(got.dq), dk.push_back(got.dk), dv.push_back(got.dv);
        }
        EXPECT_TRUE(equal_bits("out", stack_heads(out).heads(0, split.N1), whole.attention_out));
        EXPECT_TRUE(equal_bits("dq", stack_heads(dq).heads(0, split.N1), whole.dq));
        EXPECT_TRUE(equal_bits("dk", stack_heads(dk).heads(0, split.N2), whole.dk));
        EXPECT_TRUE(equal_bits("dv", stack_heads(dv).heads(0, split.N2), whole.dv));
    }
}

TEST_P(Cases, DST_10_the_query_is_cut_outside_the_operator) {
    // A causal 12×12 problem cut after 5 queries: the first rows against all keys as a band with next = −7, the rest as
    // bottom-right causal. Outputs concatenate, dk and dv add up, FP64. next = −6 or −8 must differ.
    Scenario s = make_scenario({.name = "DST_10",
                                .N1 = 2,
                                .N2 = 2,
                                .S1 = 12,
                                .S2 = 12,
                                .D = 8,
                                .Dv = 8,
                                .dtype = f64,
                                .rule = causal_top_left});
    const Results whole = run_both(s, options());
    const Tensor compressed = mask_where(2048, 2048, [](auto i, auto j) { return j <= i; });
    const auto cut = [&](std::int64_t next) {
        Scenario head = make_scenario(s.query.rows(0, 5), s.key, s.value, s.dy.rows(0, 5), s.params.scale);
        head.mask = compressed;
        head.params.sparse_mode = 4;
        head.params.pre_tokens = 12;
        head.params.next_tokens = next;
        Scenario tail = make_scenario(s.query.rows(5, 7), s.key, s.value, s.dy.rows(5, 7), s.params.scale);
        tail.mask = compressed;
        tail.params.sparse_mode = 3;
        const Results first = run_both(head, options()), second = run_both(tail, options());
        Results joined;
        joined.attention_out = stack_rows({first.attention_out, second.attention_out});
        joined.dq = stack_rows({first.dq, second.dq});
        joined.dk = sum_of({first.dk, second.dk});
        joined.dv = sum_of({first.dv, second.dv});
        return joined;
    };
    expect_whole(cut(-7), whole);
    for (const std::int64_t wrong : {-6, -8}) {
        EXPECT_GT(measure(cut(wrong).attention_out, whole.attention_out).relative_frobenius, 1e-3) << wrong;
    }
}

}  // namespace
}  // namespace fascore::test
