// SPDX-License-Identifier: Apache-2.0
//
// Vector vocabulary, AVX2 + FMA + F16C: 8 lanes of f32, 4 of f64, 16 registers. Masks are vectors of all-ones or zero.

struct F32 {
    using Scalar = float;
    using Word = std::uint32_t;
    using V = __m256;
    using M = __m256;
    static constexpr int lanes = 8;

    static V zero() { return _mm256_setzero_ps(); }
    static V set1(float x) { return _mm256_set1_ps(x); }
    static V load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, V x) { _mm256_storeu_ps(p, x); }
    static void stream(float* p, V x) { _mm256_stream_ps(p, x); }
    static void drain() { _mm_sfence(); }
    static V add(V a, V b) { return _mm256_add_ps(a, b); }
    static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
    static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
    static V div(V a, V b) { return _mm256_div_ps(a, b); }
    static V max(V a, V b) { return _mm256_max_ps(a, b); }
    static V min(V a, V b) { return _mm256_min_ps(a, b); }
    static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
    static V fnma(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }

    static M not_less(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
    static M both(M a, M b) { return _mm256_and_ps(a, b); }
    static M mask_all() { return _mm256_castsi256_ps(_mm256_set1_epi32(-1)); }
    static V mul_keep(M m, V a, V b) { return _mm256_and_ps(m, mul(a, b)); }
    static V blend(M m, V a, V b) { return _mm256_blendv_ps(b, a, m); }
    static M mask_bits(std::uint32_t bits) {
        const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit);
        return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit));
    }

    // No scalef: the exponent field of 2^(n−1) is n + 126, which the magic number leaves in the low bits of t.
    static constexpr float magic = 12582912.0F + 126.0F;
    static constexpr float polynomial_factor = 2.0F;
    static V power(M m, V p, V /*n*/, V t) {
        return mul_keep(m, p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23)));
    }

    static bool any_nan(V a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }
    static float sum(V a) {
        __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        x = _mm_add_ss(x, _mm_movehdup_ps(x));
        return _mm_cvtss_f32(x);
    }
    static float maximum(V a) {
        __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        x = _mm_max_ps(x, _mm_movehl_ps(x, x));
        x = _mm_max_ss(x, _mm_movehdup_ps(x));
        return _mm_cvtss_f32(x);
    }

    static V load_f16(const std::uint16_t* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static V load_bf16(const std::uint16_t* p) {
        const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
        return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }
    static void store_f16(std::uint16_t* p, V x) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static void store_bf16(std::uint16_t* p, V x) {
        const __m256i bits = _mm256_castps_si256(x);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
        const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        const __m256i chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
        const __m128i low = _mm256_castsi256_si128(chosen);
        const __m128i high = _mm256_extracti128_si256(chosen, 1);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packus_epi32(low, high));
    }

    // 8×8 words: interleave pairs, quads, then 128-bit lanes.
    static constexpr int transpose_size = 8;
    static void transpose(const std::uint32_t* src, std::int64_t src_ld, std::uint32_t* dst, std::int64_t dst_ld) {
        __m256i r[8];
        __m256i t[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i * src_ld));
#pragma GCC unroll 4
        for (int i = 0; i < 8; i += 2) {
            t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
            t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
            r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
            r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
            r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
            r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
        }
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + c * dst_ld),
                                _mm256_permute2x128_si256(r[c], r[4 + c], 0x20));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + (4 + c) * dst_ld),
                                _mm256_permute2x128_si256(r[c], r[4 + c], 0x31));
        }
    }
};

struct F64 {
    using Scalar = double;
    using Word = std::uint64_t;
    using V = __m256d;
    using M = __m256d;
    static constexpr int lanes = 4;

    static V zero() { return _mm256_setzero_pd(); }
    static V set1(double x) { return _mm256_set1_pd(x); }
    static V load(const double* p) { return _mm256_loadu_pd(p); }
    static void store(double* p, V x) { _mm256_storeu_pd(p, x); }
    static V add(V a, V b) { return _mm256_add_pd(a, b); }
    static V sub(V a, V b) { return _mm256_sub_pd(a, b); }
    static V mul(V a, V b) { return _mm256_mul_pd(a, b); }
    static V div(V a, V b) { return _mm256_div_pd(a, b); }
    static V max(V a, V b) { return _mm256_max_pd(a, b); }
    static V min(V a, V b) { return _mm256_min_pd(a, b); }
    static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
    static V fnma(V a, V b, V c) { return _mm256_fnmadd_pd(a, b, c); }

    static M not_less(V a, V b) { return _mm256_cmp_pd(a, b, _CMP_NLT_UQ); }
    static M both(M a, M b) { return _mm256_and_pd(a, b); }
    static M mask_all() { return _mm256_castsi256_pd(_mm256_set1_epi32(-1)); }
    static V mul_keep(M m, V a, V b) { return _mm256_and_pd(m, mul(a, b)); }
    static V blend(M m, V a, V b) { return _mm256_blendv_pd(b, a, m); }
    static M mask_bits(std::uint32_t bits) {
        const __m256i bit = _mm256_setr_epi64x(1, 2, 4, 8);
        const __m256i set = _mm256_and_si256(_mm256_set1_epi64x(static_cast<long long>(bits)), bit);
        return _mm256_castsi256_pd(_mm256_cmpeq_epi64(set, bit));
    }

    static constexpr double magic = 6755399441055744.0 + 1022.0;
    static constexpr double polynomial_factor = 2.0;
    static V power(M m, V p, V /*n*/, V t) {
        return mul_keep(m, p, _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(t), 52)));
    }

    static bool any_nan(V a) { return _mm256_movemask_pd(_mm256_cmp_pd(a, a, _CMP_UNORD_Q)) != 0; }
    static double sum(V a) {
        __m128d x = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
        return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
    }
    static double maximum(V a) {
        __m128d x = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
        return _mm_cvtsd_f64(_mm_max_sd(x, _mm_unpackhi_pd(x, x)));
    }
};
