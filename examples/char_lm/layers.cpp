// SPDX-License-Identifier: Apache-2.0
//
// The layers declared in layers.h, except GELU, which has its own file. In each backward function the forward line
// stands as a comment, and under it the line that differentiates it.
//
// Work is shared out by rows where each row has its own outputs, and by columns where a gradient sums over the rows:
// either way one thread makes each number, always in the same order.
#include "layers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "matmul.h"

namespace char_lm {
namespace {

/// Rows that make a task worth starting.
Index rows_per_task(Index width) { return std::max<Index>(1, elements_per_task / width); }

}  // namespace

// ---- embedding ------------------------------------------------------------------------------------------------------

template <class Real>
void embed(const Token* tokens, const Real* table, const Real* positions, Index B, Index S, Index width, Real* x) {
    parallel_ranges(B * S, rows_per_task(width), [&](Index first, Index last) {
        for (Index row = first; row < last; ++row) {
            const Real* token = table + tokens[row] * width;
            const Real* position = positions + row % S * width;
            for (Index c = 0; c < width; ++c) x[row * width + c] = token[c] + position[c];
        }
    });
}

template <class Real>
void embed_backward(const Token* tokens, const Real* dx, Index B, Index S, Index width, Real* dtable,
                    Real* dpositions) {
    // Rows that hold the same token add to the same place, hence one row after the other, shared out by columns.
    parallel_ranges(width, 16, [&](Index first, Index last) {
        for (Index row = 0; row < B * S; ++row) {
            Real* dtoken = dtable + tokens[row] * width;
            Real* dposition = dpositions + row % S * width;
            for (Index c = first; c < last; ++c) {
                // forward: x = token + position
                dtoken[c] += dx[row * width + c];
                dposition[c] += dx[row * width + c];
            }
        }
    });
}

// ---- RMSNorm --------------------------------------------------------------------------------------------------------

template <class Real>
void rms_norm(const Real* x, const Real* gain, Index rows, Index width, Real* y, Real* r) {
    parallel_ranges(rows, rows_per_task(width), [&](Index first, Index last) {
        for (Index row = first; row < last; ++row) {
            const Real* x_row = x + row * width;
            Real squares = 0;
            for (Index c = 0; c < width; ++c) squares += x_row[c] * x_row[c];
            r[row] = 1 / std::sqrt(squares / static_cast<Real>(width) + Real(1e-5));
            for (Index c = 0; c < width; ++c) y[row * width + c] = gain[c] * x_row[c] * r[row];
        }
    });
}

template <class Real>
void rms_norm_backward(const Real* x, const Real* gain, const Real* r, const Real* dy, Index rows, Index width,
                       Real* dx, Real* dgain) {
    parallel_ranges(rows, rows_per_task(width), [&](Index first, Index last) {
        for (Index row = first; row < last; ++row) {
            const Real* x_row = x + row * width;
            const Real* dy_row = dy + row * width;
            // forward: y = gain ∘ x · r                           as a function of r
            Real dr = 0;
            for (Index c = 0; c < width; ++c) dr += dy_row[c] * gain[c] * x_row[c];
            // forward: r = (squares / width + 1e-5)^(−1/2)        so dr/dsquares = −½ r³ / width
            const Real dsquares = dr * Real(-0.5) * r[row] * r[row] * r[row] / static_cast<Real>(width);
            for (Index c = 0; c < width; ++c) {
                // forward: y = gain ∘ x · r;  squares = Σ x²      as functions of x
                dx[row * width + c] += dy_row[c] * gain[c] * r[row] + dsquares * 2 * x_row[c];
            }
        }
    });
    parallel_ranges(width, 16, [&](Index first, Index last) {
        for (Index row = 0; row < rows; ++row) {
            for (Index c = first; c < last; ++c) {
                // forward: y = gain ∘ x · r                       as a function of gain, which all rows share
                dgain[c] += dy[row * width + c] * x[row * width + c] * r[row];
            }
        }
    });
}

// ---- linear ---------------------------------------------------------------------------------------------------------

template <class Real>
void linear(const Real* x, const Real* W, Index rows, Index in, Index out, Real* y) {
    matmul(Matrix(x, rows, in), Matrix(W, in, out), y, Write::replace);
}

template <class Real>
void linear_backward(const Real* x, const Real* W, const Real* dy, Index rows, Index in, Index out, Real* dx,
                     Real* dW) {
    // forward: y = x · W
    matmul(Matrix(dy, rows, out), Matrix(W, in, out).transposed(), dx, Write::replace);
    matmul(Matrix(x, rows, in).transposed(), Matrix(dy, rows, out), dW, Write::add);
}

// ---- sums and loss --------------------------------------------------------------------------------------------------

template <class Real>
void add(Real* x, const Real* y, Index count) {
    parallel_ranges(count, elements_per_task, [&](Index first, Index last) {
        for (Index i = first; i < last; ++i) x[i] += y[i];
    });
}

template <class Real>
double cross_entropy(const Real* logits, const Token* targets, Index rows, Index vocabulary, Real* dlogits) {
    std::vector<double> losses(static_cast<std::size_t>(rows));
    double* loss = losses.data();
    parallel_ranges(rows, rows_per_task(vocabulary), [&](Index first, Index last) {
        for (Index row = first; row < last; ++row) {
            const Real* x = logits + row * vocabulary;
            Real* dx = dlogits + row * vocabulary;
            const Real max = *std::max_element(x, x + vocabulary);
            Real sum = 0;
            for (Index v = 0; v < vocabulary; ++v) sum += dx[v] = std::exp(x[v] - max);
            // loss = log Σ e^x − x[target]
            loss[row] = static_cast<double>(std::log(sum) + max - x[targets[row]]);
            // so ∂loss/∂x = softmax(x) − onehot(target), and the mean divides it by the rows
            for (Index v = 0; v < vocabulary; ++v) dx[v] /= sum * static_cast<Real>(rows);
            dx[targets[row]] -= 1 / static_cast<Real>(rows);
        }
    });
    double total = 0;
    for (const double value : losses) total += value;
    return total / static_cast<double>(rows);
}

// ---- both precisions ------------------------------------------------------------------------------------------------

#define CHAR_LM_LAYERS(Real)                                                                                         \
    template void embed(const Token*, const Real*, const Real*, Index, Index, Index, Real*);                         \
    template void embed_backward(const Token*, const Real*, Index, Index, Index, Real*, Real*);                      \
    template void rms_norm(const Real*, const Real*, Index, Index, Real*, Real*);                                    \
    template void rms_norm_backward(const Real*, const Real*, const Real*, const Real*, Index, Index, Real*, Real*); \
    template void linear(const Real*, const Real*, Index, Index, Index, Real*);                                      \
    template void linear_backward(const Real*, const Real*, const Real*, Index, Index, Index, Real*, Real*);         \
    template void add(Real*, const Real*, Index);                                                                    \
    template double cross_entropy(const Real*, const Token*, Index, Index, Real*)
CHAR_LM_LAYERS(float);
CHAR_LM_LAYERS(double);
#undef CHAR_LM_LAYERS

}  // namespace char_lm
