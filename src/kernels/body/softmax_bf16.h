// SPDX-License-Identifier: Apache-2.0
//
// bf16 forms of the passes in softmax.h, for ISAs with a bf16 dot product: two rows at a time, since a word of the next
// products' A is a pair of rows. B gives the bf16 part of the vocabulary.
//
//   row even  e0 e1 … e15 (f32)  ┐ to bf16    one register: e0 … e15 | o0 … o15
//   row odd   o0 o1 … o15 (f32)  ┘            stored as two half rows: dS in rows form
//                                             one permutation: [e0 o0] [e1 o1] …: the words of the depth-over-rows form

template <class B>
struct ToBf16 {
    using Element = std::uint16_t;
    static void store(Element* p, F32::V x) { B::store_row(p, x); }
};

/// The rows of a tile that one turn of the pass writes.
template <class B>
struct RowPair {
    std::uint32_t* p_words;
    std::uint32_t* ds_words;
    std::uint16_t* ds_even;
    std::uint16_t* ds_odd;

    void store(std::int64_t c, F32::V p0, F32::V p1, F32::V d0, F32::V d1) const {
        B::store_words(p_words + c, B::convert(p0, p1));
        const typename B::Pair ds = B::convert(d0, d1);
        B::store_words(ds_words + c, ds);
        B::store_rows(ds_even + c, ds_odd + c, ds);
    }
    void clear(std::int64_t begin, std::int64_t end) const {
        const F32::V zero = F32::zero();
        for (std::int64_t c = begin; c < end; c += F32::lanes) store(c, zero, zero, zero, zero);
    }
};

template <class B, bool Terms>
void softmax_backward_bf16_pass(const SoftmaxBackwardArgs& args) {
    using F = F32;
    using V = F::V;
    const V scale = F::set1(static_cast<float>(args.scale));
    [[maybe_unused]] const GradientRows<F> gradient(args);
    for (std::int64_t r = 0; r < args.rows; r += 2) {
        const std::int64_t odd = r + 1 < args.rows ? r + 1 : r;  // a last single row is paired with zeros
        const F::M second = odd != r ? F::mask_all() : F::mask_bits(0);
        const auto* s0 = static_cast<const float*>(args.s) + r * args.lds;
        const auto* s1 = static_cast<const float*>(args.s) + odd * args.lds;
        const auto* dp0 = static_cast<const float*>(args.dp) + r * args.lds;
        const auto* dp1 = static_cast<const float*>(args.dp) + odd * args.lds;
        auto* ds_rows = static_cast<std::uint16_t*>(args.ds_rows);
        const RowPair<B> out{static_cast<std::uint32_t*>(args.p_depth) + r / 2 * args.ldw,
                             static_cast<std::uint32_t*>(args.ds_depth) + r / 2 * args.ldw, ds_rows + r * args.ldr,
                             ds_rows + (r + 1) * args.ldr};
        const Span columns = span_union(args.column_span, static_cast<int>(r), odd != r ? 2 : 1, Span{0, args.columns});
        const RowStatistics<F> row0(args, r);
        const RowStatistics<F> row1(args, odd);
        [[maybe_unused]] const RowTerms<F> terms0(args.terms, args.scale, r, args.row_words);
        [[maybe_unused]] const RowTerms<F> terms1(args.terms, args.scale, odd, args.row_words);
        [[maybe_unused]] float* dx0 = gradient.row(r);
        [[maybe_unused]] float* dx1 = odd != r ? gradient.row(odd) : nullptr;
        const auto loop = [&](const auto lanes0, const auto lanes1) {
            for (std::int64_t c = columns.begin; c < columns.end; c += F::lanes) {
                V p0;
                V p1;
                V d0;
                V d1;
                const F::M seen1 = F::both(second, lanes1(c));
                if constexpr (Terms) {
                    V x0;
                    V x1;
                    gradient_with_terms<F>(F::load(s0 + c), F::load(dp0 + c), terms0, c, row0, lanes0(c), p0, d0, x0);
                    gradient_with_terms<F>(F::load(s1 + c), F::load(dp1 + c), terms1, c, row1, seen1, p1, d1, x1);
                    if (dx0 != nullptr) gradient.store(dx0 + c, x0);
                    if (dx1 != nullptr) gradient.store(dx1 + c, x1);
                } else {
                    gradient_of_scores<F>(F::load(s0 + c), F::load(dp0 + c), scale, row0, lanes0(c), p0, d0);
                    gradient_of_scores<F>(F::load(s1 + c), F::load(dp1 + c), scale, row1, seen1, p1, d1);
                }
                out.store(c, p0, p1, d0, d1);
            }
        };
        out.clear(0, columns.begin);
        out.clear(columns.end, args.columns);
        if constexpr (Terms) {
            if (dx0 != nullptr) gradient.clear(dx0, columns, args.columns);
            if (dx1 != nullptr) gradient.clear(dx1, columns, args.columns);
        }
        if (args.visible == nullptr) {
            loop(AllLanes<F>{}, AllLanes<F>{});
        } else {
            loop(BitLanes<F>{args.visible + r * args.row_words}, BitLanes<F>{args.visible + odd * args.row_words});
        }
    }
}

template <class B>
void softmax_backward_bf16(const SoftmaxBackwardArgs& args) {
    if (has_terms(args.terms) || args.dx != nullptr) {
        softmax_backward_bf16_pass<B, true>(args);
    } else {
        softmax_backward_bf16_pass<B, false>(args);
    }
}
