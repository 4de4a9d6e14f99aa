// SPDX-License-Identifier: Apache-2.0
//
// The passes between the products: everything that is done to a tile of scores, in one sweep.
//
// Forward, online softmax over the kv tiles of a row; m, l are the running maximum and sum:
//
//   m' = max(m, max_j x_j)     x_j = scale·s_j, visible j only
//   p_j = exp(x_j − m')        l' = l·exp(m − m') + Σ p_j        rescale = exp(m − m') for the accumulated output
//
//   Two sweeps over the row: the maximum of s (scale ≥ 0, so it commutes), then the rest. A row that has seen nothing
//   keeps m = −inf, l = 0; exp(−inf − m') is 0, so its first visible tile starts it. A problem with terms (terms.h)
//   writes x over s in the first sweep and goes on from there with scale 1.
//
// Backward, statistics given:
//
//   p = exp(x − max) · (1/sum)         ds = p · (dp − delta)          0 where not visible, whatever s and dp hold there
//
//   With terms: dp of what dropout keeps, over keep_prob; ds times cap'; p becomes R, and dx is ds before cap'.
//
//   bf16 writes each value in the two orders the next products need:
//
//     p, ds with depth over rows     word (row/2, j) = [row even | row odd]     A of dV = Pᵀdy and dK = dSᵀQ
//     ds in rows form                element (row, j)                           A of dQ = dS·K
//
//   f32 and f64 overwrite s and dp: there one row-major tile serves as both, read with other strides.
//
// x is rounded (scale·s) before the maximum is taken off, in forward and backward alike, so a row's largest pair gives
// exactly exp(0) = 1 however large the scores.
//
// Cost: about 20 vector operations for 16 pairs, beside (4·D + 4·Dv … 6·D + 4·Dv)/4 multiply-adds.

/// Visibility of the vector that starts at column `c`.
template <class F>
inline typename F::M visible_lanes(const std::uint16_t* row_bits, std::int64_t c) {
    return F::mask_bits(static_cast<std::uint32_t>(row_bits[c / 16]) >> (c % 16));
}

/// Visible lanes of a row at column c, as a type: most tiles are full, and a loop written for AllLanes neither asks nor
/// masks.
template <class F>
struct AllLanes {
    typename F::M operator()(std::int64_t /*c*/) const { return F::mask_all(); }
};
template <class F>
struct BitLanes {
    const std::uint16_t* bits;
    typename F::M operator()(std::int64_t c) const { return visible_lanes<F>(bits, c); }
};

/// loop(lanes) for the lanes of a row; bits null = all.
template <class F, class Loop>
inline void with_lanes(const std::uint16_t* bits, const Loop& loop) {
    if (bits == nullptr) {
        loop(AllLanes<F>{});
    } else {
        loop(BitLanes<F>{bits});
    }
}

/// Zeros in columns [begin, end) of a row.
template <class F>
inline void clear(typename F::Scalar* row, std::int32_t begin, std::int32_t end) {
    for (std::int64_t c = begin; c < end; c += F::lanes) F::store(row + c, F::zero());
}

#include "kernels/body/terms.h"

template <class F>
inline typename F::V minus_infinity() {
    return F::set1(-static_cast<typename F::Scalar>(__builtin_inff()));
}

/// Columns of a row worth looking at. Outside, P and dS are zero.
inline Span row_columns(const Span* spans, std::int64_t row, std::int32_t columns) {
    if (spans == nullptr) return Span{0, columns};
    const Span span = spans[row];
    return span.begin < span.end ? span : Span{0, 0};
}

