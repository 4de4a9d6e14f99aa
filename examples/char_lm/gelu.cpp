// SPDX-License-Identifier: Apache-2.0
//
// GELU and its gradient. Four million times a step the model needs e^x here, which the standard library computes one
// at a time; it would take a fifth of the whole training. So the f32 form uses an exponential that the compiler can
// vectorise, in functions compiled once per instruction set (the linker picks the machine's at start-up).
//
//   e^x = 2^n · e^r      n = round(x / log 2)      r = x − n·log 2, |r| ≤ 0.347
//
// e^r by its series up to r⁶/720: the first missing term is r⁷/5040 ≤ 1.2e-7, one unit in the last place of an f32.
#include <bit>
#include <cmath>

#include "layers.h"

// Sanitizers instrument the function that picks the clone, which runs before they are ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CHAR_LM_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define CHAR_LM_CLONES
#endif

namespace char_lm {
namespace {

[[gnu::always_inline]] inline double exponential(double x) { return std::exp(x); }

[[gnu::always_inline]] inline float exponential(float x) {
    x = x < -87.0F ? -87.0F : x;  // 2^n must stay a normal number
    x = x > 87.0F ? 87.0F : x;
    // Adding 1.5·2²³ leaves no room for a fraction: the sum is rounded to n, which then stands in its lowest bits.
    constexpr float rounder = 12582912.0F;
    const float shifted = x * 1.44269504F + rounder;
    const float n = shifted - rounder;
    const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // log 2 in two parts, the first exact times n
    const float series =
        1 + r * (1 + r * (1.0F / 2 + r * (1.0F / 6 + r * (1.0F / 24 + r * (1.0F / 120 + r * (1.0F / 720))))));
    const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(rounder);
    return series * std::bit_cast<float>((exponent + 127) << 23);
}

// 2u = slope · (x + cubic · x³)
template <class Real>
constexpr Real slope = Real(1.5957691216057308);  // 2 · √(2/π)
template <class Real>
constexpr Real cubic = Real(0.044715);

template <class Real>
[[gnu::always_inline]] inline void forward_piece(const Real* x, Index count, Real* y) {
    for (Index i = 0; i < count; ++i) {
        const Real twice_u = slope<Real> * (x[i] + cubic<Real> * x[i] * x[i] * x[i]);
        const Real sigma = 1 / (1 + exponential(-twice_u));
        y[i] = x[i] * sigma;
    }
}

template <class Real>
[[gnu::always_inline]] inline void backward_piece(const Real* x, const Real* dy, Index count, Real* dx) {
    for (Index i = 0; i < count; ++i) {
        const Real twice_u = slope<Real> * (x[i] + cubic<Real> * x[i] * x[i] * x[i]);
        const Real sigma = 1 / (1 + exponential(-twice_u));
        // forward: 2u = slope · (x + cubic · x³)
        const Real dtwice_u_dx = slope<Real> * (1 + 3 * cubic<Real> * x[i] * x[i]);
        // forward: σ = 1 / (1 + e^(−2u))
        const Real dsigma_dx = sigma * (1 - sigma) * dtwice_u_dx;
        // forward: y = x · σ
        dx[i] = dy[i] * (sigma + x[i] * dsigma_dx);
    }
}

CHAR_LM_CLONES void forward(const float* x, Index count, float* y) { forward_piece(x, count, y); }
CHAR_LM_CLONES void backward(const float* x, const float* dy, Index count, float* dx) {
    backward_piece(x, dy, count, dx);
}
void forward(const double* x, Index count, double* y) { forward_piece(x, count, y); }
void backward(const double* x, const double* dy, Index count, double* dx) { backward_piece(x, dy, count, dx); }

}  // namespace

template <class Real>
void gelu(const Real* x, Index count, Real* y) {
    parallel_ranges(count, elements_per_task,
                    [=](Index first, Index last) { forward(x + first, last - first, y + first); });
}

template <class Real>
void gelu_backward(const Real* x, const Real* dy, Index count, Real* dx) {
    parallel_ranges(count, elements_per_task,
                    [=](Index first, Index last) { backward(x + first, dy + first, last - first, dx + first); });
}

template void gelu(const float*, Index, float*);
template void gelu(const double*, Index, double*);
template void gelu_backward(const float*, const float*, Index, float*);
template void gelu_backward(const double*, const double*, Index, double*);

}  // namespace char_lm
