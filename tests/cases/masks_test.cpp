// SPDX-License-Identifier: Apache-2.0
//
// MSK: empty rows, NaN behind a mask, corners of causal rules, windows, mask shapes, compressed masks.
#include <cmath>
#include <limits>
#include <utility>

#include "cases/cases.h"

namespace fascore::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

AttentionParams with_rule(MaskRule rule) {
    AttentionParams params;
    params.rule = rule;
    return params;
}

AttentionParams with_mode(int mode, std::int64_t pre = unlimited_tokens, std::int64_t next = unlimited_tokens) {
    AttentionParams params;
    params.sparse_mode = mode;
    params.pre_tokens = pre;
    params.next_tokens = next;
    return params;
}

/// The 2048×2048 template of modes 2, 3 and 4.
const Tensor& compressed_mask() {
    static const Tensor mask = mask_where(2048, 2048, [](auto i, auto j) { return j <= i; });
    return mask;
}

TEST_P(Cases, MSK_01_a_row_without_keys) {
    // Batch 1 has its keys 2 and 3 padded away, so its row 3 sees nothing. Whatever dy holds there (NaN too), the row
    // gives out 0 and dq 0, and everything else is as if the row did not exist, EXACT.
    for (const DType dtype : {f32, bf16}) {
        const Case problem{.name = "MSK_01",
                           .B = 2,
                           .N1 = 2,
                           .N2 = 2,
                           .S1 = 4,
                           .S2 = 4,
                           .D = 8,
                           .Dv = 8,
                           .dtype = dtype,
                           .sparse_mode = 1};
        Scenario s = make_scenario(problem);
        s.mask = Tensor(boolean, Form::BNSD, {2, 1, 4, 4});
        s.mask.fill([](auto b, auto, auto i, auto j) {
            const bool visible = (j == i || j + 1 == i) && (b == 0 || j < 2);
            return visible ? 0.0 : 1.0;
        });
        Scenario shorter = make_scenario(s.query.batches(1, 1).rows(0, 3), s.key.batches(1, 1), s.value.batches(1, 1),
                                         s.dy.batches(1, 1).rows(0, 3), s.params.scale);
        shorter.params.sparse_mode = 1;
        shorter.mask = s.mask.batches(1, 1).rows(0, 3);
        const Results expected = run_both(shorter, options());
        const Results first = run_both(s, options());
        for (const double empty_dy : {0.25, 0.0, nan}) {
            SCOPED_TRACE(empty_dy);
            for (std::int64_t n = 0; n < 2; ++n) {
                for (std::int64_t d = 0; d < 8; ++d) s.dy.set(1, n, 3, d, empty_dy);
            }
            const Results got = run_both(s, options());
            EXPECT_TRUE(got.attention_out.batches(1, 1).rows(3, 1).all_zero());
            EXPECT_TRUE(got.dq.batches(1, 1).rows(3, 1).all_zero());
            EXPECT_TRUE(equal_bits("out", got.attention_out.batches(1, 1).rows(0, 3), expected.attention_out));
            EXPECT_TRUE(equal_bits("dq", got.dq.batches(1, 1).rows(0, 3), expected.dq));
            EXPECT_TRUE(equal_bits("dk", got.dk.batches(1, 1), expected.dk));
            EXPECT_TRUE(equal_bits("dv", got.dv.batches(1, 1), expected.dv));
            EXPECT_TRUE(equal_bits("dk of batch 0", got.dk.batches(0, 1), first.dk.batches(0, 1)));
        }
    }
}