/// The largest visible score of a row, −inf when there is none.
template <class F>
inline typename F::Scalar largest_score(const typename F::Scalar* s, const std::uint16_t* bits, Span columns) {
    using V = typename F::V;
    V largest = minus_infinity<F>();
    V other = largest;
    std::int64_t c = columns.begin;
    if (bits != nullptr) {
        for (; c < columns.end; c += F::lanes) {
            largest = F::max(largest, F::blend(visible_lanes<F>(bits, c), F::load(s + c), minus_infinity<F>()));
        }
        return F::maximum(largest);
    }
    for (; c + 2 * F::lanes <= columns.end; c += 2 * F::lanes) {
        largest = F::max(largest, F::load(s + c));
        other = F::max(other, F::load(s + c + F::lanes));
    }
    for (; c < columns.end; c += F::lanes) largest = F::max(largest, F::load(s + c));
    return F::maximum(F::max(largest, other));
}

inline bool sees_any(const std::uint16_t* bits, Span columns) {
    if (bits == nullptr) return columns.begin < columns.end;
    for (std::int64_t c = columns.begin; c < columns.end; c += 16) {
        if (bits[c / 16] != 0) return true;
    }
    return false;
}

/// How P leaves the forward pass: `Target::store(p, vector)` writes F::lanes elements. Rows go in groups of 16, so that
/// the running statistics are updated in vectors and no row waits for its own maximum.
template <class F, class Target, bool Terms>
void softmax_forward_pass(const SoftmaxForwardArgs& args) {
    using V = typename F::V;
    using Scalar = typename F::Scalar;
    using Element = typename Target::Element;
    constexpr std::int64_t group = 16;
    const auto scale = Terms ? Scalar{1} : static_cast<Scalar>(args.scale);
    auto* row_max = static_cast<Scalar*>(args.row_max);
    auto* row_sum = static_cast<Scalar*>(args.row_sum);
    auto* row_rescale = static_cast<Scalar*>(args.row_rescale);
    for (std::int64_t first = 0; first < args.rows; first += group) {
        const std::int64_t count = args.rows - first < group ? args.rows - first : group;
        Scalar old_max[group] = {};
        Scalar new_max[group] = {};
        Scalar drop[group] = {};  // old maximum − new maximum; 0 for rows that see nothing here
        bool seen[group] = {};

        // 1. Maxima.
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t r = first + i;
            const std::uint16_t* bits = args.visible == nullptr ? nullptr : args.visible + r * args.row_words;
            const Span columns = row_columns(args.column_span, r, args.columns);
            auto* s = static_cast<Scalar*>(args.s) + r * args.lds;
            old_max[i] = row_max[r];
            new_max[i] = old_max[i];
            seen[i] = sees_any(bits, columns);
            if (!seen[i]) continue;
            if constexpr (Terms) {
                const RowTerms<F> terms(args.terms, args.scale, r, args.row_words);
                for (std::int64_t c = columns.begin; c < columns.end; c += F::lanes) {
                    V slope;
                    F::store(s + c, terms.score(F::load(s + c), c, slope));
                }
            }
            const Scalar tile_max = largest_score<F>(s, bits, columns) * scale;
            new_max[i] = old_max[i] > tile_max ? old_max[i] : tile_max;
            drop[i] = new_max[i] == old_max[i] ? 0 : old_max[i] - new_max[i];
        }

        // 2. Weights and their sums.
        Scalar sums[group] = {};
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t r = first + i;
            const std::uint16_t* bits = args.visible == nullptr ? nullptr : args.visible + r * args.row_words;
            Span columns = row_columns(args.column_span, r, args.columns);
            if (!seen[i]) columns = Span{0, 0};
            const auto* s = static_cast<const Scalar*>(args.s) + r * args.lds;
            auto* p = static_cast<Element*>(args.p) + r * args.ldp;
            const V max = F::set1(new_max[i]);
            V sum = F::zero();
            for (std::int64_t c = 0; c < columns.begin; c += F::lanes) Target::store(p + c, F::zero());
            for (std::int64_t c = columns.begin; c < columns.end; c += F::lanes) {
                const typename F::M lanes = bits == nullptr ? F::mask_all() : visible_lanes<F>(bits, c);
                const V x = F::mul(F::load(s + c), F::set1(scale));
                const V weight = exp_vector<F, Above::never>(F::sub(x, max), lanes);
                sum = F::add(sum, weight);
                if constexpr (Terms) {
                    const V kept =
                        args.terms.keep == nullptr
                            ? weight
                            : F::blend(visible_lanes<F>(args.terms.keep + r * args.row_words, c), weight, F::zero());
                    Target::store(p + c, kept);
                } else {
                    Target::store(p + c, weight);
                }
            }
            for (std::int64_t c = columns.end; c < args.columns; c += F::lanes) Target::store(p + c, F::zero());
            sums[i] = F::sum(sum);
        }

        // 3. The running statistics.
        Scalar rescale[group];
        for (std::int64_t i = 0; i < group; i += F::lanes) {
            F::store(rescale + i, exp_vector<F, Above::never>(F::load(drop + i), F::mask_all()));
        }
        for (std::int64_t i = 0; i < count; ++i) {
            row_max[first + i] = new_max[i];
            row_rescale[first + i] = rescale[i];
            row_sum[first + i] = row_sum[first + i] * rescale[i] + sums[i];
        }
    }
}

