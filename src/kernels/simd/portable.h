// SPDX-License-Identifier: Apache-2.0
//
// Vector vocabulary without an ISA: 16-byte compiler vectors, 4 lanes of f32, 2 of f64. On x86-64 this is SSE2. There
// is no fused multiply-add to name, so `fma` is a product and a sum, each rounded (-ffp-contract=off keeps it so).
//
// The two types share everything but their widths; `Fused` lets neon.h name the fused instruction instead.

using Float4 = float __attribute__((vector_size(16)));
using Double2 = double __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));
using Long2 = std::int64_t __attribute__((vector_size(16)));
using Unsigned4 = std::uint32_t __attribute__((vector_size(16)));  // where arithmetic on bits may wrap
using Unsigned2 = std::uint64_t __attribute__((vector_size(16)));

struct TwoRoundings {
    template <class V>
    static V fma(V a, V b, V c) {
        return a * b + c;
    }
    template <class V>
    static V fnma(V a, V b, V c) {
        return c - a * b;
    }
};

template <class S, class Vector, class Mask, class Integer, class Fused>
struct Portable {
    using Scalar = S;
    using V = Vector;
    using M = Mask;
    static constexpr int lanes = 16 / sizeof(S);

    static V zero() { return V{}; }
    static V set1(S x) { return x - V{}; }
    static V load(const S* p) {
        V x;
        std::memcpy(&x, p, sizeof x);
        return x;
    }
    static void store(S* p, V x) { std::memcpy(p, &x, sizeof x); }
    static void stream(S* p, V x) { store(p, x); }  // no portable way past the cache
    static void drain() {}
    static V add(V a, V b) { return a + b; }
    static V sub(V a, V b) { return a - b; }
    static V mul(V a, V b) { return a * b; }
    static V div(V a, V b) { return a / b; }
    static V max(V a, V b) { return blend(a > b, a, b); }  // b when either is NaN, as on x86
    static V min(V a, V b) { return blend(a < b, a, b); }
    static V fma(V a, V b, V c) { return Fused::fma(a, b, c); }
    static V fnma(V a, V b, V c) { return Fused::fnma(a, b, c); }

    static M not_less(V a, V b) { return ~(a < b); }
    static M both(M a, M b) { return a & b; }
    static M mask_all() { return ~M{}; }
    static V mul_keep(M m, V a, V b) { return bits(m & integer(a * b)); }
    static V blend(M m, V a, V b) { return bits((m & integer(a)) | (~m & integer(b))); }
    static M mask_bits(std::uint32_t word) {
        M m{};
        for (int i = 0; i < lanes; ++i) m[i] = -static_cast<Integer>((word >> i) & 1U);
        return m;
    }

    static bool any_nan(V a) {
        const S total = sum(a);
        return total != total;
    }
    static S sum(V a) {
        S pair[lanes];
        store(pair, a);
        if constexpr (lanes == 4) return (pair[0] + pair[2]) + (pair[1] + pair[3]);
        return pair[0] + pair[1];
    }
    static S maximum(V a) {
        S lane[lanes];
        store(lane, a);
        S largest = lane[0];
        for (int i = 1; i < lanes; ++i) largest = largest > lane[i] ? largest : lane[i];
        return largest;
    }

    static M integer(V a) {
        M m;
        std::memcpy(&m, &a, sizeof m);
        return m;
    }
    static V bits(M m) {
        V a;
        std::memcpy(&a, &m, sizeof a);
        return a;
    }
};

template <class Fused>
struct PortableF32 : Portable<float, Float4, Int4, std::int32_t, Fused> {
    using Base = Portable<float, Float4, Int4, std::int32_t, Fused>;
    using Word = std::uint32_t;
    using V = Float4;

    // The exponent field of 2^(n−1) is n + 126, which the magic number leaves in the low bits of t.
    static constexpr float magic = 12582912.0F + 126.0F;
    static constexpr float polynomial_factor = 2.0F;
    static V power(Int4 m, V p, V /*n*/, V t) {
        return Base::mul_keep(m, p, Base::bits(Int4(Unsigned4(Base::integer(t)) << 23)));
    }

    static V load_bf16(const std::uint16_t* p) {
        Int4 wide;
        for (int i = 0; i < 4; ++i) wide[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(p[i]) << 16);
        return Base::bits(wide);
    }
    static void store_bf16(std::uint16_t* p, V x) {
        const auto word = Unsigned4(Base::integer(x));
        const auto nan = Unsigned4(x != x);
        const Unsigned4 rounded = (nan & (word | 0x00400000U)) | (~nan & (word + 0x7FFFU + ((word >> 16) & 1U)));
        for (int i = 0; i < 4; ++i) p[i] = static_cast<std::uint16_t>(rounded[i] >> 16);
    }
    // As base/dtype.h, lane by lane.
    static V load_f16(const std::uint16_t* p) {
        V x;
        for (int i = 0; i < 4; ++i) {
            const std::uint32_t sign = static_cast<std::uint32_t>(p[i] & 0x8000U) << 16;
            const std::uint32_t magnitude = p[i] & 0x7FFFU;
            std::uint32_t word = (magnitude << 13) + (112U << 23);
            if (magnitude >= 0x7C00U) word = 0x7F800000U | (magnitude & 0x3FFU) << 13;
            if (magnitude < 0x0400U) {
                const float value = static_cast<float>(magnitude) * 0x1p-24F;
                std::memcpy(&word, &value, sizeof word);
            }
            word |= sign;
            float lane;
            std::memcpy(&lane, &word, sizeof lane);
            x[i] = lane;
        }
        return x;
    }
    static void store_f16(std::uint16_t* p, V x) {
        for (int i = 0; i < 4; ++i) {
            const float lane = x[i];
            std::uint32_t word;
            std::memcpy(&word, &lane, sizeof word);
            const std::uint32_t sign = (word >> 16) & 0x8000U;
            const std::uint32_t magnitude = word & 0x7FFFFFFFU;
            std::uint32_t half;
            if (magnitude > 0x7F800000U) {
                half = 0x7E00U | ((magnitude >> 13) & 0x1FFU);
            } else if (magnitude >= 0x477FF000U) {
                half = 0x7C00U;
            } else if (magnitude < 0x38800000U) {
                float shifted;
                std::memcpy(&shifted, &magnitude, sizeof shifted);
                shifted += 0.5F;
                std::memcpy(&half, &shifted, sizeof half);
                half -= 0x3F000000U;
            } else {
                half = (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
            }
            p[i] = static_cast<std::uint16_t>(sign | half);
        }
    }

    static constexpr int transpose_size = 4;
    static void transpose(const std::uint32_t* src, std::int64_t src_ld, std::uint32_t* dst, std::int64_t dst_ld) {
        for (int c = 0; c < 4; ++c) {
            for (int r = 0; r < 4; ++r) dst[c * dst_ld + r] = src[r * src_ld + c];
        }
    }
};

template <class Fused>
struct PortableF64 : Portable<double, Double2, Long2, std::int64_t, Fused> {
    using Base = Portable<double, Double2, Long2, std::int64_t, Fused>;
    using Word = std::uint64_t;
    using V = Double2;

    static constexpr double magic = 6755399441055744.0 + 1022.0;
    static constexpr double polynomial_factor = 2.0;
    static V power(Long2 m, V p, V /*n*/, V t) {
        return Base::mul_keep(m, p, Base::bits(Long2(Unsigned2(Base::integer(t)) << 52)));
    }
};
