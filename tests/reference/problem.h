// SPDX-License-Identifier: Apache-2.0
//
// One attention problem for the tests of the reference: its tensors by meaning (b, n, s, d) and both calls. Outputs are
// f64 and start as NaN, so that an element nobody wrote shows.
//
// Every tensor has four axes here, also where the library wants fewer: leading axes of 1 are then not shown.
//
//   [N1]        a tensor of {1, 1, 1, N1} shown with rank 1
//   [B, N1]     {1, 1, B, N1}, rank 2
//   [T, N, D]   {1, N, T, D} in form BSND, rank 3
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
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
    std::int64_t Dr = 0;
};

/// The last `rank` axes of a view; 0 = all of them.
template <class View>
[[nodiscard]] View last_axes(View view, int rank) {
    for (; rank > 0 && view.rank > rank; --view.rank) {
        for (std::size_t axis = 0; axis + 1 < static_cast<std::size_t>(view.rank); ++axis) {
            view.shape[axis] = view.shape[axis + 1];
            view.stride[axis] = view.stride[axis + 1];
        }
    }
    return view;
}

struct Attention {
    Sizes sizes;
    AttentionParams params;
    Tensor query;
    Tensor key;
    Tensor value;
    Tensor dy;
    Tensor query_rope;
    Tensor key_rope;
    Tensor atten_mask;
    Tensor pse;
    int pse_rank = 0;
    Tensor drop_mask;
    Tensor sink;
    Tensor dlse;
    Tensor d_scale_q;
    Tensor d_scale_k;
    Tensor d_scale_v;
    Tensor d_scale_dy;
    // What the forward gives (and the gradient may take).
    Tensor attention_out;
    Tensor softmax_max;
    Tensor softmax_sum;
    // Gradients.
    Tensor dq;
    Tensor dk;
    Tensor dv;
    Tensor dq_rope;
    Tensor dk_rope;
    Tensor dpse;
    Tensor dsink;
    // Of params.
    std::vector<std::int64_t> q_ends;
    std::vector<std::int64_t> k_ends;
    std::vector<std::int64_t> prefix;

    /// In layout TND S1 and S2 are T1 and T2, and B is not looked at; q_ends and k_ends say the rest.
    Attention(Sizes s, DType dtype, Layout layout = Layout::BNSD) : sizes(s) {
        params.layout = layout;
        params.head_num = s.N1;
        if (packed()) sizes.B = 1;
        const std::int64_t B = sizes.B;
        const Form form = packed() ? Form::BSND : form_of(layout);
        const Form statistics = packed() ? Form::BSND : Form::BNSD;
        query = Tensor(dtype, form, {B, s.N1, s.S1, s.D});
        key = Tensor(dtype, form, {B, s.N2, s.S2, s.D});
        value = Tensor(dtype, form, {B, s.N2, s.S2, s.Dv});
        dy = Tensor(dtype, form, {B, s.N1, s.S1, s.Dv});
        attention_out = Tensor(DType::f64, form, {B, s.N1, s.S1, s.Dv});
        softmax_max = Tensor(DType::f64, statistics, {B, s.N1, s.S1, 8});
        softmax_sum = Tensor(DType::f64, statistics, {B, s.N1, s.S1, 8});
        dq = Tensor(DType::f64, form, {B, s.N1, s.S1, s.D});
        dk = Tensor(DType::f64, form, {B, s.N2, s.S2, s.D});
        dv = Tensor(DType::f64, form, {B, s.N2, s.S2, s.Dv});
        if (s.Dr > 0) {
            query_rope = Tensor(dtype, form, {B, s.N1, s.S1, s.Dr});
            key_rope = Tensor(dtype, form, {B, s.N2, s.S2, s.Dr});
            dq_rope = Tensor(DType::f64, form, {B, s.N1, s.S1, s.Dr});
            dk_rope = Tensor(DType::f64, form, {B, s.N2, s.S2, s.Dr});
        }
    }

    [[nodiscard]] bool packed() const { return params.layout == Layout::TND; }

    /// The compressed mask that switches modes 2, 3, 4, 6, 7 and 8 on. Its content is never read.
    Attention& compressed(int sparse_mode, std::int64_t pre = unlimited_tokens, std::int64_t next = unlimited_tokens) {
        params.sparse_mode = sparse_mode;
        params.pre_tokens = pre;
        params.next_tokens = next;
        atten_mask = Tensor(DType::u8, Form::SS, {1, 1, sparse_mode == 6 ? 3072 : 2048, 2048});
        return *this;
    }

    /// pse of any shape, and a place for its gradient.
    Attention& with_pse(int type, DType dtype, Extents extents, int rank = 4) {
        params.pse_type = type;
        pse = Tensor(dtype, Form::BNSD, extents);
        dpse = Tensor(DType::f64, Form::BNSD, extents);
        pse_rank = rank;
        return *this;
    }