TEST_P(Cases, MSK_03_nan_and_inf_behind_the_mask) {
    // Keys 1, 33 and 69 are hidden from every row. NaN or Inf in their key or value must not show anywhere, EXACT.
    for (const DType dtype : {f64, f32, bf16, f16}) {
        const Case problem{.name = "MSK_03", .S1 = 3, .S2 = 70, .D = 16, .Dv = 16, .dtype = dtype, .sparse_mode = 1};
        Scenario s = make_scenario(problem);
        constexpr std::int64_t hidden[] = {1, 33, 69};
        s.mask = mask_where(3, 70, [&](auto, auto j) { return j != 1 && j != 33 && j != 69; });
        const auto set_hidden = [&](Tensor& tensor, double value) {
            for (const std::int64_t j : hidden) {
                for (std::int64_t d = 0; d < 16; ++d) tensor.set(0, 0, j, d, value);
            }
        };
        set_hidden(s.key, 0.0);
        set_hidden(s.value, 0.0);
        const Results expected = run_both(s, options());
        for (const std::int64_t j : hidden) {
            EXPECT_TRUE(expected.dk.rows(j, 1).all_zero() && expected.dv.rows(j, 1).all_zero());
        }
        for (const double bad : {nan, inf, -inf}) {
            for (const bool in_key : {true, false}) {
                SCOPED_TRACE(std::string(in_key ? "key " : "value ") + std::to_string(bad) + ' ' +
                             std::string(fascore::name(dtype)));
                set_hidden(s.key, in_key ? bad : 0.0);
                set_hidden(s.value, in_key ? 0.0 : bad);
                expect_same_bits(run_both(s, options()), expected);
            }
        }
    }
}

TEST_P(Cases, MSK_03_nan_and_inf_above_the_diagonal) {
    // The same with a causal rule over several tiles: key and value of the last rows are NaN; the rows before them
    // must not notice, in any output.
    for (const DType dtype : {f32, bf16}) {
        const Case problem{
            .name = "MSK_03_causal", .S1 = 200, .S2 = 200, .D = 32, .Dv = 32, .dtype = dtype, .rule = causal_top_left};
        Scenario s = make_scenario(problem);
        const Results expected = run_both(s, options());
        constexpr std::int64_t first_bad = 150;
        for (std::int64_t j = first_bad; j < 200; ++j) {
            for (std::int64_t d = 0; d < 32; ++d) s.key.set(0, 0, j, d, nan), s.value.set(0, 0, j, d, inf);
        }
        const Results got = run_both(s, options());
        EXPECT_TRUE(equal_bits("out", got.attention_out.rows(0, first_bad), expected.attention_out.rows(0, first_bad)));
        EXPECT_TRUE(equal_bits("dq", got.dq.rows(0, first_bad), expected.dq.rows(0, first_bad)));
        EXPECT_FALSE(got.attention_out.rows(first_bad, 1).all_finite());
    }
}

TEST_P(Cases, MSK_03_nan_in_a_query_row) {
    // NaN in query row 2: its own out and dq are NaN, and dk, dv of the keys it sees. Rows 0 and 1, and every key that
    // is hidden from row 2 (some of them visible to the others), are untouched, EXACT.
    for (const DType dtype : {f32, bf16}) {
        const Case problem{
            .name = "MSK_03_query", .S1 = 3, .S2 = 70, .D = 16, .Dv = 16, .dtype = dtype, .sparse_mode = 1};
        Scenario s = make_scenario(problem);
        const auto seen_by_2 = [](std::int64_t j) { return j % 3 != 1; };
        s.mask = mask_where(3, 70, [&](auto i, auto j) { return j != 33 && (i < 2 || seen_by_2(j)); });
        const Results expected = run_both(s, options());
        for (std::int64_t d = 0; d < 16; ++d) s.query.set(0, 0, 2, d, nan);
        const Results got = run_both(s, options());
        EXPECT_TRUE(equal_bits("out", got.attention_out.rows(0, 2), expected.attention_out.rows(0, 2)));
        EXPECT_TRUE(equal_bits("dq", got.dq.rows(0, 2), expected.dq.rows(0, 2)));
        for (const double value : got.attention_out.rows(2, 1).values()) EXPECT_TRUE(std::isnan(value));
        for (const double value : got.dq.rows(2, 1).values()) EXPECT_TRUE(std::isnan(value));
        for (std::int64_t j = 0; j < 70; ++j) {
            SCOPED_TRACE(j);
            if (j == 33) {
                EXPECT_TRUE(got.dk.rows(j, 1).all_zero() && got.dv.rows(j, 1).all_zero());
            } else if (seen_by_2(j)) {
                for (const double value : got.dk.rows(j, 1).values()) EXPECT_TRUE(std::isnan(value));
                for (const double value : got.dv.rows(j, 1).values()) EXPECT_TRUE(std::isnan(value));
            } else {
                EXPECT_TRUE(got.dk.rows(j, 1).all_finite() && got.dv.rows(j, 1).all_finite());
            }
        }
    }
}

