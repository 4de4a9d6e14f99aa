// SPDX-License-Identifier: Apache-2.0
//
// The terms of a score beyond the product, as the passes of softmax.h apply them, and their tiles:
//
//   x = cap(scale·s) + bias         cap(z) = c · tanh(z/c)         cap'(z) = 1 − tanh²(z/c)
//
// tanh from e' = e^(−2|z|) − 1, which keeps its digits near 0 because e' is then taken from the polynomial of e^x
// without its leading 1 (exp.h): tanh |z| = −e'/(2 + e'), 1 − tanh² = 4·(1 + e')/(2 + e')². No cancellation in either.
//
// The loops over elements (slopes, sums) are plain: each ISA's compiler flags turn them into its vectors, and every sum
// has a fixed order.

/// e^u − 1 for u ≤ 0.
template <class F>
inline typename F::V exp_minus_one(typename F::V u) {
    using K = ExpConstants<F>;
    using V = typename F::V;
    V q = F::set1(K::q[K::degree - 1]);
#pragma GCC unroll 16
    for (int i = K::degree - 2; i >= 0; --i) q = F::fma(q, u, F::set1(K::q[i]));
    const V near = F::fma(F::mul(u, u), q, u);
    const V far = F::sub(exp_vector<F, Above::never>(u, F::mask_all()), F::set1(1));
    return F::blend(F::not_less(u, F::set1(static_cast<typename F::Scalar>(-0.34))), near, far);
}

/// tanh(z), and 1 − tanh²(z) in `slope`.
template <class F>
inline typename F::V tanh_vector(typename F::V z, typename F::V& slope) {
    using V = typename F::V;
    const V minus_z = F::sub(F::zero(), z);
    const V magnitude = F::max(minus_z, z);
    const V e = exp_minus_one<F>(F::mul(magnitude, F::set1(-2)));
    const V inverse = F::div(F::set1(1), F::add(F::set1(2), e));
    const V t = F::mul(e, inverse);
    slope = F::mul(F::mul(F::set1(4), F::add(F::set1(1), e)), F::mul(inverse, inverse));
    return F::blend(F::not_less(z, F::zero()), F::sub(F::zero(), t), t);
}

inline bool has_terms(const ScoreTerms& terms) {
    return terms.bias != nullptr || terms.softcap != 0 || terms.keep != nullptr;
}

/// ScoreTerms of one row, spread over vectors.
template <class F>
struct RowTerms {
    using V = typename F::V;
    using Scalar = typename F::Scalar;
    V scale;
    V cap;
    V cap_inverse;
    V keep_factor;
    const Scalar* bias;
    const std::uint16_t* keep;
    bool capped;

    RowTerms(const ScoreTerms& terms, double score_scale, std::int64_t row, std::int64_t row_words)
        : scale(F::set1(static_cast<Scalar>(score_scale))),
          cap(F::set1(static_cast<Scalar>(terms.softcap))),
          cap_inverse(F::set1(static_cast<Scalar>(terms.softcap != 0 ? 1 / terms.softcap : 0))),
          keep_factor(F::set1(static_cast<Scalar>(terms.keep_factor))),
          bias(terms.bias == nullptr ? nullptr : static_cast<const Scalar*>(terms.bias) + row * terms.ldb),
          keep(terms.keep == nullptr ? nullptr : terms.keep + row * row_words),
          capped(terms.softcap != 0) {}

    /// x of the scores at column c, and cap' of them.
    V score(V s, std::int64_t c, V& slope) const {
        V x = F::mul(s, scale);
        slope = F::set1(1);
        if (capped) x = F::mul(cap, tanh_vector<F>(F::mul(x, cap_inverse), slope));
        if (bias != nullptr) x = F::add(x, F::load(bias + c));
        return x;
    }
    /// `x` where kept, 0 elsewhere.
    V kept(V x, std::int64_t c) const {
        if (keep == nullptr) return x;
        return F::blend(visible_lanes<F>(keep, c), x, F::zero());
    }
    /// The same, over keep_prob.
    V dropped(V x, std::int64_t c) const {
        if (keep == nullptr) return x;
        return F::blend(visible_lanes<F>(keep, c), F::mul(x, keep_factor), F::zero());
    }
};

// ---- tiles ----

template <class F>
void hide_infinite(const HideArgs& args) {
    using Scalar = typename F::Scalar;
    constexpr auto hidden = -static_cast<Scalar>(__builtin_inff());
    for (std::int64_t r = 0; r < args.rows; ++r) {
        if (args.flags[r] == 0) continue;
        const auto* bias = static_cast<const Scalar*>(args.bias) + r * args.ld;
        std::uint16_t* words = args.words + r * args.row_words;
        for (std::int64_t w = 0; w < args.columns / 16; ++w) {
            std::uint32_t bits = 0;
            for (int i = 0; i < 16; ++i) bits |= static_cast<std::uint32_t>(bias[16 * w + i] == hidden) << i;
            words[w] = static_cast<std::uint16_t>(words[w] & ~bits);
        }
    }
}

/// Distance of column c of a row to the diagonal, or its root.
template <class Scalar>
inline Scalar slope_distance(std::int64_t offset, std::int64_t c, bool root) {
    const auto distance = static_cast<Scalar>(static_cast<std::int32_t>(offset + c));
    const Scalar magnitude = distance < 0 ? -distance : distance;
    if constexpr (sizeof(Scalar) == 4) {
        return root ? __builtin_sqrtf(magnitude) : magnitude;
    } else {
        return root ? __builtin_sqrt(magnitude) : magnitude;
    }
}

template <class F>
void slope_bias(const SlopeArgs& args) {
    using Scalar = typename F::Scalar;
    const auto slope = static_cast<Scalar>(args.slope);
    for (std::int64_t r = 0; r < args.rows; ++r) {
        auto* dst = static_cast<Scalar*>(args.dst) + r * args.ld;
        const std::int64_t offset = args.first - r;
        if (args.root) {
            for (std::int64_t c = 0; c < args.columns; ++c) dst[c] = -(slope * slope_distance<Scalar>(offset, c, true));
        } else {
            for (std::int64_t c = 0; c < args.columns; ++c) {
                dst[c] = -(slope * slope_distance<Scalar>(offset, c, false));
            }
        }
    }
}

template <class F>
double slope_sum(const SlopeArgs& args) {
    using Scalar = typename F::Scalar;
    double total = 0;
    for (std::int64_t r = 0; r < args.rows; ++r) {
        const auto* dx = static_cast<const Scalar*>(args.dst) + r * args.ld;
        const std::int64_t offset = args.first - r;
        double sum[8] = {};
        for (std::int64_t c = 0; c < args.columns; c += 8) {  // rows are padded with zeros to 16
            for (std::int64_t i = 0; i < 8; ++i) {
                sum[i] += static_cast<double>(dx[c + i]) *
                          static_cast<double>(slope_distance<Scalar>(offset, c + i, args.root));
            }
        }
        total += ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
    }
    return total;
}

template <class F>
void add_tile(const AddArgs& args) {
    using Scalar = typename F::Scalar;
    for (std::int64_t r = 0; r < args.rows; ++r) {
        const auto* src = static_cast<const Scalar*>(args.src) + r * args.ld;
        auto* dst = static_cast<Scalar*>(args.dst) + r * args.dst_row;
        if (args.dst_column == 1) {
            for (std::int64_t c = 0; c < args.columns; ++c) dst[c] += src[c];
        } else {
            for (std::int64_t c = 0; c < args.columns; ++c) dst[c * args.dst_column] += src[c];
        }
    }
}