template <class F, class Target>
void softmax_forward(const SoftmaxForwardArgs& args) {
    if (has_terms(args.terms)) {
        softmax_forward_pass<F, Target, true>(args);
    } else {
        softmax_forward_pass<F, Target, false>(args);
    }
}

/// Forward target of the accumulate type itself.
template <class F>
struct SameType {
    using Element = typename F::Scalar;
    static void store(Element* p, typename F::V x) { F::store(p, x); }
};

/// One row's statistics, spread over a vector.
template <class F>
struct RowStatistics {
    typename F::V max;
    typename F::V inverse;
    typename F::V delta;
    RowStatistics(const SoftmaxBackwardArgs& args, std::int64_t row)
        : max(F::set1(static_cast<const typename F::Scalar*>(args.row_max)[row])),
          inverse(F::set1(static_cast<const typename F::Scalar*>(args.row_inverse)[row])),
          delta(F::set1(static_cast<const typename F::Scalar*>(args.row_delta)[row])) {}
};

template <class F>
inline void gradient_of_scores(typename F::V s, typename F::V dp, typename F::V scale, const RowStatistics<F>& row,
                               typename F::M lanes, typename F::V& p, typename F::V& ds) {
    // Both products keep to the visible lanes: a hidden row's statistics, or dp, may be anything.
    const typename F::V weight = exp_vector<F, Above::possible>(F::sub(F::mul(s, scale), row.max), lanes);
    p = F::mul_keep(lanes, weight, row.inverse);
    ds = F::mul_keep(lanes, p, F::sub(dp, row.delta));
}

/// The same with terms: p is R, dx the gradient of x, ds that of scale·s.
template <class F>
inline void gradient_with_terms(typename F::V s, typename F::V dp, const RowTerms<F>& terms, std::int64_t c,
                                const RowStatistics<F>& row, typename F::M lanes, typename F::V& p, typename F::V& ds,
                                typename F::V& dx) {
    using V = typename F::V;
    V slope;
    const V x = terms.score(s, c, slope);
    const V weight = F::mul_keep(lanes, exp_vector<F, Above::possible>(F::sub(x, row.max), lanes), row.inverse);
    p = terms.dropped(weight, c);
    dx = F::mul_keep(lanes, weight, F::sub(terms.dropped(dp, c), row.delta));
    ds = terms.capped ? F::mul_keep(lanes, dx, slope) : dx;
}

/// Rows of dx, times their factor; past the cache where nobody will look at them soon.
template <class F>
class GradientRows {
  public:
    using Scalar = typename F::Scalar;

    explicit GradientRows(const SoftmaxBackwardArgs& args)
        : args_(args),
          factor_(F::set1(static_cast<Scalar>(args.dx_factor))),
          streamed_(args.dx_once && on_cache_lines(args.dx, args.ldx * static_cast<std::int64_t>(sizeof(Scalar)))) {}
    GradientRows(const GradientRows&) = delete;
    GradientRows& operator=(const GradientRows&) = delete;
    ~GradientRows() {
        if constexpr (requires { F::drain(); }) {
            if (streamed_) F::drain();
        }
    }