TEST_P(Cases, MSK_04_which_corner_a_causal_mask_starts_at) {
    const Options run = options();
    const Tensor& small = compressed_mask();
    EXPECT_EQ(visible_pairs(with_rule(causal_top_left), {}, 2, 5, run), "10000/11000");
    EXPECT_EQ(visible_pairs(with_rule(causal_bottom_right), {}, 2, 5, run), "11110/11111");
    EXPECT_EQ(visible_pairs(with_rule(causal_top_left), {}, 5, 2, run), "10/11/11/11/11");
    EXPECT_EQ(visible_pairs(with_rule(causal_bottom_right), {}, 5, 2, run), "00/00/00/10/11");
    EXPECT_EQ(visible_pairs(with_mode(2), small, 2, 5, run), "10000/11000");
    EXPECT_EQ(visible_pairs(with_mode(3), small, 2, 5, run), "11110/11111");
    EXPECT_EQ(visible_pairs(with_mode(2), small, 5, 2, run), "10/11/11/11/11");
    EXPECT_EQ(visible_pairs(with_mode(3), small, 5, 2, run), "00/00/00/10/11");
}

TEST_P(Cases, MSK_05_bottom_right_causal_with_more_queries_than_keys) {
    // 300 queries, 40 keys: the first 260 rows see nothing and must be 0, not what the buffers held. The last 40 are a
    // 40×40 causal problem, EXACT.
    for (const DType dtype : {f32, bf16}) {
        const Case problem{.name = "MSK_05", .S1 = 300, .S2 = 40, .dtype = dtype, .rule = causal_bottom_right};
        const Scenario s = make_scenario(problem);
        const Results got = run_both(s, options());
        Scenario square = make_scenario(s.query.rows(260, 40), s.key, s.value, s.dy.rows(260, 40), s.params.scale);
        square.params.rule = causal_top_left;
        const Results expected = run_both(square, options());
        EXPECT_TRUE(got.attention_out.rows(0, 260).all_zero());
        EXPECT_TRUE(got.dq.rows(0, 260).all_zero());
        EXPECT_TRUE(equal_bits("out", got.attention_out.rows(260, 40), expected.attention_out));
        EXPECT_TRUE(equal_bits("dq", got.dq.rows(260, 40), expected.dq));
        EXPECT_TRUE(equal_bits("dk", got.dk, expected.dk));
        EXPECT_TRUE(equal_bits("dv", got.dv, expected.dv));
    }
}

TEST_P(Cases, MSK_07_both_ends_of_a_window_belong_to_it) {
    const Options run = options();
    EXPECT_EQ(visible_pairs(with_rule(window(3, 0)), {}, 8, 8, run),
              "10000000/11000000/11100000/11110000/01111000/00111100/00011110/00001111");
    Random random(7);
    Tensor query = bnsd(f32, 1, 2, 8, 8), key = bnsd(f32, 1, 2, 8, 8), value = bnsd(f32, 1, 2, 8, 8),
           dy = bnsd(f32, 1, 2, 8, 8);
    fill_dyadic(query, random), fill_dyadic(key, random), fill_dyadic(value, random), fill_dyadic(dy, random);
    Scenario s = make_scenario(query, key, value, dy, 0.25);
    const auto with = [&](MaskRule rule) {
        s.params.rule = rule;
        return run_both(s, run);
    };
    const Results causal = with(causal_top_left);
    expect_same_bits(with(window(7, 0)), causal);
    expect_same_bits(with(window(8, 0)), causal);
    expect_same_bits(with(window(-1, 0)), causal);
    expect_same_bits(with(window(8, 8)), with({}));
    const Results own = with(window(0, 0));  // each row sees its own key alone
    EXPECT_TRUE(equal_bits("out", own.attention_out, value));
    EXPECT_TRUE(equal_bits("dv", own.dv, dy));
    EXPECT_TRUE(own.dq.all_zero() && own.dk.all_zero());
}

