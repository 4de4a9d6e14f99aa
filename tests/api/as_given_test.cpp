// SPDX-License-Identifier: Apache-2.0
//
// The gradient computes its formulas with the numbers it is given, whoever made them: dsink from any statistics, also
// in rows that see no key here; and every element of an output is written, none beyond it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fascore/attention.h"
#include "fascore/reference.h"
#include "support/random.h"
#include "support/targets.h"

namespace fascore {
namespace {

using Values = std::vector<double>;

Values filled(std::int64_t count, double value) { return Values(static_cast<std::size_t>(count), value); }

Values drawn(std::int64_t count, std::uint64_t seed) {
    test::Random random(seed);
    Values values = filled(count, 0);
    for (double& value : values) value = random.normal();
    return values;
}

ConstTensorView input(const Values& values, std::initializer_list<std::int64_t> shape) {
    return {values.data(), DType::f64, shape};
}

TensorView output(Values& values, std::initializer_list<std::int64_t> shape) {
    return {values.data(), DType::f64, shape};
}

void expect_near(const Values& ours, const Values& expected, const std::string& what) {
    ASSERT_EQ(ours.size(), expected.size()) << what;
    for (std::size_t k = 0; k < ours.size(); ++k) {
        EXPECT_NEAR(ours[k], expected[k], 1e-12 * (1 + std::abs(expected[k]))) << what << " element " << k;
    }
}

class AsGiven : public test::ForEachIsa {
  protected:
    [[nodiscard]] static Execution execution() {
        Execution execution;
        execution.isa = isa();
        execution.threads = 2;
        return execution;
    }
};

// One head of S × S, D = 4, and its sink.
struct Head {
    static constexpr std::int64_t S = 8;
    static constexpr std::int64_t D = 4;
    Values query = drawn(S * D, 1);
    Values key = drawn(S * D, 2);
    Values value = drawn(S * D, 3);
    Values dy = drawn(S * D, 4);
    Values out = drawn(S * D, 5);
    Values max = Values(S, 0.0);
    Values sum = Values(S, 1.0);
    Values sink = {0.0};
    Values dq = Values(S * D);
    Values dk = Values(S * D);
    Values dv = Values(S * D);
    Values dsink = Values(1);

