// SPDX-License-Identifier: Apache-2.0
//
// e^x on a vector, to 2 ulp for −86.5 ≤ x; exactly 0 below (a weight under 3·10⁻³⁸ of the largest), NaN for NaN, Inf
// above the type's range. f64: the same from −708.
//
//   t = x · log2(e) + magic      adding 1.5·2^23 leaves the nearest integer n in the low bits
//   n = t − magic
//   r = x − n · ln 2             in two parts, ln2_high short enough that n·ln2_high is exact
//   e^x = 2^n · (1 + r + r²·q(r))        |r| ≤ ln2/2; q is a minimax polynomial (error of e^r: 3·10⁻⁹, f64 4·10⁻¹⁸)
//
// Why not exp2 of a pre-scaled argument: scores reach 10¹¹ (tests NUM-01) and the maximum must cancel exactly before
// anything is multiplied. `polynomial_factor` is 2 where `power` shifts exponents (it then forms 2^(n−1), which stays
// in range up to the largest finite result).

template <class F>
struct ExpConstants;

template <>
struct ExpConstants<F32> {
    static constexpr int degree = 5;
    static constexpr float q[degree] = {0.499999934478F, 0.166665206317F, 0.0416683880453F, 0.00836871687973F,
                                        0.00138145986467F};
    static constexpr float log2e = 1.44269504F;
    static constexpr float ln2_high = 0x1.62e4p-1F;
    static constexpr float ln2_low = 0x1.7f7d1cp-20F;
    static constexpr float lowest = -86.5F;
    static constexpr float highest = 89.0F;
};

template <>
struct ExpConstants<F64> {
    static constexpr int degree = 10;
    static constexpr double q[degree] = {
        0.50000000000000106271,   0.16666666666666412523,    0.041666666666530158494,    0.0083333333334944616639,
        0.0013888888943630134161, 0.00019841269506578723932, 0.000024801493098887391545, 2.7557586373785180954e-6,
        2.763024838532302056e-7,  2.5000061625531279587e-8};
    static constexpr double log2e = 1.4426950408889634074;
    static constexpr double ln2_high = 0x1.62e42fefa38p-1;
    static constexpr double ln2_low = 0x1.ef35793c7673p-45;
    static constexpr double lowest = -708.0;
    static constexpr double highest = 710.0;
};

/// Whether arguments above 0 can come: only with statistics that are not the row's own, so only in the backward pass.
enum class Above : std::uint8_t { never, possible };

/// e^x in the lanes of `keep`, 0 elsewhere.
template <class F, Above above>
inline typename F::V exp_vector(typename F::V x, typename F::M keep) {
    using K = ExpConstants<F>;
    using V = typename F::V;
    constexpr typename F::Scalar c = F::polynomial_factor;
    const typename F::M lanes = F::both(keep, F::not_less(x, F::set1(K::lowest)));
    if constexpr (above == Above::possible) x = F::min(F::set1(K::highest), x);  // keeps n in range; NaN passes
    const V t = F::fma(x, F::set1(K::log2e), F::set1(F::magic));
    const V n = F::sub(t, F::set1(F::magic));
    V r = F::fnma(n, F::set1(K::ln2_high), x);
    r = F::fnma(n, F::set1(K::ln2_low), r);
    V q = F::set1(c * K::q[K::degree - 1]);
#pragma GCC unroll 16
    for (int i = K::degree - 2; i >= 0; --i) q = F::fma(q, r, F::set1(c * K::q[i]));
    q = F::fma(q, r, F::set1(c));
    q = F::fma(q, r, F::set1(c));
    return F::power(lanes, q, n, t);
}

template <class F>
void exp_array(const void* x, void* y, std::int64_t n) {
    const auto* in = static_cast<const typename F::Scalar*>(x);
    auto* out = static_cast<typename F::Scalar*>(y);
    for (std::int64_t i = 0; i < n; i += F::lanes)
        F::store(out + i, exp_vector<F, Above::possible>(F::load(in + i), F::mask_all()));
}
