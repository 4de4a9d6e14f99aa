// SPDX-License-Identifier: Apache-2.0
//
// Vector vocabulary, AVX-512 (F, BW, VL, DQ): 16 lanes of f32, 8 of f64, 32 registers. Same names as every header in
// this folder; body/*.h is written in them alone.
//
// Included inside an unnamed namespace by isa/*.cpp: no include here, no object at namespace scope, nothing with
// external linkage.

struct F32 {
    using Scalar = float;
    using Word = std::uint32_t;
    using V = __m512;
    using M = __mmask16;
    static constexpr int lanes = 16;

    static V zero() { return _mm512_setzero_ps(); }
    static V set1(float x) { return _mm512_set1_ps(x); }
    static V load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, V x) { _mm512_storeu_ps(p, x); }
    static void stream(float* p, V x) { _mm512_stream_ps(p, x); }  // past the cache; p on a vector boundary
    static void drain() { _mm_sfence(); }                          // before anyone may read what was streamed
    static V add(V a, V b) { return _mm512_add_ps(a, b); }
    static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
    static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
    static V div(V a, V b) { return _mm512_div_ps(a, b); }
    static V max(V a, V b) { return _mm512_max_ps(a, b); }
    static V min(V a, V b) { return _mm512_min_ps(a, b); }
    static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }    // a·b + c
    static V fnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }  // c − a·b

    static M not_less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }  // !(a < b), true for NaN
    static M both(M a, M b) { return static_cast<M>(a & b); }
    static M mask_all() { return static_cast<M>(0xFFFF); }
    static V mul_keep(M m, V a, V b) { return _mm512_maskz_mul_ps(m, a, b); }  // a·b, or 0
    static V blend(M m, V a, V b) { return _mm512_mask_blend_ps(m, b, a); }    // a where m, else b
    static M mask_bits(std::uint32_t bits) { return static_cast<M>(bits); }    // low `lanes` bits

    // 2^n · p in the lanes of m, else 0; n is the integer in the low bits of t = x + magic.
    static constexpr float magic = 12582912.0F;  // 1.5 · 2^23
    static constexpr float polynomial_factor = 1.0F;
    static V power(M m, V p, V n, V /*t*/) { return _mm512_maskz_scalef_ps(m, p, n); }

    static bool any_nan(V a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
    static float sum(V a) { return _mm512_reduce_add_ps(a); }
    static float maximum(V a) { return _mm512_reduce_max_ps(a); }

    static V load_f16(const std::uint16_t* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static V load_bf16(const std::uint16_t* p) {
        const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
        return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
    }
    static void store_f16(std::uint16_t* p, V x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    // Round to nearest even in integers: exact for subnormals too, which vcvtneps2bf16 flushes.
    static void store_bf16(std::uint16_t* p, V x) {
        const __m512i bits = _mm512_castps_si512(x);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
        const M nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
    }

    // dst[c·dst_ld + r] = src[r·src_ld + c] for 16×16 words: interleave pairs, quads, then 128-bit lanes.
    static constexpr int transpose_size = 16;
    static void transpose(const std::uint32_t* src, std::int64_t src_ld, std::uint32_t* dst, std::int64_t dst_ld) {
        __m512i r[16];
        __m512i t[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(src + i * src_ld);
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += 2) {
            t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
            t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 16; i += 4) {  // r[i + c]: column c of each 128-bit lane, rows i … i+3
            r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
            r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
            r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
            r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
        }
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
            t[c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);           // lanes 0, 2 of rows 0-3 and 4-7
            t[4 + c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xDD);       // lanes 1, 3
            t[8 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);  // the same of rows 8-15
            t[12 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xDD);
        }
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
            _mm512_storeu_si512(dst + c * dst_ld, _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88));
            _mm512_storeu_si512(dst + (8 + c) * dst_ld, _mm512_shuffle_i32x4(t[c], t[8 + c], 0xDD));
            _mm512_storeu_si512(dst + (4 + c) * dst_ld, _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88));
            _mm512_storeu_si512(dst + (12 + c) * dst_ld, _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xDD));
        }
    }
};

struct F64 {
    using Scalar = double;
    using Word = std::uint64_t;
    using V = __m512d;
    using M = __mmask8;
    static constexpr int lanes = 8;

    static V zero() { return _mm512_setzero_pd(); }
    static V set1(double x) { return _mm512_set1_pd(x); }
    static V load(const double* p) { return _mm512_loadu_pd(p); }
    static void store(double* p, V x) { _mm512_storeu_pd(p, x); }
    static V add(V a, V b) { return _mm512_add_pd(a, b); }
    static V sub(V a, V b) { return _mm512_sub_pd(a, b); }
    static V mul(V a, V b) { return _mm512_mul_pd(a, b); }
    static V div(V a, V b) { return _mm512_div_pd(a, b); }
    static V max(V a, V b) { return _mm512_max_pd(a, b); }
    static V min(V a, V b) { return _mm512_min_pd(a, b); }
    static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
    static V fnma(V a, V b, V c) { return _mm512_fnmadd_pd(a, b, c); }

    static M not_less(V a, V b) { return _mm512_cmp_pd_mask(a, b, _CMP_NLT_UQ); }
    static M both(M a, M b) { return static_cast<M>(a & b); }
    static M mask_all() { return static_cast<M>(0xFF); }
    static V mul_keep(M m, V a, V b) { return _mm512_maskz_mul_pd(m, a, b); }
    static V blend(M m, V a, V b) { return _mm512_mask_blend_pd(m, b, a); }
    static M mask_bits(std::uint32_t bits) { return static_cast<M>(bits); }

    static constexpr double magic = 6755399441055744.0;  // 1.5 · 2^52
    static constexpr double polynomial_factor = 1.0;
    static V power(M m, V p, V n, V /*t*/) { return _mm512_maskz_scalef_pd(m, p, n); }

    static bool any_nan(V a) { return _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q) != 0; }
    static double sum(V a) { return _mm512_reduce_add_pd(a); }
    static double maximum(V a) { return _mm512_reduce_max_pd(a); }
};
