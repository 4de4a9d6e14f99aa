// SPDX-License-Identifier: Apache-2.0
//
// VAR: cases of packed sequences, each sequence as a dense problem of its own, or packed by a block-diagonal mask.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "cases/cases.h"

namespace fascore::test {
namespace {

TEST_P(Cases, VAR_06_causal_with_one_key) {
    // Bottom-right causal with one key: only the last row sees it. Right: there out = v and dv = 1; every other row is
    // 0; dq = dk = 0, all EXACT.
    for (const std::int64_t S1 : {76, 34, 146}) {
        const Case problem{.name = "VAR_06",
                           .S1 = S1,
                           .S2 = 1,
                           .D = 32,
                           .Dv = 32,
                           .dtype = f16,
                           .rule = causal_bottom_right,
                           .query_size = 3,
                           .key_size = 3,
                           .value_size = 3};
        Scenario s = make_scenario(problem);
        s.dy.fill(1.0);
        const Results got = run_both(s, options());
        EXPECT_TRUE(got.attention_out.rows(0, S1 - 1).all_zero());
        EXPECT_TRUE(equal_bits("out", got.attention_out.rows(S1 - 1, 1), s.value));
        EXPECT_TRUE(all_equal(got.dv, 1.0));
        EXPECT_TRUE(got.dq.all_zero());
        EXPECT_TRUE(got.dk.all_zero());
    }
}

TEST_P(Cases, VAR_07_garbage_around_the_statistics) {
    // Statistics lie in a longer buffer; what is behind their rows, and in copies 1 to 7, must not reach a gradient.
    for (const std::int64_t S : {65, 1, 127, 3}) {
        const Case problem{.name = "VAR_07",
                           .N1 = 2,
                           .N2 = 2,
                           .S1 = S,
                           .S2 = S,
                           .D = 32,
                           .Dv = 32,
                           .dtype = bf16,
                           .rule = causal_top_left};
        const Scenario s = make_scenario(problem);
        const Results plain = run_both(s, options());
        for (const double garbage :
             {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e30}) {
            // [B, N1, S + 64, 8] with only [.., :S, 0] filled.
            const auto surrounded = [&](const Tensor& statistic) {
                Tensor wide = bnsd(f32, 1, 2, S + 64, 8).fill(garbage);
                for (std::int64_t n = 0; n < 2; ++n) {
                    for (std::int64_t i = 0; i < S; ++i) wide.set(0, n, i, 0, statistic.get(0, n, i, 0));
                }
                return wide.rows(0, S);
            };
            Results given = plain;
            given.softmax_max = surrounded(plain.softmax_max);
            given.softmax_sum = surrounded(plain.softmax_sum);
            Options run = options();
            for (const unsigned fill : {0xFFU, 0x00U, 0x7EU}) {
                run.workspace_fill = static_cast<std::byte>(fill);
                expect_same_gradients(run_backward(s, given, run), plain);
            }
        }
    }
}

TEST_P(Cases, VAR_13_documents_do_not_see_each_other) {
    // Documents of 5, 1, 9 and 4 rows in one sequence, causal inside each, by a dense mask. dy is non-zero in document
    // 2 only: gradients outside it are EXACT 0. Changing document 1 changes no other document, EXACT.
    constexpr std::int64_t ends[] = {5, 6, 15, 19};
    const auto document = [&](std::int64_t row) {
        return std::upper_bound(std::begin(ends), std::end(ends), row) - std::begin(ends);
    };
    Scenario s = make_scenario({.name = "VAR_13", .N1 = 2, .N2 = 1, .S1 = 19, .S2 = 19, .sparse_mode = 1});
    s.mask = mask_where(19, 19, [&](auto i, auto j) { return j <= i && document(i) == document(j); });
    const Tensor dy = s.dy;
    s.dy = bnsd(f32, 1, 2, 19, 16);
    s.dy.fill([&](auto b, auto n, auto i, auto d) { return document(i) == 2 ? dy.get(b, n, i, d) : 0.0; });
    const Results got = run_both(s, options());
    for (const Tensor* tensor : {&got.dq, &got.dk, &got.dv}) {
        EXPECT_TRUE(tensor->rows(0, 6).all_zero());
        EXPECT_TRUE(tensor->rows(15, 4).all_zero());
        EXPECT_FALSE(tensor->rows(6, 9).all_zero());
    }
    for (std::int64_t d = 0; d < 16; ++d)
        s.query.set(0, 0, 5, d, 7.0), s.key.set(0, 0, 5, d, -9.0), s.value.set(0, 0, 5, d, 100.0);
    const Results changed = run_both(s, options());
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {6, 13}}) {
        EXPECT_TRUE(equal_bits("out", changed.attention_out.rows(first, count), got.attention_out.rows(first, count)));
        EXPECT_TRUE(equal_bits("dq", changed.dq.rows(first, count), got.dq.rows(first, count)));
        EXPECT_TRUE(equal_bits("dk", changed.dk.rows(first, count), got.dk.rows(first, count)));
        EXPECT_TRUE(equal_bits("dv", changed.dv.rows(first, count), got.dv.rows(first, count)));
    }
    EXPECT_FALSE(same_bits(changed.attention_out.rows(5, 1), got.attention_out.rows(5, 1)));
}

}  // namespace
}  // namespace fascore::test
