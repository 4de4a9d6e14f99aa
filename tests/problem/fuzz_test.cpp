// SPDX-License-Identifier: Apache-2.0
//
// Any numbers at all in the public structs: the validator says yes or names a parameter, and never reads memory, loops
// or overflows (the sanitizer presets watch). A yes must be a problem whose every number is in range.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "problem/refusals.h"
#include "problem/validate.h"

namespace fascore {
namespace {

struct Numbers {
    std::uint64_t state;
    std::uint64_t bits() {
        state += 0x9E3779B97F4A7C15U;
        std::uint64_t x = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9U;
        return x ^ (x >> 27U);
    }
    std::uint64_t below(std::uint64_t limit) { return (bits() >> 20U) % limit; }
    // Mostly small and plausible, sometimes at the edge of something.
    std::int64_t extent() {
        constexpr std::array<std::int64_t, 16> edges = {0,
                                                        1,
                                                        2,
                                                        3,
                                                        255,
                                                        256,
                                                        257,
                                                        768,
                                                        769,
                                                        2048,
                                                        -1,
                                                        1 << 20,
                                                        (1 << 20) + 1,
                                                        std::int64_t{1} << 31,
                                                        std::numeric_limits<std::int64_t>::max(),
                                                        std::numeric_limits<std::int64_t>::min()};
        return edges[below(edges.size())];
    }
    std::int64_t stride() { return below(3) == 0 ? extent() : static_cast<std::int64_t>(below(4000)) - 2000; }
    double real() {
        constexpr std::array<double, 8> edges = {0.0, 1.0, -1.0, 1e300, 1e-300, 0.125, test::infinity, -test::infinity};
        return edges[below(edges.size())];
    }
};

template <class View>
void spoil(Numbers& numbers, View& view) {
    switch (numbers.below(8)) {
        case 0: view.dtype = static_cast<DType>(numbers.below(10)); break;
        case 1: view.rank = static_cast<int>(numbers.below(14)) - 2; break;
        case 2: view.data = nullptr; break;
        case 3: view = View(); break;
        case 4: view.stride[numbers.below(8)] = numbers.stride(); break;
        default: view.shape[numbers.below(4)] = numbers.extent(); break;
    }
}

void spoil(Numbers& numbers, AttentionParams& params) {
    static std::array<std::array<std::int64_t, 3>, 4> lists;
    std::array<std::int64_t, 3>& list = lists[numbers.below(lists.size())];
    for (std::int64_t& entry : list) entry = numbers.below(4) == 0 ? numbers.extent() : entry;
    const std::span<const std::int64_t> entries(list.data(), numbers.below(4));
    switch (numbers.below(22)) {
        case 0: params.layout = static_cast<Layout>(numbers.below(7)); break;
        case 1: params.head_num = numbers.extent(); break;
        case 2: params.scale = numbers.real(); break;
        case 3: params.sparse_mode = static_cast<int>(numbers.below(12)) - 2; break;
        case 4: params.pre_tokens = numbers.stride(); break;
        case 5: params.next_tokens = numbers.stride(); break;
        case 6: params.rule.kind = static_cast<MaskRule::Kind>(numbers.below(6)); break;
        case 7: params.rule.left = numbers.stride(); break;
        case 8: params.rule.right = numbers.stride(); break;
        case 9: params.keep_prob = numbers.real(); break;
        case 10: params.softcap = numbers.real(); break;
        case 11: params.prefix = entries; break;
        case 12: params.actual_seq_qlen = entries; break;
        case 13: params.actual_seq_kvlen = entries; break;
        case 14: params.statistics_order = static_cast<StatisticsOrder>(numbers.below(4)); break;
        case 15: params.q_start_idx = numbers.extent(); break;
        case 16: params.kv_start_idx = numbers.extent(); break;
        case 17: params.offset = numbers.bits(); break;
        case 18:
        case 19: params.keep_prob = 0.5; break;
        case 20: params.pse_type = static_cast<int>(numbers.below(6)) - 1; break;
        default: params.inner_precise = static_cast<int>(numbers.below(5)) - 1; break;
    }
}

std::vector<ConstTensorView*> common(AttentionInputs& in) {
    return {&in.query,    &in.key,  &in.value,     &in.atten_mask, &in.pse,       &in.query_rope,
            &in.key_rope, &in.sink, &in.drop_mask, &in.d_scale_q,  &in.d_scale_k, &in.d_scale_v};
}
std::vector<ConstTensorView*> inputs(test::ForwardCall& c) { return common(c.in); }
std::vector<ConstTensorView*> inputs(test::BackwardCall& c) {
    std::vector<ConstTensorView*> views = common(c.in);
    for (ConstTensorView* view :
         {&c.in.dy, &c.in.softmax_max, &c.in.softmax_sum, &c.in.attention_out, &c.in.dlse, &c.in.d_scale_dy}) {
        views.push_back(view);
    }
    return views;
}
std::vector<TensorView*> outputs(test::ForwardCall& c) {
    return {&c.out.attention_out, &c.out.softmax_max, &c.out.softmax_sum};
}
std::vector<TensorView*> outputs(test::BackwardCall& c) {
    return {&c.out.dq, &c.out.dk, &c.out.dv, &c.out.dq_rope, &c.out.dk_rope, &c.out.dpse, &c.out.dsink};
}

// Some calls begin as another valid one.
void vary(Numbers& numbers, test::ForwardCall& c) {
    const std::uint64_t kind = numbers.below(8);
    if (kind == 0) c.fuse();
    if (kind == 1 || kind == 2) c.pack();
    if (kind == 3 || kind == 2) c.quantise();
    if (numbers.below(4) == 0) c.in.pse = {c.memory->at(16), DType::bf16, {2, 4, 5, 6}};
    if (numbers.below(4) == 0) c.in.sink = {c.memory->at(17), DType::f32, {4}};
}
void vary(Numbers& numbers, test::BackwardCall& c) {
    if (numbers.below(8) == 0) c.quantise();
    if (numbers.below(4) == 0) {
        c.in.pse = {c.memory->at(16), DType::bf16, {2, 4, 5, 6}};
        c.out.dpse = {c.memory->at(17), DType::bf16, {2, 4, 5, 6}};
    }
    if (numbers.below(4) == 0) {
        c.in.sink = {c.memory->at(18), DType::f32, {4}};
        c.out.dsink = {c.memory->at(19), DType::f32, {4}};
    }
    if (numbers.below(4) == 0) {
        c.in.query_rope = {c.memory->at(20), c.in.query.dtype, {2, 4, 5, 4}};
        c.in.key_rope = {c.memory->at(21), c.in.query.dtype, {2, 2, 6, 4}};
        c.out.dq_rope = {c.memory->at(22), DType::bf16, {2, 4, 5, 4}};
    }
}

void expect_sound(const Band& band, std::int64_t S1, std::int64_t S2) {
    EXPECT_LE(std::abs(band.lower), S1 + S2);
    EXPECT_LE(std::abs(band.upper), S1 + S2);
    EXPECT_LE(std::abs(band.cap), S1 + S2);
    EXPECT_LE(band.upper, band.cap);
    EXPECT_TRUE(band.prefix >= 0 && band.prefix <= S2);
}

void expect_sound(const Problem& p) {
    EXPECT_TRUE(p.B >= 0 && p.B <= 2 << 20);
    EXPECT_TRUE(p.N1 >= 0 && p.N1 <= 256 && p.N2 >= 0 && p.N2 <= 256);
    EXPECT_EQ(p.N2 == 0 ? 0 : p.N1, p.G * p.N2);
    EXPECT_TRUE(p.S1 >= 0 && p.S1 <= 1 << 20 && p.S2 >= 0 && p.S2 <= 1 << 20);
    EXPECT_TRUE(p.Dr >= 0 && p.D >= p.Dr && p.D <= 768 && p.Dv >= 0 && p.Dv <= 768);
    EXPECT_NE(p.dtype, DType::boolean);
    EXPECT_NE(p.dtype, DType::u8);
    EXPECT_TRUE(std::isfinite(p.scale) && std::isfinite(p.softcap) && p.softcap >= 0.0);
    EXPECT_TRUE(p.dropout.keep_prob > 0.0 && p.dropout.keep_prob <= 1.0 && p.dropout.threshold <= 255);
    if (p.sequences.empty()) expect_sound(p.band, p.S1, p.S2);
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    for (const Sequence& here : p.sequences) {
        EXPECT_TRUE(here.S1 >= 0 && here.S1 <= p.S1 && here.S2 >= 0 && here.S2 <= p.S2);
        rows += here.S1;
        columns += here.S2;
        expect_sound(here.band, here.S1, here.S2);
    }
    EXPECT_TRUE(!p.packed || (rows <= p.T1 && columns <= p.T2));
    // Addresses of every batch can be formed.
    for (std::int64_t b = 0; b < std::min<std::int64_t>(p.B, 3); ++b) EXPECT_EQ(p.batch(b).index, b);
    if (p.B > 0) {
        EXPECT_EQ(p.batch(p.B - 1).index, p.B - 1);
    }
}

template <class Call>
void fuzz(std::uint64_t seed) {
    test::CallMemory memory;
    std::int64_t accepted = 0;
    for (std::uint64_t round = 0; round < 60000; ++round) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
        Numbers numbers{seed * 1000003 + round};
        Call call(memory);
        vary(numbers, call);
        for (std::uint64_t changes = numbers.below(4) + 1; changes > 0; --changes) {
            const std::uint64_t where = numbers.below(3);
            if (where == 0) spoil(numbers, call.params);
            if (where == 1) spoil(numbers, *inputs(call)[numbers.below(inputs(call).size())]);
            if (where == 2) spoil(numbers, *outputs(call)[numbers.below(outputs(call).size())]);
        }
        const Audience audience = numbers.below(4) == 0 ? Audience::reference : Audience::engine;
        const Pointers pointers = numbers.below(2) == 0 ? Pointers::ignored : Pointers::required;
        Problem problem;
        const Status status = make_problem(call.params, call.in, call.out, pointers, audience, problem);
        if (status.ok()) {
            ++accepted;
            expect_sound(problem);
        } else {
            ASSERT_EQ(status.code(), StatusCode::invalid_argument);
            const std::size_t colon = status.message().find(": ");
            ASSERT_NE(colon, std::string::npos) << status.message();
            ASSERT_NE(status.message().find(", ", colon), std::string::npos) << status.message();
        }
        if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(accepted, 1000);  // the inputs are not so wild that nothing is ever tried
    EXPECT_TRUE(memory.untouched());
}

TEST(AnyNumbers, Forward) { fuzz<test::ForwardCall>(1); }
TEST(AnyNumbers, Backward) { fuzz<test::BackwardCall>(2); }

}  // namespace
}  // namespace fascore