TEST_P(Cases, MSK_09_negative_bounds) {
    const Options run = options();
    // A window bound below −1 has no meaning and is refused by name; −1 alone means no bound.
    for (const MaskRule rule : {window(-5, 0), window(-1, -3)}) {
        Scenario s = make_scenario({.name = "MSK_09"});
        s.params.rule = rule;
        Results results = make_outputs(s);
        const Status status = forward(s, results, run);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument);
        EXPECT_NE(status.message().find(rule.left == -5 ? "rule.left" : "rule.right"), std::string::npos);
        EXPECT_NE(status.message().find(rule.left == -5 ? "-5" : "-3"), std::string::npos) << status.message();
        EXPECT_TRUE(results.attention_out.still_poisoned());
    }
    // Tokens of modes 0 and 4 may be negative: the band lies wholly on one side of the diagonal.
    const Tensor open = mask_where(6, 6, [](auto, auto) { return true; });
    const char* const below = "000000/000000/000000/100000/110000/111000";
    const char* const above = "000111/000011/000001/000000/000000/000000";
    EXPECT_EQ(visible_pairs(with_mode(0, 9, -3), open, 6, 6, run), below);
    EXPECT_EQ(visible_pairs(with_mode(4, 9, -3), compressed_mask(), 6, 6, run), below);
    EXPECT_EQ(visible_pairs(with_mode(0, -3, 7), open, 6, 6, run), above);
    EXPECT_EQ(visible_pairs(with_mode(4, -3, 7), compressed_mask(), 6, 6, run), above);
}

TEST_P(Cases, MSK_11_one_means_masked) {
    // Causal within the first 100 of 128 keys, as bool and as u8 (any non-zero byte hides): EXACT the same, and what
    // the reference makes of it.
    const Case problem{
        .name = "MSK_11", .N1 = 2, .N2 = 2, .S1 = 128, .S2 = 128, .D = 32, .Dv = 32, .dtype = bf16, .sparse_mode = 1};
    Scenario s = make_scenario(problem);
    s.mask = mask_where(128, 128, [](auto i, auto j) { return j <= i && j < 100; });
    const Results expected = run_both(s, options());
    const Truth truth = truth_of(s);
    expect_budget(s, expected, truth.exact, truth.plain);
    Tensor bytes(u8, Form::SS, {1, 1, 128, 128});
    bytes.fill([&](auto b, auto n, auto i, auto j) {
        return s.mask.get(b, n, i, j) == 0.0 ? 0.0 : 1.0 + static_cast<double>((7 * i + j) % 255);
    });
    s.mask = bytes;
    expect_same_bits(run_both(s, options()), expected);

    // Nothing masked equals no mask, EXACT. Everything masked: zeros.
    s.mask = mask_where(128, 128, [](auto, auto) { return true; });
    const Results open = run_both(s, options());
    s.mask = Tensor{};
    expect_same_bits(open, run_both(s, options()));
    s.mask = mask_where(128, 128, [](auto, auto) { return false; });
    const Results closed = run_both(s, options());
    EXPECT_TRUE(closed.attention_out.all_zero() && closed.dq.all_zero() && closed.dk.all_zero() &&
                closed.dv.all_zero());
}

