// SPDX-License-Identifier: Apache-2.0
//
// Packed sequences (TND): every sequence gives, to the bit, what a call of its own gives, with every feature at its
// place in the packed tensors; rows nobody owns are zero.
//
//   query rows     | 3 | 0 | 5 | 2 | . . |        actual_seq_qlen  {3, 3, 8, 10, 0}, T1 = 12
//   key rows       | 4 | 2 | 5 | 0 | . |          actual_seq_kvlen {4, 6, 11, 11, 0}, T2 = 12
#include <functional>

#include "reference/problem.h"

namespace fascore::test {
namespace {

struct Lengths {
    std::int64_t q, Sq, k, Sk;
};

constexpr std::int64_t N1 = 4, N2 = 2, D = 3, Dv = 2, Dr = 2, T1 = 12, T2 = 12;

std::vector<Lengths> lengths_of(const Attention& a) {
    std::vector<Lengths> lengths;
    std::int64_t q = 0, k = 0;
    for (std::size_t b = 0; b < a.q_ends.size(); ++b) {
        const std::int64_t Sq = std::max<std::int64_t>(0, a.q_ends[b] - q),
                           Sk = std::max<std::int64_t>(0, a.k_ends[b] - k);
        lengths.push_back({q, Sq, k, Sk});
        q += Sq;
        k += Sk;
    }
    return lengths;
}

// A feature: on the packed call, and on sequence b's own call.
struct Feature {
    const char* name;
    std::function<void(Attention&)> packed;
    std::function<void(Attention&, const Attention&, std::size_t, const Lengths&)> own;
};

std::int64_t pairs_before(const Attention& whole, std::size_t b) {
    std::int64_t pairs = 0;
    const std::vector<Lengths> lengths = lengths_of(whole);
    for (std::size_t c = 0; c < b; ++c) pairs += lengths[c].Sq * lengths[c].Sk;
    return pairs;
}

void nothing(Attention&, const Attention&, std::size_t, const Lengths&) {}

const Feature features[] = {
    {"plain", [](Attention&) {}, nothing},
    {"causal_bottom_right", [](Attention& a) { a.compressed(3); },
     [](Attention& own, const Attention&, std::size_t, const Lengths&) { own.compressed(3); }},
    {"band", [](Attention& a) { a.compressed(4, 2, 1); },
     [](Attention& own, const Attention&, std::size_t, const Lengths&) { own.compressed(4, 2, 1); }},
    {"prefix",
     [](Attention& a) {
         a.compressed(6);
         a.prefix = {2, 1, 3, 0, 0};
     },
     [](Attention& own, const Attention& whole, std::size_t b, const Lengths&) {
         own.compressed(6);
         own.prefix = {whole.prefix[b]};
     }},
    {"mask_of_the_longest",
     [](Attention& a) {
         a.params.sparse_mode = 1;
         a.atten_mask = Tensor(DType::u8, Form::SS, {1, 1, 5, 5});
         a.atten_mask.fill([](auto, auto, auto i, auto j) { return (i * 3 + j) % 4 == 1 ? 1.0 : 0.0; });
     },
     [](Attention& own, const Attention& whole, std::size_t, const Lengths& l) {
         own.params.sparse_mode = 1;
         own.atten_mask = Tensor(DType::u8, Form::SS, {1, 1, l.Sq, l.Sk});
         own.atten_mask.fill([&](auto, auto, auto i, auto j) { return whole.atten_mask.get(0, 0, i, j); });
     }},
    {"mask_of_all_rows",
     [](Attention& a) {
         a.params.sparse_mode = 0;
         a.params.next_tokens = 2;
         a.atten_mask = Tensor(DType::u8, Form::SS, {1, 1, T1, T2});
         a.atten_mask.fill([](auto, auto, auto i, auto j) { return (i * 3 + j) % 4 == 1 ? 1.0 : 0.0; });
     },
     [](Attention& own, const Attention& whole, std::size_t, const Lengths& l) {
         own.params.sparse_mode = 0;
         own.params.next_tokens = 2;
         own.atten_mask = Tensor(DType::u8, Form::SS, {1, 1, l.Sq, l.Sk});
         own.atten_mask.fill([&](auto, auto, auto i, auto j) { return whole.atten_mask.get(0, 0, l.q + i, l.k + j); });
     }},
    {"mask_per_head_packed",
     [](Attention& a) {
         a.params.sparse_mode = 1;
         // declared with the longest lengths, filled with each sequence's [N1, Sq, Skv]
         a.atten_mask = Tensor(DType::u8, Form::BNSD, {5, N1, 5, 5});
         std::int64_t at = 0;
         a.atten_mask.fill([&](auto, auto, auto, auto) { return at++ % 3 == 1 ? 1.0 : 0.0; });
     },
     [](Attention& own, const Attention& whole, std::size_t b, const Lengths& l) {
         own.params.sparse_mode = 1;
         own.atten_mask = Tensor(DType::u8, Form::BNSD, {1, N1, l.Sq, l.Sk});
         std::int64_t at = N1 * pairs_before(whole, b);
         own.atten_mask.fill([&](auto, auto, auto, auto) { return at++ % 3 == 1 ? 1.0 : 0.0; });
     }},
    {"rule",
     [](Attention& a) {
         a.params.rule = {MaskRule::Kind::window, 2, 0};
     },
     [](Attention& own, const Attention&, std::size_t, const Lengths&) {
         own.params.rule = {MaskRule::Kind::window, 2, 0};
     }},
    {"sink_cap_dlse",
     [](Attention& a) {
         a.params.softcap = 1.25;
         a.with_sink({0.5, -1, 0, 2}).with_dlse();
     },
     [](Attention& own, const Attention& whole, std::size_t, const Lengths& l) {
         own.params.softcap = 1.25;
         own.with_sink({0, 0, 0, 0}).with_dlse();
         whole.sink.copy_into(own.sink);
         own.dlse.fill([&](auto, auto n, auto i, auto) { return whole.dlse.get(0, n, l.q + i, 0); });
     }},
    {"drop_mask",
     [](Attention& a) {
         a.params.keep_prob = 0.5;
         a.with_drop_mask({0x5A, 0xC3, 0x96, 0xF0, 0x1D, 0xB7, 0x6E, 0x91, 0x2B, 0xD4,
                           0x0F, 0x77, 0xA8, 0x3C, 0xE5, 0x49, 0xB2, 0x18, 0x6D, 0x93});
     },
     [](Attention& own, const Attention& whole, std::size_t b, const Lengths& l) {
         own.params.keep_prob = 0.5;
         std::vector<std::uint8_t> bytes(static_cast<std::size_t>((N1 * l.Sq * l.Sk + 7) / 8), 0);
         for (std::int64_t e = 0; e < N1 * l.Sq * l.Sk; ++e) {
             const std::int64_t from = N1 * pairs_before(whole, b) + e;
             const int byte = static_cast<int>(whole.drop_mask.get(0, 0, 0, from / 8));
             const int bit = byte >> (from % 8) & 1;
             bytes[static_cast<std::size_t>(e / 8)] |= static_cast<std::uint8_t>(bit << (e % 8));
         }
         own.with_drop_mask(bytes);
     }},
    {"drawn_dropout",
     [](Attention& a) {
         a.params.keep_prob = 0.5;
         a.params.seed = 99;
     },
     [](Attention& own, const Attention& whole, std::size_t b, const Lengths&) {
         own.params.keep_prob = 0.5;
         own.params.seed = 99;
         // Rows of up to 16 columns take a block each: the sequence starts so many blocks on.
         std::int64_t rows = 0;
         const std::vector<Lengths> lengths = lengths_of(whole);
         for (std::size_t c = 0; c < b; ++c) rows += lengths[c].Sk > 0 ? N1 * lengths[c].Sq : 0;
         own.params.offset = static_cast<std::uint64_t>(16 * rows);
     }},
};

class Packed : public ::testing::TestWithParam<std::tuple<Feature, StatisticsOrder>> {};

TEST_P(Packed, EachSequenceAsACallOfItsOwn) {
    const auto& [feature, order] = GetParam();
    Attention whole({1, N1, N2, T1, T2, D, Dv, Dr}, DType::f64, Layout::TND);
    whole.q_ends = {3, 3, 8, 10, 0};
    whole.k_ends = {4, 6, 11, 11, 0};
    whole.params.scale = 0.4;
    whole.params.statistics_order = order;
    feature.packed(whole);
    whole.normal(31);
    if (order == StatisticsOrder::by_sequence && whole.dlse.present()) {
        whole.dlse.fill(0.25);  // the same wherever it is looked for
    }
    ASSERT_NO_FATAL_FAILURE(whole.run());
    std::vector<double> dsink(static_cast<std::size_t>(N1), 0.0);
    const std::vector<Lengths> lengths = lengths_of(whole);
    for (std::size_t b = 0; b < lengths.size(); ++b) {
        const Lengths& l = lengths[b];
        SCOPED_TRACE("sequence " + std::to_string(b));
        if (l.Sq == 0 || l.Sk == 0) {
            EXPECT_TRUE(whole.attention_out.rows(l.q, l.Sq).all_zero());
            EXPECT_TRUE(whole.dq.rows(l.q, l.Sq).all_zero());
            EXPECT_TRUE(whole.dq_rope.rows(l.q, l.Sq).all_zero());
            EXPECT_TRUE(whole.dk.rows(l.k, l.Sk).all_zero());
            EXPECT_TRUE(whole.dk_rope.rows(l.k, l.Sk).all_zero());
            EXPECT_TRUE(whole.dv.rows(l.k, l.Sk).all_zero());
        } else {
            Attention own({1, N1, N2, l.Sq, l.Sk, D, Dv, Dr}, DType::f64);
            own.params.scale = 0.4;
            whole.query.rows(l.q, l.Sq).copy_into(own.query);
            whole.query_rope.rows(l.q, l.Sq).copy_into(own.query_rope);
            whole.dy.rows(l.q, l.Sq).copy_into(own.dy);
            whole.key.rows(l.k, l.Sk).copy_into(own.key);
            whole.key_rope.rows(l.k, l.Sk).copy_into(own.key_rope);
            whole.value.rows(l.k, l.Sk).copy_into(own.value);
            feature.own(own, whole, b, l);
            ASSERT_NO_FATAL_FAILURE(own.run());
            EXPECT_EQ(first_difference(whole.attention_out.rows(l.q, l.Sq), own.attention_out), "");
            EXPECT_EQ(first_difference(whole.dq.rows(l.q, l.Sq), own.dq), "");
            EXPECT_EQ(first_difference(whole.dq_rope.rows(l.q, l.Sq), own.dq_rope), "");
            EXPECT_EQ(first_difference(whole.dk.rows(l.k, l.Sk), own.dk), "");
            EXPECT_EQ(first_difference(whole.dk_rope.rows(l.k, l.Sk), own.dk_rope), "");
            EXPECT_EQ(first_difference(whole.dv.rows(l.k, l.Sk), own.dv), "");
            for (std::int64_t n = 0; own.dsink.present() && n < N1; ++n) {
                dsink[static_cast<std::size_t>(n)] += own.dsink.get(0, 0, 0, n);
            }
            for (std::int64_t n = 0; n < N1; ++n) {
                for (std::int64_t i = 0; i < l.Sq; ++i) {
                    // by_sequence: the n·Sq + i-th row of the sequence's N1·Sq, in a tensor that counts t·N1 + n
                    const std::int64_t row = l.q * N1 + n * l.Sq + i;
                    const bool as_shape = order == StatisticsOrder::by_token;
                    const std::int64_t t = as_shape ? l.q + i : row / N1;
                    const std::int64_t head = as_shape ? n : row % N1;
                    for (std::int64_t copy = 0; copy < 8; ++copy) {
                        ASSERT_EQ(whole.softmax_max.get(0, head, t, copy), own.softmax_max.get(0, n, i, copy));
                        ASSERT_EQ(whole.softmax_sum.get(0, head, t, copy), own.softmax_sum.get(0, n, i, copy));
                    }
                }
            }
        }
    }
    // Sequence 3 has no keys, rows 10 and 11 belong to nobody: in both orders these are the last rows.
    for (const Tensor* tensor : {&whole.attention_out, &whole.softmax_max, &whole.softmax_sum, &whole.dq}) {
        EXPECT_TRUE(tensor->rows(8, 4).all_zero());
    }
    EXPECT_TRUE(whole.dk.rows(11, 1).all_zero());
    EXPECT_TRUE(whole.dv.rows(11, 1).all_zero());
    for (std::int64_t n = 0; whole.dsink.present() && n < N1; ++n) {
        EXPECT_NEAR(whole.dsink.get(0, 0, 0, n), dsink[static_cast<std::size_t>(n)], 1e-14);
    }
    // What the forward wrote, in its order, is what the gradient reads.
    const std::vector<double> dk = whole.dk.values();
    ASSERT_TRUE(whole.backward(Attention::Statistics::given).ok());
    for (std::size_t k = 0; k < dk.size(); ++k) EXPECT_NEAR(whole.dk.values()[k], dk[k], 1e-14);
}

INSTANTIATE_TEST_SUITE_P(Features, Packed,
                         ::testing::Combine(::testing::ValuesIn(features),
                                            ::testing::Values(StatisticsOrder::by_sequence, StatisticsOrder::by_token)),
                         [](const auto& row) {
                             const bool by_token = std::get<1>(row.param) == StatisticsOrder::by_token;
                             return std::string(std::get<0>(row.param).name) +
                                    (by_token ? "_by_token" : "_by_sequence");
                         });

// Biases ask for sequences with rows on both sides.
TEST(Packed, BiasesOfEachSequence) {
    for (const char* form : {"pairs", "keys", "slopes", "root_slopes_mode_8"}) {
        SCOPED_TRACE(form);
        const std::string which = form;
        const bool sloped = which.find("slopes") != std::string::npos;
        const bool mode_8 = which == "root_slopes_mode_8";
        Attention whole({1, 2, 1, 7, sloped ? 7 : 9, 2, 2}, DType::f64, Layout::TND);
        whole.q_ends = {3, 7};
        whole.k_ends = sloped ? std::vector<std::int64_t>{3, 7} : std::vector<std::int64_t>{5, 9};
        if (which == "pairs") whole.with_pse(0, DType::f64, {1, 1, 1, 2 * (3 * 5 + 4 * 4)}, 1);
        if (which == "keys") whole.with_pse(1, DType::f64, {1, 1, 1, 2 * 9}, 1);
        if (sloped) {
            whole.with_pse(mode_8 ? 3 : 2, DType::f32, {1, 1, 2, 2}, 2);
            whole.params.q_start_idx = 3;
            whole.params.kv_start_idx = mode_8 ? 3 : 1;
            if (mode_8) whole.compressed(8, 3, 0);
        }
        whole.normal(8);
        ASSERT_NO_FATAL_FAILURE(whole.run());
        const std::vector<Lengths> lengths = lengths_of(whole);
        for (std::size_t b = 0; b < 2; ++b) {
            const Lengths& l = lengths[b];
            Attention own({1, 2, 1, l.Sq, l.Sk, 2, 2}, DType::f64);
            std::function<std::array<std::int64_t, 2>(std::int64_t, std::int64_t, std::int64_t)> from;  // (s, d)
            if (which == "pairs") {
                own.with_pse(0, DType::f64, {1, 2, l.Sq, l.Sk});
                const std::int64_t first = 2 * pairs_before(whole, b);
                from = [=](auto n, auto i, auto j) {
                    return std::array{std::int64_t{0}, first + (n * l.Sq + i) * l.Sk + j};
                };
            } else if (which == "keys") {
                own.with_pse(1, DType::f64, {1, 2, 1, l.Sk});
                from = [=](auto n, auto, auto j) { return std::array{std::int64_t{0}, 2 * l.k + n * l.Sk + j}; };
            } else {
                own.with_pse(whole.params.pse_type, DType::f32, {1, 1, 1, 2}, 2);
                from = [=](auto, auto, auto n) { return std::array{static_cast<std::int64_t>(b), n}; };
                // In mode 8 the starts count in the first sequence only.
                own.params.q_start_idx = mode_8 && b > 0 ? 0 : whole.params.q_start_idx;
                own.params.kv_start_idx = mode_8 && b > 0 ? 0 : whole.params.kv_start_idx;
                if (mode_8) b == 0 ? own.compressed(4, 3, 0) : own.compressed(2);
            }
            whole.query.rows(l.q, l.Sq).copy_into(own.query);
            whole.dy.rows(l.q, l.Sq).copy_into(own.dy);
            whole.key.rows(l.k, l.Sk).copy_into(own.key);
            whole.value.rows(l.k, l.Sk).copy_into(own.value);
            own.pse.fill([&](auto, auto n, auto i, auto j) {
                const auto at = from(n, i, j);
                return whole.pse.get(0, 0, at[0], at[1]);
            });
            ASSERT_NO_FATAL_FAILURE(own.run());
            EXPECT_EQ(first_difference(whole.attention_out.rows(l.q, l.Sq), own.attention_out), "");
            EXPECT_EQ(first_difference(whole.dq.rows(l.q, l.Sq), own.dq), "");
            EXPECT_EQ(first_difference(whole.dk.rows(l.k, l.Sk), own.dk), "");
            const Extents e = own.pse.extents();
            for (std::int64_t n = 0; n < e.n; ++n) {
                for (std::int64_t i = 0; i < e.s; ++i) {
                    for (std::int64_t j = 0; j < e.d; ++j) {
                        const auto at = from(n, i, j);
                        ASSERT_EQ(whole.dpse.get(0, 0, at[0], at[1]), own.dpse.get(0, n, i, j)) << n << i << j;
                    }
                }
            }
        }
    }
}

TEST(Packed, WithoutAnyRows) {
    Attention a({1, 2, 1, 3, 4, 2, 2}, DType::f32, Layout::TND);
    a.q_ends = {0, 0};
    a.k_ends = {4, 4};
    a.with_sink({1, 2}).normal(1);
    ASSERT_NO_FATAL_FAILURE(a.run());
    for (const Tensor* tensor : {&a.attention_out, &a.softmax_max, &a.softmax_sum, &a.dq, &a.dk, &a.dv, &a.dsink}) {
        EXPECT_TRUE(tensor->all_zero());
    }
}

}  // namespace
}  // namespace fascore::test