    /// Null where dx is not asked for.
    [[nodiscard]] Scalar* row(std::int64_t r) const {
        return args_.dx == nullptr ? nullptr : static_cast<Scalar*>(args_.dx) + r * args_.ldx;
    }
    void store(Scalar* to, typename F::V dx) const {
        const typename F::V x = F::mul(dx, factor_);
        if constexpr (requires { F::stream(to, x); }) {
            if (streamed_) return F::stream(to, x);
        }
        F::store(to, x);
    }
    /// Zeros outside `columns` of a row of `count`.
    void clear(Scalar* row, Span columns, std::int32_t count) const {
        for (std::int64_t c = 0; c < columns.begin; c += F::lanes) store(row + c, F::zero());
        for (std::int64_t c = columns.end; c < count; c += F::lanes) store(row + c, F::zero());
    }

  private:
    const SoftmaxBackwardArgs& args_;
    typename F::V factor_;
    bool streamed_;
};

/// P over s and dS over dp, in place (f32, f64).
template <class F, bool Terms>
void softmax_backward_pass(const SoftmaxBackwardArgs& args) {
    using V = typename F::V;
    using Scalar = typename F::Scalar;
    const V scale = F::set1(static_cast<Scalar>(args.scale));
    [[maybe_unused]] const GradientRows<F> gradient(args);
    for (std::int64_t r = 0; r < args.rows; ++r) {
        auto* s = static_cast<Scalar*>(args.s) + r * args.lds;
        auto* dp = static_cast<Scalar*>(args.dp) + r * args.lds;
        const std::uint16_t* bits = args.visible == nullptr ? nullptr : args.visible + r * args.row_words;
        const Span columns = row_columns(args.column_span, r, args.columns);
        const RowStatistics<F> row(args, r);
        [[maybe_unused]] const RowTerms<F> terms(args.terms, args.scale, r, args.row_words);
        [[maybe_unused]] Scalar* dx_row = gradient.row(r);
        clear<F>(s, 0, columns.begin);
        clear<F>(dp, 0, columns.begin);
        clear<F>(s, columns.end, args.columns);
        clear<F>(dp, columns.end, args.columns);
        if constexpr (Terms) {
            if (dx_row != nullptr) gradient.clear(dx_row, columns, args.columns);
        }
        with_lanes<F>(bits, [&](const auto lanes) {
            for (std::int64_t c = columns.begin; c < columns.end; c += F::lanes) {
                V p;
                V ds;
                if constexpr (Terms) {
                    V dx;
                    gradient_with_terms<F>(F::load(s + c), F::load(dp + c), terms, c, row, lanes(c), p, ds, dx);
                    if (dx_row != nullptr) gradient.store(dx_row + c, dx);
                } else {
                    gradient_of_scores<F>(F::load(s + c), F::load(dp + c), scale, row, lanes(c), p, ds);
                }
                F::store(s + c, p);
                F::store(dp + c, ds);
            }
        });
    }
}

template <class F>
void softmax_backward(const SoftmaxBackwardArgs& args) {
    if (has_terms(args.terms) || args.dx != nullptr) {
        softmax_backward_pass<F, true>(args);
    } else {
        softmax_backward_pass<F, false>(args);
    }
}

/// acc[r] *= factor[r] where the running maximum moved.
template <class F>
void rescale_rows(const RescaleArgs& args) {
    using Scalar = typename F::Scalar;
    const auto* factor = static_cast<const Scalar*>(args.factor);
    for (std::int64_t r = 0; r < args.rows; ++r) {
        if (factor[r] == 1) continue;
        auto* acc = static_cast<Scalar*>(args.acc) + r * args.ld;
        const typename F::V f = F::set1(factor[r]);
        for (std::int64_t c = 0; c < args.columns; c += F::lanes) F::store(acc + c, F::mul(F::load(acc + c), f));
    }
}