TEST_P(Cases, MSK_14_shapes_of_a_mask) {
    // Each accepted shape equals its materialised [B, N, S1, S2], EXACT; the others are refused with the list.
    const Case problem{
        .name = "MSK_14", .B = 3, .N1 = 4, .N2 = 4, .S1 = 6, .S2 = 10, .D = 8, .Dv = 8, .sparse_mode = 1};
    Scenario s = make_scenario(problem);
    Random random(14);
    const auto random_mask = [&](Form form, Extents extents) {
        Tensor mask(boolean, form, extents);
        return mask.fill([&](auto, auto, auto, auto) { return random.uniform() < 0.4 ? 1.0 : 0.0; });
    };
    const auto materialised = [&](const Tensor& mask) {
        Tensor full(boolean, Form::BNSD, {3, 4, 6, 10});
        return full.fill([&](auto b, auto n, auto i, auto j) {
            return mask.get(mask.extents().b == 1 ? 0 : b, mask.extents().n == 1 ? 0 : n, mask.extents().s == 1 ? 0 : i,
                            j);
        });
    };
    const auto run_with = [&](const Tensor& mask) {
        s.mask = mask;
        return run_both(s, options());
    };
    for (const auto& [form, extents] :
         {std::pair{Form::SS, Extents{1, 1, 6, 10}}, std::pair{Form::BNSD, Extents{1, 1, 6, 10}},
          std::pair{Form::BNSD, Extents{3, 1, 6, 10}}, std::pair{Form::BNSD, Extents{3, 4, 6, 10}}}) {
        const Tensor mask = random_mask(form, extents);
        expect_same_bits(run_with(mask), run_with(materialised(mask)));
    }
    // Key padding, [B, 1, 1, S2] expanded by stride 0 to an accepted shape.
    const Tensor padding = random_mask(Form::BNSD, {3, 1, 1, 10});
    for (const std::int64_t heads : {1, 4}) {
        const Tensor expanded(boolean, Form::BNSD, {3, heads, 6, 10}, {10, 0, 0, 1}, padding.memory(),
                              padding.origin());
        expect_same_bits(run_with(expanded), run_with(materialised(padding)));
    }
    for (const Extents& extents : {Extents{1, 4, 6, 10}, Extents{3, 1, 1, 10}, Extents{1, 1, 1, 10}}) {
        s.mask = random_mask(Form::BNSD, extents);
        Results results = make_outputs(s);
        const Status status = forward(s, results, options());
        EXPECT_EQ(status.code(), StatusCode::invalid_argument);
        for (const char* text : {"atten_mask", "[3, 4, 6, 10]", "[3, 1, 6, 10]", "[1, 1, 6, 10]", "[6, 10]"}) {
            EXPECT_NE(status.message().find(text), std::string::npos) << text << " in: " << status.message();
        }
        EXPECT_TRUE(results.attention_out.still_poisoned());
    }
}

/// softmax_sum with a query of 0 counts the visible keys of each row; a value that holds its own index gives their
/// mean. Keys seen by a rule lie side by side, so count and mean tell which they are.
void expect_visible_range(const Scenario& base, const Options& run,
                          const std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t)>& range) {
    const Results got = run_forward(base, run);
    for (std::int64_t i = 0; i < base.problem.S1; ++i) {
        const auto [first, last] = range(i);
        const auto count = static_cast<double>(last - first + 1);
        ASSERT_EQ(got.softmax_sum.get(0, 0, i, 0), count) << "row " << i;
        ASSERT_NEAR(got.attention_out.get(0, 0, i, 0), static_cast<double>(first + last) / 2.0, 1e-6) << "row " << i;
    }
}

