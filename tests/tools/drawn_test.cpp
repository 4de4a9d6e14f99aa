// SPDX-License-Identifier: Apache-2.0
//
// What drawn tensors hold: the same values in every layout, 8-bit data that stand for them, masks and biases as their
// forms say.
#include "drawn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "command.h"

namespace fascore::cli {
namespace {

Problem problem(const std::string& line, Needs needs = Needs::gradient) {
    return describe(parse_problem_line(line, "test"), needs);
}

Problem loaded(const std::string& line) {
    Problem drawn = problem(line);
    load(drawn, Needs::gradient);
    return drawn;
}

/// Element (b, n, s, d) of a drawn tensor.
double element(const HostTensor& tensor, Layout layout, std::int64_t B, std::int64_t N, std::int64_t S, std::int64_t D,
               std::array<std::int64_t, 4> at) {
    const auto [b, n, s, d] = at;
    switch (layout) {
        case Layout::BSND:
        case Layout::BSH: return tensor.load(((b * S + s) * N + n) * D + d);
        case Layout::SBH: return tensor.load(((s * B + b) * N + n) * D + d);
        default: return tensor.load(((b * N + n) * S + s) * D + d);
    }
}

TEST(Drawn, drawn_data_are_the_same_in_every_layout) {
    Problem reference = problem("--shape 2,4:2,3:5,7:3 --dtype f64 --seed 9");
    load(reference, Needs::gradient);
    for (const char* layout : {"BSND", "BSH", "SBH"}) {
        Problem other = problem(std::string("--shape 2,4:2,3:5,7:3 --dtype f64 --seed 9 --layout ") + layout);
        load(other, Needs::gradient);
        for (std::int64_t b = 0; b < 2; ++b) {
            for (std::int64_t n = 0; n < 4; ++n) {
                for (std::int64_t s = 0; s < 5; ++s) {
                    for (std::int64_t d = 0; d < 7; ++d) {
                        const std::array<std::int64_t, 4> at{b, n, s, d};
                        if (s < 3) {
                            EXPECT_EQ(element(other.query, other.params.layout, 2, 4, 3, 7, at),
                                      element(reference.query, Layout::BNSD, 2, 4, 3, 7, at));
                        }
                        if (n < 2 && d < 3) {
                            EXPECT_EQ(element(other.value, other.params.layout, 2, 2, 5, 3, at),
                                      element(reference.value, Layout::BNSD, 2, 2, 5, 3, at));
                        }
                    }
                }
            }
        }
    }
}

TEST(Drawn, seed_and_tensor_decide) {
    Problem one = problem("--shape 1,2,8,16 --dtype f64 --seed 1");
    Problem two = problem("--shape 1,2,8,16 --dtype f64 --seed 2");
    load(one, Needs::gradient);
    load(two, Needs::gradient);
    int equal = 0;
    for (std::int64_t index = 0; index < one.query.count(); ++index) {
        equal += one.query.load(index) == two.query.load(index);
        equal += one.query.load(index) == one.key.load(index);
        equal += one.value.load(index) == one.dy.load(index);
    }
    EXPECT_EQ(equal, 0);
}

TEST(Drawn, packed_sequences_of_one_length_are_batches) {
    const Problem batches = loaded("--shape 3,4:2,5:7,6:2 --dtype f64 --seed 3 --rope 2 --dlse");
    const Problem packed = loaded("--shape 3,4:2,5:7,6:2 --dtype f64 --seed 3 --rope 2 --dlse --layout TND");
    const auto same = [](const HostTensor& bnsd, const HostTensor& tnd, std::int64_t N, std::int64_t S) {
        const std::int64_t D = bnsd.shape()[3];
        for (std::int64_t at = 0; at < bnsd.count(); ++at) {
            const std::int64_t d = at % D, s = at / D % S, n = at / D / S % N, b = at / D / S / N;
            ASSERT_EQ(bnsd.load(at), tnd.load(((b * S + s) * N + n) * D + d)) << bnsd.name() << at;
        }
    };
    same(batches.query, packed.query, 4, 5);
    same(batches.key, packed.key, 2, 7);
    same(batches.value, packed.value, 2, 7);
    same(batches.dy, packed.dy, 4, 5);
    same(batches.query_rope, packed.query_rope, 4, 5);
    same(batches.key_rope, packed.key_rope, 2, 7);
    for (std::int64_t at = 0; at < batches.dlse.count(); ++at) EXPECT_EQ(batches.dlse.load(at), packed.dlse.load(at));
    // By token the same values lie elsewhere.
    const Problem by_token =
        loaded("--shape 3,4:2,5:7,6:2 --dtype f64 --seed 3 --dlse --layout TND --statistics-order by_token");
    for (std::int64_t at = 0; at < batches.dlse.count(); ++at) {
        const std::int64_t i = at % 5, n = at / 5 % 4, b = at / 20;
        EXPECT_EQ(batches.dlse.load(at), by_token.dlse.load((b * 5 + i) * 4 + n));
    }
}

TEST(Drawn, rows_behind_the_last_sequence_are_there) {
    const Problem packed =
        loaded("--shape 3,2,9:9,4 --dtype f64 --layout TND --actual-seq-qlen 2,5,0 --actual-seq-kvlen 3,9,0 --dlse");
    // Every element was written: normal values are never equal, let alone left over from the allocator.
    std::vector<double> values;
    for (std::int64_t at = 0; at < packed.query.count(); ++at) values.push_back(packed.query.load(at));
    std::sort(values.begin(), values.end());
    EXPECT_EQ(std::adjacent_find(values.begin(), values.end()), values.end());
    EXPECT_LT(values.back(), 8.6) << "no value of this generator is larger";
    EXPECT_GT(values.front(), -8.6);
}

TEST(Drawn, another_tensor_changes_none) {
    const Problem plain = loaded("--shape 1,2,8,16 --dtype f64");
    const Problem rich = loaded(
        "--shape 1,2,8,16 --dtype f64 --rope 4 --bias full --mask --drop-mask --keep-prob 0.5 --sink --dlse --softcap "
        "3");
    for (std::int64_t at = 0; at < plain.query.count(); ++at) {
        EXPECT_EQ(plain.query.load(at), rich.query.load(at));
        EXPECT_EQ(plain.dy.load(at), rich.dy.load(at));
    }
    int equal = 0;
    for (std::int64_t at = 0; at < rich.query_rope.count(); ++at) {
        equal += rich.query_rope.load(at) == rich.key_rope.load(at);
        equal += rich.query_rope.load(at) == rich.query.load(at);
        equal += rich.pse.load(at) == rich.value.load(at);
    }
    EXPECT_EQ(equal, 0);
}

/// Each block of 128 rows of a head: the largest stored magnitude is the type's largest, and value times factor is the
/// value drawn, within half a step of the type.
void expect_quantised(const HostTensor& stored, const HostTensor& factors, const HostTensor& exact, double largest,
                      int fraction_bits) {
    const std::int64_t S = stored.shape()[2], D = stored.shape()[3], blocks = (S + 127) / 128;
    std::vector<double> most(static_cast<std::size_t>(factors.count()));
    for (std::int64_t at = 0; at < stored.count(); ++at) {
        const std::int64_t block = at / D / S * blocks + at / D % S / 128;
        most[static_cast<std::size_t>(block)] =
            std::max(most[static_cast<std::size_t>(block)], std::abs(stored.load(at)));
        const double factor = factors.load(block);
        // Half a step at the stored magnitude; the factor is rounded to f32, which the 1e-6 is for.
        const double step = std::ldexp(std::max(std::abs(stored.load(at)), 0x1p-6), -fraction_bits);
        ASSERT_NEAR(stored.load(at) * factor, exact.load(at), (0.5 * step + 1e-6 * largest) * factor * 1.001) << at;
    }
    for (const double m : most) EXPECT_EQ(m, largest);
}

TEST(Drawn, eight_bit_data_stand_for_the_same_values) {
    const Problem exact = loaded("--shape 2,4:2,300:130,24:8 --dtype f64 --seed 5");
    const Problem e4m3 = loaded("--shape 2,4:2,300:130,24:8 --dtype f8e4m3 --seed 5");
    expect_quantised(e4m3.query, e4m3.d_scale_q, exact.query, 448.0, 3);
    expect_quantised(e4m3.key, e4m3.d_scale_k, exact.key, 448.0, 3);
    expect_quantised(e4m3.value, e4m3.d_scale_v, exact.value, 448.0, 3);
    expect_quantised(e4m3.dy, e4m3.d_scale_dy, exact.dy, 448.0, 3);
    const Problem e5m2 = loaded("--shape 2,4:2,300:130,24:8 --dtype f8e5m2 --seed 5");
    expect_quantised(e5m2.query, e5m2.d_scale_q, exact.query, 57344.0, 2);
    expect_quantised(e5m2.dy, e5m2.d_scale_dy, exact.dy, 57344.0, 2);
}

TEST(Drawn, rope_parts_share_the_factor) {
    const Problem exact = loaded("--shape 1,1,40,2 --rope 30 --dtype f64");
    const Problem e4m3 = loaded("--shape 1,1,40,2 --rope 30 --dtype f8e4m3");
    double most = 0.0;
    for (const HostTensor* tensor : {&exact.query, &exact.query_rope}) {
        for (std::int64_t at = 0; at < tensor->count(); ++at) most = std::max(most, std::abs(tensor->load(at)));
    }
    EXPECT_NEAR(e4m3.d_scale_q.load(0), most / 448.0, 1e-9);
}

TEST(Drawn, masks) {
    // The template, and its prefix rows.
    const Problem causal = loaded("--shape 1,1,4,4 --mask --sparse-mode 3");
    const Problem prefix = loaded("--shape 1,1,4,4 --mask --sparse-mode 6 --prefix 2");
    for (const auto& [row, column] :
         {std::pair<int, int>{0, 0}, {0, 1}, {5, 5}, {5, 6}, {6, 5}, {2047, 2047}, {2046, 2047}}) {
        EXPECT_EQ(causal.atten_mask.load(row * 2048 + column), column > row ? 1.0 : 0.0);
        EXPECT_EQ(prefix.atten_mask.load(row * 2048 + column), column > row ? 1.0 : 0.0);
    }
    for (const int row : {2048, 3071}) {
        EXPECT_EQ(prefix.atten_mask.load(row * 2048 + 1023), 0.0);
        EXPECT_EQ(prefix.atten_mask.load(row * 2048 + 1024), 1.0);
    }
    // Mode 5 with more queries than keys: rows 0 and 1 see the prefix alone, row i sees j <= i - 2 too.
    const Problem full = loaded("--shape 2,3,6:4,8 --mask --sparse-mode 5 --prefix 3,0");
    ASSERT_EQ(full.atten_mask.shape(), (std::vector<std::int64_t>{2, 1, 6, 4}));
    const std::string visible[] = {"111011101110111011101111", "000000001000110011101111"};
    for (std::int64_t at = 0; at < 48; ++at) {
        const char wanted = visible[at / 24][static_cast<std::size_t>(at % 24)];
        EXPECT_EQ(full.atten_mask.load(at), wanted == '1' ? 0.0 : 1.0) << at;
    }
    // Modes 0 and 1: a quarter, within five standard deviations of 40,000 draws.
    const Problem random = loaded("--shape 1,1,200,8 --mask");
    double hidden = 0.0;
    for (std::int64_t at = 0; at < random.atten_mask.count(); ++at) hidden += random.atten_mask.load(at);
    EXPECT_NEAR(hidden / 40000.0, 0.25, 5.0 * std::sqrt(0.25 * 0.75 / 40000.0));
}

TEST(Drawn, drop_mask_has_its_share_of_ones) {
    const Problem drawn = loaded("--shape 1,2,100:101,8 --drop-mask --keep-prob 0.8");
    EXPECT_EQ(drawn.drop_mask.shape(), (std::vector<std::int64_t>{2525}));
    double kept = 0.0;
    for (std::int64_t at = 0; at < drawn.drop_mask.count(); ++at) {
        for (auto byte = static_cast<unsigned>(drawn.drop_mask.load(at)); byte != 0; byte &= byte - 1) kept += 1.0;
    }
    EXPECT_NEAR(kept / 20200.0, 0.8, 5.0 * std::sqrt(0.8 * 0.2 / 20200.0));
}

TEST(Drawn, biases) {
    const Problem slopes = loaded("--shape 2,3,4,8 --bias BN --pse-type 2");
    for (std::int64_t at = 0; at < 6; ++at) {
        const double wanted = 1.0 / static_cast<double>((at / 3 + 1) * (at % 3 + 1));
        EXPECT_EQ(slopes.pse.load(at), static_cast<double>(static_cast<float>(wanted)));
    }
    EXPECT_EQ(loaded("--shape 2,3,4,8 --bias N --pse-type 3").pse.load(2), static_cast<double>(1.0F / 3.0F));
    // Compressed: row r stands for row S - 1024 + r of a bias -slope·(i - j), 0 right of the diagonal.
    const Problem compressed = loaded("--shape 1,2,1100,8 --bias 1NHS --dtype f32");
    for (const auto& [n, row, column] :
         {std::array<int, 3>{0, 0, 76}, {0, 0, 75}, {1, 1023, 1099}, {1, 1023, 0}, {1, 3, 90}}) {
        const double distance = 76 + row - column;
        const double slope = n == 0 ? 0x1p-4 : 0x1p-8;
        EXPECT_EQ(compressed.pse.load((n * 1024 + row) * 1100 + column), distance > 0 ? -slope * distance : 0.0);
    }
}

}  // namespace
}  // namespace fascore::cli
