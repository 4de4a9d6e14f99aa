// SPDX-License-Identifier: Apache-2.0
//
// The layers of the model other than attention, each as a forward and a backward function over plain arrays.
//
// Activations are row-major [rows, width]; a row is one position of one sequence, rows = B·S. In a backward function
// dX means ∂loss/∂X. A gradient named with a leading "+" in the comments is added to, so that a value that is used
// twice collects both shares; every other output is overwritten.
#pragma once

#include "common.h"

namespace char_lm {

using Token = std::int32_t;

/// x[row] = table[token[row]] + positions[row mod S].                   table [V, width], positions [≥ S, width]
template <class Real>
void embed(const Token* tokens, const Real* table, const Real* positions, Index B, Index S, Index width, Real* x);
/// +dtable, +dpositions.
template <class Real>
void embed_backward(const Token* tokens, const Real* dx, Index B, Index S, Index width, Real* dtable, Real* dpositions);

/// y = gain ∘ x · r with r = 1/√(mean(x²) + 1e-5), row by row; r is kept for the backward.
template <class Real>
void rms_norm(const Real* x, const Real* gain, Index rows, Index width, Real* y, Real* r);
/// +dx, +dgain.
template <class Real>
void rms_norm_backward(const Real* x, const Real* gain, const Real* r, const Real* dy, Index rows, Index width,
                       Real* dx, Real* dgain);

/// y = x · W.                                                            x [rows, in], W [in, out], y [rows, out]
template <class Real>
void linear(const Real* x, const Real* W, Index rows, Index in, Index out, Real* y);
/// dx, +dW.
template <class Real>
void linear_backward(const Real* x, const Real* W, const Real* dy, Index rows, Index in, Index out, Real* dx, Real* dW);

/// y = x · σ(2u) with u = √(2/π) · (x + 0.044715 x³): the tanh form of GELU, since ½(1 + tanh u) = σ(2u).
template <class Real>
void gelu(const Real* x, Index count, Real* y);
/// dx.
template <class Real>
void gelu_backward(const Real* x, const Real* dy, Index count, Real* dx);

/// x += y.
template <class Real>
void add(Real* x, const Real* y, Index count);

/// The mean over all rows of −log softmax(logits)[target], and its gradient by the logits.
template <class Real>
double cross_entropy(const Real* logits, const Token* targets, Index rows, Index vocabulary, Real* dlogits);

}  // namespace char_lm