    Attention& with_sink(const std::vector<double>& values) {
        sink = Tensor(DType::f32, Form::BNSD, {1, 1, 1, sizes.N1});
        dsink = Tensor(DType::f64, Form::BNSD, {1, 1, 1, sizes.N1});
        sink.fill([&](auto, auto, auto, std::int64_t n) { return values[static_cast<std::size_t>(n)]; });
        return *this;
    }

    Attention& with_dlse() {
        dlse = Tensor(query.dtype() == DType::f64 ? DType::f64 : DType::f32, softmax_max.form(),
                      {sizes.B, sizes.N1, sizes.S1, 1});
        return *this;
    }

    Attention& with_drop_mask(const std::vector<std::uint8_t>& bytes) {
        const auto count = static_cast<std::int64_t>(bytes.size());
        drop_mask = Tensor(DType::u8, Form::BNSD, {1, 1, 1, count});
        drop_mask.fill(
            [&](auto, auto, auto, std::int64_t k) { return static_cast<double>(bytes[static_cast<std::size_t>(k)]); });
        return *this;
    }

    /// Every input a standard normal number; those of type f32 beside f64 multiples of 2^-8, so that they can be moved
    /// by exact steps.
    Attention& normal(std::uint64_t seed) {
        Random random(seed);
        for (Tensor* tensor : {&query, &key, &value, &dy, &query_rope, &key_rope, &dlse}) {
            if (tensor->present()) tensor->fill_normal(random);
        }
        const auto coarse = [&](double size) { return std::nearbyint(size * random.normal() * 256.0) / 256.0; };
        if (pse.present()) pse.fill([&](auto, auto, auto, auto) { return coarse(0.5); });
        if (sink.present()) sink.fill([&](auto, auto, auto, auto) { return coarse(1.0); });
        return *this;
    }

    Attention& identity_values() {
        value.fill([](auto, auto, std::int64_t s, std::int64_t d) { return s == d ? 1.0 : 0.0; });
        return *this;
    }

    [[nodiscard]] Status forward(Evaluation evaluation = Evaluation::exact) {
        ForwardInputs in;
        state(in);
        ForwardOutputs out;
        out.attention_out = last_axes(attention_out.out(), data_rank());
        out.softmax_max = last_axes(softmax_max.out(), statistics_rank());
        out.softmax_sum = last_axes(softmax_sum.out(), statistics_rank());
        return reference_forward(params, in, out, evaluation);
    }

    /// The gradient with the reference's own statistics, or with those that stand in softmax_max, softmax_sum and
    /// attention_out.
    enum class Statistics { own, given };
    [[nodiscard]] Status backward(Statistics statistics = Statistics::own, Evaluation evaluation = Evaluation::exact) {
        BackwardOutputs out;
        out.dq = last_axes(dq.out(), data_rank());
        out.dk = last_axes(dk.out(), data_rank());
        out.dv = last_axes(dv.out(), data_rank());
        out.dq_rope = last_axes(dq_rope.out(), data_rank());
        out.dk_rope = last_axes(dk_rope.out(), data_rank());
        out.dpse = last_axes(dpse.out(), pse_rank);
        out.dsink = last_axes(dsink.out(), 1);
        return reference_backward(params, backward_inputs(statistics), out, evaluation);
    }

    [[nodiscard]] BackwardInputs backward_inputs(Statistics statistics = Statistics::own) {
        BackwardInputs in;
        state(in);
        in.dy = last_axes(dy.view(), data_rank());
        in.dlse = last_axes(dlse.view(), statistics_rank());
        in.d_scale_dy = d_scale_dy.view();
        if (statistics == Statistics::given) {
            in.softmax_max = last_axes(softmax_max.view(), statistics_rank());
            in.softmax_sum = last_axes(softmax_sum.view(), statistics_rank());
            in.attention_out = last_axes(attention_out.view(), data_rank());
        }
        return in;
    }

    void run(Evaluation evaluation = Evaluation::exact) {
        const Status ahead = forward(evaluation);
        ASSERT_TRUE(ahead.ok()) << ahead.message();
        const Status back = backward(Statistics::own, evaluation);
        ASSERT_TRUE(back.ok()) << back.message();
    }

  private:
    [[nodiscard]] int data_rank() const { return packed() ? 3 : 0; }
    [[nodiscard]] int statistics_rank() const { return packed() ? 3 : 0; }

    void state(AttentionInputs& in) {
        params.actual_seq_qlen = q_ends;
        params.actual_seq_kvlen = k_ends;
        params.prefix = prefix;
        in.query = last_axes(query.view(), data_rank());
        in.key = last_axes(key.view(), data_rank());
        in.value = last_axes(value.view(), data_rank());
        in.query_rope = last_axes(query_rope.view(), data_rank());
        in.key_rope = last_axes(key_rope.view(), data_rank());
        in.atten_mask = atten_mask.view();
        in.pse = last_axes(pse.view(), pse_rank);
        in.drop_mask = last_axes(drop_mask.view(), 1);
        in.sink = last_axes(sink.view(), 1);
        in.d_scale_q = d_scale_q.view();
        in.d_scale_k = d_scale_k.view();
        in.d_scale_v = d_scale_v.view();
    }
};

}  // namespace fascore::test
