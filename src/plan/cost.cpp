// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

namespace fascore {

Cost count_cost(const Problem& problem, const Plan& plan) {
    Cost cost;
    if (problem.empty()) return cost;
    const auto D = static_cast<double>(problem.D);
    const auto Dv = static_cast<double>(problem.Dv);
    const std::int64_t heads = problem.B * problem.N1;
    cost.visible_pairs = visible_pairs(problem.band, problem.S1, problem.S2) * static_cast<double>(heads);
    const double a_pair = problem.direction == Direction::forward ? 2 * D + 2 * Dv : 6 * D + 4 * Dv;
    cost.operations = cost.visible_pairs * a_pair;
    for (std::int64_t I = 0; I < plan.row_blocks; ++I) {
        const Range blocks = column_blocks_of(plan, problem.band, I);
        for (std::int64_t J = blocks.begin; J < blocks.end; ++J) {
            switch (classify(problem.band, plan.row_block(I), plan.column_block(J))) {
                case TileClass::full: ++cost.tiles_full; break;
                case TileClass::partial: ++cost.tiles_partial; break;
                case TileClass::empty: break;
            }
        }
    }
    const std::int64_t Br = plan.Br > 0 ? plan.Br : problem.S1;
    const std::int64_t Bc = plan.Bc > 0 ? plan.Bc : problem.S2;
    const std::int64_t all = ((problem.S1 + Br - 1) / Br) * ((problem.S2 + Bc - 1) / Bc);
    const std::int64_t visited = cost.tiles_full + cost.tiles_partial;
    cost.tiles_skipped = all > visited ? all - visited : 0;
    cost.tiles_full *= heads;
    cost.tiles_partial *= heads;
    cost.tiles_skipped *= heads;
    return cost;
}

}  // namespace fascore
