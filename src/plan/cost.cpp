// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

namespace fascore {

namespace {

void count_batch(const Grid& grid, std::int64_t S1, std::int64_t S2, std::int64_t heads, Cost& cost) {
    cost.visible_pairs += visible_pairs(grid.band, S1, S2) * static_cast<double>(heads);
    std::int64_t full = 0;
    std::int64_t partial = 0;
    for (std::int64_t I = 0; I < grid.row_blocks; ++I) {
        const Range blocks = grid.column_blocks_of(I);
        for (std::int64_t J = blocks.begin; J < blocks.end; ++J) {
            switch (classify(grid.band, grid.row_block(I), grid.column_block(J))) {
                case TileClass::full: ++full; break;
                case TileClass::partial: ++partial; break;
                case TileClass::empty: break;
            }
        }
    }
    const std::int64_t all = ((S1 + grid.Br - 1) / grid.Br) * ((S2 + grid.Bc - 1) / grid.Bc);
    cost.tiles_full += full * heads;
    cost.tiles_partial += partial * heads;
    if (all > full + partial) cost.tiles_skipped += (all - full - partial) * heads;
}

}  // namespace

Cost count_cost(const Problem& problem, const Plan& plan) {
    Cost cost;
    if (problem.empty()) return cost;
    if (problem.sequences.empty()) {
        count_batch(grid_of(problem, plan, 0), problem.S1, problem.S2, problem.B * problem.N1, cost);
    } else {
        for (std::int64_t b = 0; b < problem.B; ++b) {
            const Sequence& sequence = problem.sequences[static_cast<std::size_t>(b)];
            count_batch(grid_of(problem, plan, b), sequence.S1, sequence.S2, problem.N1, cost);
        }
    }
    const auto D = static_cast<double>(problem.D);
    const auto Dv = static_cast<double>(problem.Dv);
    const double a_pair = problem.direction == Direction::forward ? 2 * D + 2 * Dv : 6 * D + 4 * Dv;
    cost.operations = cost.visible_pairs * a_pair;
    return cost;
}

}  // namespace fascore