    [[nodiscard]] BackwardInputs inputs() const {
        BackwardInputs in;
        in.query = input(query, {1, 1, S, D});
        in.key = input(key, {1, 1, S, D});
        in.value = input(value, {1, 1, S, D});
        in.dy = input(dy, {1, 1, S, D});
        in.attention_out = input(out, {1, 1, S, D});
        in.softmax_max = input(max, {1, 1, S});
        in.softmax_sum = input(sum, {1, 1, S});
        in.sink = input(sink, {1});
        return in;
    }
    [[nodiscard]] BackwardOutputs outputs() {
        BackwardOutputs to;
        to.dq = output(dq, {1, 1, S, D});
        to.dk = output(dk, {1, 1, S, D});
        to.dv = output(dv, {1, 1, S, D});
        to.dsink = output(dsink, {1});
        return to;
    }
};

// max = sink and sum = 1 is what a row without keys has; given for rows that do see keys it means nothing special.
TEST_P(AsGiven, statistics_that_look_like_an_empty_row) {
    Head ours;
    Head alone;
    Head expected;
    const AttentionParams params;
    ASSERT_TRUE(attention_backward(params, ours.inputs(), ours.outputs(), execution()).ok());
    BackwardOutputs without_dsink = alone.outputs();
    without_dsink.dsink = {};
    ASSERT_TRUE(attention_backward(params, alone.inputs(), without_dsink, execution()).ok());
    ASSERT_TRUE(reference_backward(params, expected.inputs(), expected.outputs()).ok());
    expect_near(ours.dsink, expected.dsink, "dsink");
    expect_near(ours.dq, expected.dq, "dq");
    expect_near(ours.dk, expected.dk, "dk");
    EXPECT_EQ(ours.dq, alone.dq) << "asking for dsink must not change dq";
    EXPECT_EQ(ours.dk, alone.dk);
    double by_hand = 0;
    for (std::int64_t e = 0; e < Head::S * Head::D; ++e) by_hand -= ours.dy.data()[e] * ours.out.data()[e];
    EXPECT_NEAR(ours.dsink[0], by_hand, 1e-12 * std::abs(by_hand));
}

// The second half of the keys, differentiated with the statistics of the whole: half the rows see no key here, and
// dsink is still the whole problem's, whether a rule or a mask tensor hides them.
TEST_P(AsGiven, dsink_of_a_part_of_the_keys_is_that_of_the_whole) {
    Head whole;
    AttentionParams causal;
    causal.rule.kind = MaskRule::Kind::causal_top_left;
    ForwardInputs forward;
    static_cast<AttentionInputs&>(forward) = whole.inputs();
    ForwardOutputs to;
    to.attention_out = output(whole.out, {1, 1, Head::S, Head::D});
    to.softmax_max = output(whole.max, {1, 1, Head::S});
    to.softmax_sum = output(whole.sum, {1, 1, Head::S});
    ASSERT_TRUE(attention_forward(causal, forward, to, execution()).ok());
    ASSERT_TRUE(attention_backward(causal, whole.inputs(), whole.outputs(), execution()).ok());

    constexpr std::int64_t half = Head::S / 2;
    const std::int64_t first = half * Head::D;
    std::vector<std::uint8_t> mask(Head::S * half);
    for (std::int64_t i = 0; i < Head::S; ++i) {
        for (std::int64_t j = 0; j < half; ++j) mask.data()[i * half + j] = j + half > i;
    }
    for (const bool by_mask : {false, true}) {
        for (const bool by_reference : {false, true}) {
            Head part = whole;
            BackwardInputs in = part.inputs();
            BackwardOutputs gradient = part.outputs();
            in.key = {part.key.data() + first, DType::f64, {1, 1, half, Head::D}};
            in.value = {part.value.data() + first, DType::f64, {1, 1, half, Head::D}};
            gradient.dk = {part.dk.data() + first, DType::f64, {1, 1, half, Head::D}};
            gradient.dv = {part.dv.data() + first, DType::f64, {1, 1, half, Head::D}};
            AttentionParams params;
            if (by_mask) {
                in.atten_mask = {mask.data(), DType::u8, {Head::S, half}};
                params.sparse_mode = 1;
            } else {
                params.rule.kind = MaskRule::Kind::causal_bottom_right;
            }
            const Status status = by_reference ? reference_backward(params, in, gradient)
                                               : attention_backward(params, in, gradient, execution());
            ASSERT_TRUE(status.ok()) << status.message();
            const std::string what = std::string(by_mask ? "mask" : "rule") + (by_reference ? ", reference" : "");
            expect_near(part.dsink, whole.dsink, "dsink by " + what);
            expect_near(part.dk, whole.dk, "dk by " + what);
        }
    }
}

// A row without keys that the forward wrote (out = 0) adds nothing to dsink, whatever its dy.
TEST_P(AsGiven, nan_in_dy_of_a_row_without_keys_stays_there) {
    Head head;
    std::vector<std::uint8_t> mask(Head::S * Head::S, 0);
    for (const std::int64_t hidden : {std::int64_t{0}, std::int64_t{5}}) {
        std::fill_n(mask.begin() + hidden * Head::S, Head::S, std::uint8_t{1});
        std::fill_n(head.dy.begin() + hidden * Head::D, Head::D, std::numeric_limits<double>::quiet_NaN());
    }
    AttentionParams params;
    params.sparse_mode = 1;
    ForwardInputs forward;
    static_cast<AttentionInputs&>(forward) = head.inputs();
    forward.atten_mask = {mask.data(), DType::u8, {Head::S, Head::S}};
    ForwardOutputs to;
    to.attention_out = output(head.out, {1, 1, Head::S, Head::D});
    to.softmax_max = output(head.max, {1, 1, Head::S});
    to.softmax_sum = output(head.sum, {1, 1, Head::S});
    ASSERT_TRUE(attention_forward(params, forward, to, execution()).ok());
    Head expected = head;
    BackwardInputs in = head.inputs();
    in.atten_mask = forward.atten_mask;
    ASSERT_TRUE(attention_backward(params, in, head.outputs(), execution()).ok());
    ASSERT_TRUE(reference_backward(params, in, expected.outputs()).ok());
    EXPECT_TRUE(std::isfinite(head.dsink[0]));
    expect_near(head.dsink, expected.dsink, "dsink");
    expect_near(head.dv, expected.dv, "dv");
}

// TND, one row of pse a sequence, its tensor as long as the keys in use or as all of them: every element is written
// (also those of a sequence without queries), nothing behind the tensor is.
TEST_P(AsGiven, dpse_of_packed_keys_is_written_whole_and_no_further) {
    constexpr std::int64_t N = 2;
    constexpr std::int64_t D = 4;
    constexpr std::int64_t T2 = 20;
    constexpr double untouched = 777;
    const std::vector<std::int64_t> one_row_each = {1, 1, 2};
    const std::vector<std::int64_t> rows_of_three = {3, 3, 6};
    const std::vector<std::int64_t> keys = {2, 5, 9};
    for (const auto& queries : {one_row_each, rows_of_three}) {
        for (const std::int64_t length : {N * keys.back(), N * T2}) {
            const std::int64_t T1 = queries.back();
            const Values query = drawn(T1 * N * D, 1);
            const Values key = drawn(T2 * N * D, 2);
            const Values value = drawn(T2 * N * D, 3);
            const Values dy = drawn(T1 * N * D, 4);
            const Values pse = drawn(length, 5);
            Values out(query.size());
            Values max = filled(T1 * N, 0);
            Values sum = filled(T1 * N, 0);
            AttentionParams params;
            params.layout = Layout::TND;
            params.pse_type = 0;
            params.actual_seq_qlen = queries;
            params.actual_seq_kvlen = keys;
            ForwardInputs forward;
            forward.query = input(query, {T1, N, D});
            forward.key = input(key, {T2, N, D});
            forward.value = input(value, {T2, N, D});
            forward.pse = input(pse, {length});
            ForwardOutputs to;
            to.attention_out = output(out, {T1, N, D});
            to.softmax_max = output(max, {T1, N});
            to.softmax_sum = output(sum, {T1, N});
            ASSERT_TRUE(attention_forward(params, forward, to, execution()).ok());
            BackwardInputs in;
            static_cast<AttentionInputs&>(in) = forward;
            in.dy = input(dy, {T1, N, D});
            in.attention_out = input(out, {T1, N, D});
            in.softmax_max = input(max, {T1, N});
            in.softmax_sum = input(sum, {T1, N});
            constexpr std::int64_t guard = 64;
            Values ours = filled(length + guard, untouched);
            Values expected = filled(length + guard, untouched);
            BackwardOutputs gradient;
            gradient.dpse = output(ours, {length});
            const Status status = attention_backward(params, in, gradient, execution());
            ASSERT_TRUE(status.ok()) << status.message();
            gradient.dpse = output(expected, {length});
            ASSERT_TRUE(reference_backward(params, in, gradient).ok());
            expect_near(ours, expected, "dpse and what lies behind it");
            for (std::int64_t k = length; k < length + guard; ++k) ASSERT_EQ(ours.data()[k], untouched) << k;
            // The second sequence has keys 2 to 4 and no query.
            for (std::int64_t k = N * 2; k < N * 5; ++k) EXPECT_EQ(ours.data()[k], 0.0) << k;
            for (std::int64_t k = N * keys.back(); k < length; ++k) EXPECT_EQ(ours.data()[k], 0.0) << k;
        }
    }
}

FASCORE_FOR_EACH_ISA(AsGiven);

// A band's query blocks make room for each other also when nobody asks for dq (plan.h, ring).
TEST(AsGiven, AWindowWithoutDqGivesTheSameDkAndDv) {
    constexpr std::int64_t N = 2, S = 1700, D = 8;
    const Values query = drawn(N * S * D, 1), key = drawn(S * D, 2), value = drawn(S * D, 3), dy = drawn(N * S * D, 4);
    Values out = filled(N * S * D, 0), max = filled(N * S, 0), sum = filled(N * S, 0);
    AttentionParams params;
    params.rule = {MaskRule::Kind::window, 100, 0};
    ForwardInputs in;
    in.query = input(query, {1, N, S, D});
    in.key = input(key, {1, 1, S, D});
    in.value = input(value, {1, 1, S, D});
    ForwardOutputs forward;
    forward.attention_out = output(out, {1, N, S, D});
    forward.softmax_max = output(max, {1, N, S});
    forward.softmax_sum = output(sum, {1, N, S});
    ASSERT_TRUE(attention_forward(params, in, forward).ok());
    BackwardInputs grad;
    static_cast<AttentionInputs&>(grad) = in;
    grad.dy = input(dy, {1, N, S, D});
    grad.attention_out = forward.attention_out;
    grad.softmax_max = forward.softmax_max;
    grad.softmax_sum = forward.softmax_sum;
    Values dq = filled(N * S * D, 0), dk = filled(S * D, 0), dv = filled(S * D, 0);
    BackwardOutputs all;
    all.dq = output(dq, {1, N, S, D});
    all.dk = output(dk, {1, 1, S, D});
    all.dv = output(dv, {1, 1, S, D});
    ASSERT_TRUE(attention_backward(params, grad, all).ok());
    for (const int threads : test::thread_counts) {
        Values dk_alone = filled(S * D, 1), dv_alone = filled(S * D, 1);
        BackwardOutputs some;
        some.dk = output(dk_alone, {1, 1, S, D});
        some.dv = output(dv_alone, {1, 1, S, D});
        Execution execution;
        execution.threads = threads;
        ASSERT_TRUE(attention_backward(params, grad, some, execution).ok());
        EXPECT_EQ(dk_alone, dk) << threads;
        EXPECT_EQ(dv_alone, dv) << threads;
    }
}

}  // namespace
}  // namespace fascore
