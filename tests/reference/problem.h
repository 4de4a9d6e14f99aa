// SPDX-License-Identifier: Apache-2.0
//
// One attention problem for the tests of the reference: its tensors by meaning (b, n, s, d) and both calls. Outputs are
// f64 and start as NaN, so that an element nobody wrote shows.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fascore/reference.h"
#include "support/tensor.h"

namespace fascore::test {

struct Sizes {
    std::int64_t B = 1;
    std::int64_t N1 = 1;
    std::int64_t N2 = 1;
    std::int64_t S1 = 1;
    std::int64_t S2 = 1;
    std::int64_t D = 1;
    std::int64_t Dv = 1;
};

struct Attention {
    Sizes sizes;
    AttentionParams params;
    Tensor query;
    Tensor key;
    Tensor value;
    Tensor dy;
    Tensor atten_mask;
    // What the forward gives (and the gradient may take).
    Tensor attention_out;
    Tensor softmax_max;
    Tensor softmax_sum;
    Tensor dq;
    Tensor dk;
    Tensor dv;

    Attention(Sizes s, DType dtype, Layout layout = Layout::BNSD) : sizes(s) {
        params.layout = layout;
        params.head_num = s.N1;
        const Form form = form_of(layout);
        query = Tensor(dtype, form, {s.B, s.N1, s.S1, s.D});
        key = Tensor(dtype, form, {s.B, s.N2, s.S2, s.D});
        value = Tensor(dtype, form, {s.B, s.N2, s.S2, s.Dv});
        dy = Tensor(dtype, form, {s.B, s.N1, s.S1, s.Dv});
        attention_out = Tensor(DType::f64, form, {s.B, s.N1, s.S1, s.Dv});
        softmax_max = Tensor(DType::f64, Form::BNSD, {s.B, s.N1, s.S1, 8});
        softmax_sum = Tensor(DType::f64, Form::BNSD, {s.B, s.N1, s.S1, 8});
        dq = Tensor(DType::f64, form, {s.B, s.N1, s.S1, s.D});
        dk = Tensor(DType::f64, form, {s.B, s.N2, s.S2, s.D});
        dv = Tensor(DType::f64, form, {s.B, s.N2, s.S2, s.Dv});
    }

    /// The compressed mask that switches modes 2, 3 and 4 on. Its content is never read.
    Attention& compressed(int sparse_mode, std::int64_t pre = unlimited_tokens, std::int64_t next = unlimited_tokens) {
        params.sparse_mode = sparse_mode;
        params.pre_tokens = pre;
        params.next_tokens = next;
        atten_mask = Tensor(DType::u8, Form::SS, {1, 1, 2048, 2048});
        return *this;
    }

    Attention& normal(std::uint64_t seed) {
        Random random(seed);
        query.fill_normal(random);
        key.fill_normal(random);
        value.fill_normal(random);
        dy.fill_normal(random);
        return *this;
    }

    Attention& identity_values() {
        value.fill([](auto, auto, std::int64_t s, std::int64_t d) { return s == d ? 1.0 : 0.0; });
        return *this;
    }

    [[nodiscard]] Status forward(Evaluation evaluation = Evaluation::exact) {
        return reference_forward(params, {query.view(), key.view(), value.view(), atten_mask.view(), {}},
                                 {attention_out.out(), softmax_max.out(), softmax_sum.out()}, evaluation);
    }

    /// The gradient with the reference's own statistics, or with those that stand in softmax_max, softmax_sum and
    /// attention_out.
    enum class Statistics { own, given };
    [[nodiscard]] Status backward(Statistics statistics = Statistics::own, Evaluation evaluation = Evaluation::exact) {
        BackwardInputs in;
        in.query = query.view();
        in.key = key.view();
        in.value = value.view();
        in.dy = dy.view();
        in.atten_mask = atten_mask.view();
        if (statistics == Statistics::given) {
            in.softmax_max = softmax_max.view();
            in.softmax_sum = softmax_sum.view();
            in.attention_out = attention_out.view();
        }
        return reference_backward(params, in, {dq.out(), dk.out(), dv.out()}, evaluation);
    }

    void run(Evaluation evaluation = Evaluation::exact) {
        const Status ahead = forward(evaluation);
        ASSERT_TRUE(ahead.ok()) << ahead.message();
        const Status back = backward(Statistics::own, evaluation);
        ASSERT_TRUE(back.ok()) << back.message();
    }
};

}  // namespace fascore::test
