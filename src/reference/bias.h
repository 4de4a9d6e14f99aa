// SPDX-License-Identifier: Apache-2.0
//
// The bias of a pair and its gradient, in every form of pse. Each is an element of pse times a weight that does not
// depend on pse, so one description serves both ways:
//
//   bias(i,j) = weight(i,j) · pse[element(n,i,j)]            dpse[element(n,i,j)] += weight(i,j) · dx(i,j)
//
//   form                          element                                        weight
//   pse_type 0, 1                 (n, i, j), broadcast axes not counted          1, scale
//   compressed, S1 = S2 > 1024    i ≥ S1 − 1024:  (n, i − (S1 − 1024), j)        1, scale
//                                 else, m = i mod 1024:  (n, m, S2 − (i − j) − (1024 − m))
//   compressed, TND               p = i − j − (maxSkv − 1024):  (n, max(p,0), max(−p,0))
//   pse_type 2, 3                 (n)                                            −t, −√t   t = |(j + k₀) − (i + q₀)|
//
// The compressed forms hold 1024 rows of a matrix that is constant along its diagonals; every line above names an
// element on the diagonal i − j of it:
//
//                  ·  .  .  .  .  .  .  .
//                  ·  ·  .  .  .  .  .  .      rows above: found on the same diagonal, further down
//       1024  ┌──  ·  ·  ·  ·  ·  ·  .  .
//       rows  └──  ·  ·  ·  ·  ·  ·  ·  .
//
// A tensor element of −∞ hides its pair.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "problem/problem.h"
#include "reference/tensors.h"

namespace fascore::reference {

struct BiasTerm {
    std::int64_t element = 0;  ///< offset in elements from the batch's first
    double weight = 1.0;
};

/// Of pair (i, j) of head n. `stride` is that of pse or of dpse.
[[nodiscard]] BiasTerm bias_term(const Batch& batch, const Strides& stride, std::int64_t n, std::int64_t i,
                                 std::int64_t j);

/// The element of pse that the pair reads.
[[nodiscard]] double pse_element(const Batch& batch, const BiasTerm& term);

/// True when that element takes the pair out.
[[nodiscard]] bool hides(const Bias& bias, double element);

/// Adds dx of a pair to the element of dpse that the pair reads; sums in Real.
template <class Real>
void add_to_dpse(const Batch& batch, std::int64_t n, std::int64_t i, std::int64_t j, Real dx) {
    const BiasTerm term = bias_term(batch, batch.dpse.stride, n, i, j);
    add_to(batch.dpse, term.element, static_cast<Real>(term.weight) * dx);
}

/// How dpse of a call is walked: extents along b, n, s, d.
struct DpseExtents {
    std::int64_t b = 1;
    std::int64_t n = 1;
    std::int64_t s = 1;
    std::int64_t d = 1;
};
[[nodiscard]] DpseExtents dpse_extents(const Problem& problem);

/// Sets every element of dpse to change(its value), for the whole call.
template <class Change>
void each_dpse(const Problem& problem, Change change) {
    const DpseExtents extents = dpse_extents(problem);
    const Strides& stride = problem.dpse.stride;
    for (std::int64_t b = 0; b < extents.b; ++b) {
        for (std::int64_t n = 0; n < extents.n; ++n) {
            for (std::int64_t s = 0; s < extents.s; ++s) {
                for (std::int64_t d = 0; d < extents.d; ++d) {
                    std::byte* at = element(problem.dpse, b * stride.b + n * stride.n + s * stride.s + d * stride.d);
                    store_scalar(at, problem.dpse.dtype, change(load_scalar(at, problem.dpse.dtype)));
                }
            }
        }
    }
}

}  // namespace fascore::reference
