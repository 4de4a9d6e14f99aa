// SPDX-License-Identifier: Apache-2.0
//
// Vector vocabulary, NEON on AArch64: 4 lanes of f32, 2 of f64, 32 registers. The 16-byte compiler vectors of
// portable.h are NEON registers already; what they cannot name is the fused multiply-add.

struct OneRounding {
    static Float4 fma(Float4 a, Float4 b, Float4 c) {
        return vfmaq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b));
    }
    static Float4 fnma(Float4 a, Float4 b, Float4 c) {
        return vfmsq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b));
    }
    static Double2 fma(Double2 a, Double2 b, Double2 c) {
        return vfmaq_f64(float64x2_t(c), float64x2_t(a), float64x2_t(b));
    }
    static Double2 fnma(Double2 a, Double2 b, Double2 c) {
        return vfmsq_f64(float64x2_t(c), float64x2_t(a), float64x2_t(b));
    }
};

using F32 = PortableF32<OneRounding>;
using F64 = PortableF64<OneRounding>;
