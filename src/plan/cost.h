// SPDX-License-Identifier: Apache-2.0
//
// Operation counts: what every published figure is divided by. A visible pair costs 2·D + 2·Dv operations forward and
// 6·D + 4·Dv backward (five products), a multiply and an add counted apart. Recomputed or hidden pairs count nothing.
#pragma once

#include "plan/plan.h"
#include "problem/problem.h"

namespace fascore {

struct Cost {
    double visible_pairs = 0;  ///< over all batches and query heads, by the band
    double operations = 0;
    std::int64_t tiles_full = 0;
    std::int64_t tiles_partial = 0;
    std::int64_t tiles_skipped = 0;  ///< of the whole S1 × S2 grid in blocks of this plan
};

[[nodiscard]] Cost count_cost(const Problem& problem, const Plan& plan);

}  // namespace fascore