TEST_P(Cases, MSK_23_a_compressed_mask_is_a_rule) {
    // The 2048×2048 template stands for a rule of any length: rows and columns beyond 2048 follow it too.
    const Options run = options();
    for (const auto& [S1, S2] : {std::pair<std::int64_t, std::int64_t>{2050, 2050}, {3, 2050}}) {
        Tensor value = bnsd(f64, 1, 1, S2, 1);
        value.fill([](auto, auto, auto j, auto) { return static_cast<double>(j); });
        Scenario s = make_scenario(bnsd(f64, 1, 1, S1, 1).fill(0.0), bnsd(f64, 1, 1, S2, 1).fill(1.0), value,
                                   bnsd(f64, 1, 1, S1, 1).fill(1.0), 1.0);
        s.mask = compressed_mask();
        s.params.sparse_mode = 2;
        expect_visible_range(s, run, [](auto i) { return std::pair{std::int64_t{0}, i}; });
        s.params.sparse_mode = 3;
        expect_visible_range(s, run, [&](auto i) { return std::pair{std::int64_t{0}, i + S2 - S1}; });
        // Without a mask tensor no mode has any effect.
        s.mask = Tensor{};
        for (const int mode : {0, 1, 2, 3, 4}) {
            s.params = with_mode(mode, 1, 1);
            expect_visible_range(s, run, [&](auto) { return std::pair{std::int64_t{0}, S2 - 1}; });
        }
    }
    EXPECT_EQ(visible_pairs(with_mode(4, 3, 1), compressed_mask(), 4, 6, run), "111100/111110/011111/001111");
    // Mode 1 looks at the mask alone.
    const Tensor stripes = mask_where(4, 6, [](auto i, auto j) { return (i + j) % 2 == 0; });
    EXPECT_EQ(visible_pairs(with_mode(1, -7, 3), stripes, 4, 6, run), "101010/010101/101010/010101");
    // A compressed mode with a mask of another size is refused.
    for (const int mode : {2, 3, 4}) {
        Scenario s = make_scenario({.name = "MSK_23", .S1 = 4, .S2 = 6, .sparse_mode = mode});
        s.mask = mask_where(4, 6, [](auto i, auto j) { return j <= i; });
        Results results = make_outputs(s);
        const Status status = forward(s, results, run);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument);
        EXPECT_NE(status.message().find("[2048, 2048]"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find("[4, 6]"), std::string::npos) << status.message();
    }
}

TEST_P(Cases, MSK_23_worked_visibility_tables) {
    // Every mode on a wide and a tall problem, written out.
    const Options run = options();
    const auto open = [](std::int64_t S1, std::int64_t S2) {
        return mask_where(S1, S2, [](auto, auto) { return true; });
    };
    EXPECT_EQ(visible_pairs(with_mode(0, 2, 1), open(4, 6), 4, 6, run), "110000/111000/111100/011110");
    EXPECT_EQ(visible_pairs(with_mode(0, 2, 1), open(6, 4), 6, 4, run), "1100/1110/1111/0111/0011/0001");
    EXPECT_EQ(visible_pairs(with_mode(0, 4, -1), open(4, 6), 4, 6, run), "000000/100000/110000/111000");
    EXPECT_EQ(visible_pairs(with_mode(0, 4, -1), open(6, 4), 6, 4, run), "0000/1000/1100/1110/1111/0111");
    EXPECT_EQ(visible_pairs(with_mode(0, -1, 3), open(4, 6), 4, 6, run), "011100/001110/000111/000011");
    EXPECT_EQ(visible_pairs(with_mode(0, -1, 3), open(6, 4), 6, 4, run), "0111/0011/0001/0000/0000/0000");
    const Tensor& small = compressed_mask();
    EXPECT_EQ(visible_pairs(with_mode(2), small, 4, 6, run), "100000/110000/111000/111100");
    EXPECT_EQ(visible_pairs(with_mode(2), small, 6, 4, run), "1000/1100/1110/1111/1111/1111");
    EXPECT_EQ(visible_pairs(with_mode(3), small, 4, 6, run), "111000/111100/111110/111111");
    EXPECT_EQ(visible_pairs(with_mode(3), small, 6, 4, run), "0000/0000/1000/1100/1110/1111");
    EXPECT_EQ(visible_pairs(with_mode(4, 2, 1), small, 4, 6, run), "111100/011110/001111/000111");
    EXPECT_EQ(visible_pairs(with_mode(4, 2, 1), small, 6, 4, run), "0000/1000/1100/1110/1111/0111");
    EXPECT_EQ(visible_pairs(with_mode(4, 3, -1), small, 4, 6, run), "110000/111000/011100/001110");
    EXPECT_EQ(visible_pairs(with_mode(4, 3, -1), small, 6, 4, run), "0000/0000/0000/1000/1100/1110");
}

}  // namespace
}  // namespace fascore::test
