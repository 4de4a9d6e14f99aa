// SPDX-License-Identifier: Apache-2.0
//
// The plan alone, no kernel linked: the grid covers what is visible, once; a tile is in a row's range exactly when it
// is in the column's; sizes do not depend on the thread count; the ledger adds up and stays linear.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "plan/blocking.h"
#include "plan/cost.h"

namespace fascore {
namespace {

KernelShape f32_shape() { return {64, 16, 1, 4, 4}; }
KernelShape bf16_shape() { return {64, 16, 2, 4, 4}; }
KernelShape f64_shape() { return {16, 4, 1, 8, 8}; }

Problem band_problem(Direction direction, std::int64_t S1, std::int64_t S2, Band band) {
    Problem problem;
    problem.direction = direction;
    problem.B = 1;
    problem.N1 = 2;
    problem.N2 = 1;
    problem.G = 2;
    problem.S1 = S1;
    problem.S2 = S2;
    problem.D = 64;
    problem.Dv = 64;
    problem.band = band;
    problem.dq.wanted = problem.dk.wanted = problem.dv.wanted = true;
    return problem;
}

TEST(Plan, RowsAndColumnsAgreeOnTheTilesTheySee) {
    const std::vector<std::int64_t> sizes{1, 5, 97, 130, 300, 517};
    const std::vector<std::int64_t> limits{-600, -200, -97, -3, 0, 1, 64, 250, 600};
    int tiles = 0;
    for (const std::int64_t S1 : sizes) {
        for (const std::int64_t S2 : sizes) {
            for (const std::int64_t lower : limits) {
                for (const std::int64_t upper : limits) {
                    const Problem problem = band_problem(Direction::backward, S1, S2, {lower, upper});
                    const Grid grid = grid_of(problem, make_plan(problem, f32_shape(), 1), 0);
                    for (std::int64_t I = 0; I < grid.row_blocks; ++I) {
                        const Range columns = grid.column_blocks_of(I);
                        for (std::int64_t J = 0; J < grid.column_blocks; ++J) {
                            const Range rows = grid.row_blocks_of(J);
                            const bool by_row = columns.begin <= J && J < columns.end;
                            const bool by_column = rows.begin <= I && I < rows.end;
                            const TileClass kind = classify(problem.band, grid.row_block(I), grid.column_block(J));
                            ASSERT_EQ(by_row, by_column) << S1 << ' ' << S2 << ' ' << lower << ' ' << upper;
                            ASSERT_EQ(by_row, kind != TileClass::empty)
                                << S1 << ' ' << S2 << ' ' << lower << ' ' << upper << " tile " << I << ',' << J;
                            ++tiles;
                        }
                    }
                }
            }
        }
    }
    EXPECT_GT(tiles, 2000) << "the grid above has thinned out";
}

TEST(Plan, GridStartsAtTheFirstLiveRowAndColumn) {
    // Bottom-right causal, 300 × 40: rows 0 … 259 see nothing.
    const Problem problem = band_problem(Direction::backward, 300, 40, {-340, -260});
    const Grid grid = grid_of(problem, make_plan(problem, f32_shape(), 1), 0);
    EXPECT_EQ(grid.rows.begin, 260);
    EXPECT_EQ(grid.rows.end, 300);
    EXPECT_EQ(grid.columns.begin, 0);
    EXPECT_EQ(grid.columns.end, 40);
}

TEST(Plan, CutDoesNotDependOnTheThreadCount) {
    const Problem problem = band_problem(Direction::backward, 700, 700, {-1400, 0});
    const Plan one = make_plan(problem, bf16_shape(), 1);
    for (const int threads : {2, 3, 64}) {
        const Plan many = make_plan(problem, bf16_shape(), threads);
        EXPECT_EQ(many.Br, one.Br);
        EXPECT_EQ(many.Bc, one.Bc);
        EXPECT_EQ(many.row_blocks, one.row_blocks);
        EXPECT_EQ(many.column_blocks, one.column_blocks);
        EXPECT_LE(many.threads, many.units * many.column_blocks);
    }
}

TEST(Plan, BlockSizesDoNotDependOnTheLengthOnceItIsLong) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
        const Plan small = make_plan(band_problem(direction, 1000, 1000, {-2000, 2000}), f32_shape(), 1);
        const Plan large = make_plan(band_problem(direction, 50000, 50000, {-100000, 100000}), f32_shape(), 1);
        EXPECT_EQ(small.Br, large.Br);
        EXPECT_EQ(small.Bc, large.Bc);
    }
}

TEST(Plan, PanelsAreOfEqualWidth) {
    Problem problem = band_problem(Direction::backward, 100, 100, {-200, 200});
    problem.D = 80;  // 5 vectors of 16: 48 + 32, not 64 + 16
    const Plan pairs = make_plan(problem, bf16_shape(), 1);
    EXPECT_EQ(pairs.D_pad, 80);
    EXPECT_EQ(pairs.key_panels.width, 48);
    EXPECT_EQ(pairs.key_panels.pitch, 48);
    EXPECT_EQ(pairs.key_panels.bytes, 2 * pairs.key_panels.panel_bytes);
    // Where a word is one element the panels lie side by side in the rows.
    const Plan plain = make_plan(problem, f32_shape(), 1);
    EXPECT_EQ(plain.key_panels.width, 48);
    EXPECT_EQ(plain.key_panels.pitch, plain.D_ld);
    EXPECT_EQ(plain.key_panels.panel_bytes, 48 * 4);
    EXPECT_EQ(plain.key_panels.bytes, plain.Bc * plain.D_ld * 4);
}

TEST(Plan, RowsDoNotShareCacheSets) {
    for (const std::int64_t D : {1, 16, 64, 100, 128, 192, 256, 768}) {
        Problem problem = band_problem(Direction::backward, 100, 100, {-200, 200});
        problem.D = problem.Dv = D;
        for (const KernelShape& shape : {f32_shape(), bf16_shape(), f64_shape()}) {
            const Plan plan = make_plan(problem, shape, 1);
            EXPECT_GE(plan.D_ld, plan.D_row);
            EXPECT_EQ(plan.Dv_ld, plan.D_ld);
            EXPECT_NE(plan.D_ld * shape.element_bytes() % 512, 0) << D;
        }
    }
}

// The ring of query blocks: what one kv block sees has room, and no kv block that comes later sees what lies before.
// Then the lowest unfinished kv block waits for nobody (engine/backward.cpp).
TEST(Plan, ARingHoldsWhatOneKvBlockSees) {
    int rings = 0;
    for (const std::int64_t S1 : {1, 97, 517, 1500}) {
        for (const std::int64_t S2 : {1, 130, 600, 1500}) {
            for (const std::int64_t lower : {-3000, -400, -97, 0, 64}) {
                for (const std::int64_t upper : {-97, 0, 250, 3000}) {
                    for (const std::int64_t prefix : {0, 1, 300}) {
                        const Band band{lower, upper, std::min(prefix, S2), std::max<std::int64_t>(upper, 100)};
                        const Problem problem = band_problem(Direction::backward, S1, S2, band);
                        const Plan plan = make_plan(problem, f32_shape(), 2);
                        const Grid grid = grid_of(problem, plan, 0);
                        EXPECT_LE(plan.ring, std::max<std::int64_t>(plan.row_blocks, 1));
                        rings += plan.ring < plan.row_blocks ? 1 : 0;
                        for (std::int64_t J = 0; J < grid.column_blocks; ++J) {
                            const Range rows = grid.row_blocks_of(J);
                            ASSERT_LE(rows.size(), plan.ring);
                            for (std::int64_t I = 0; !rows.empty() && I < rows.begin; ++I) {
                                ASSERT_LE(grid.column_blocks_of(I).end, J);
                            }
                        }
                        for (std::int64_t I = 0; I < grid.row_blocks; ++I) {
                            ASSERT_FALSE(grid.column_blocks_of(I).empty()) << "nobody would ever free its place";
                        }
                    }
                }
            }
        }
    }
    EXPECT_GT(rings, 50) << "the table above has thinned out";
}

TEST(Plan, WorkspaceIsLinearInTheLength) {
    for (const KernelShape& shape : {f32_shape(), bf16_shape(), f64_shape()}) {
        for (const Direction direction : {Direction::forward, Direction::backward}) {
            const auto bytes = [&](std::int64_t S) {
                return static_cast<double>(
                    make_plan(band_problem(direction, S, S, {-2 * S, 2 * S}), shape, 2).workspace.total_bytes());
            };
            const std::int64_t S = 10240;  // whole blocks of any size
            EXPECT_NEAR((bytes(4 * S) - bytes(2 * S)) / (bytes(2 * S) - bytes(S)), 2.0, 0.01);
        }
    }
}

TEST(Plan, WorkspaceOfABandIsThatOfItsWindow) {
    for (const int threads : {1, 2, 16}) {
        const auto bytes = [&](std::int64_t S) {
            return make_plan(band_problem(Direction::backward, S, S, {-1023, 0}), f32_shape(), threads)
                .workspace.total_bytes();
        };
        EXPECT_EQ(bytes(8 << 20), bytes(16384)) << threads;
        EXPECT_LT(bytes(16384), (std::size_t{16} << 20) + std::size_t(threads) * (2U << 20)) << threads;
    }
}

TEST(Plan, WorkspaceOfALongSequenceIsSmall) {
    // S = 131072, D = 64, one head, bf16: S·D·(4 forms of 2 bytes and 4 streams of an f32 dq) are 192 MiB; far from S².
    const std::int64_t S = 131072;
    Problem problem = band_problem(Direction::backward, S, S, {-2 * S, 0});
    problem.N1 = problem.G = 1;
    const Plan plan = make_plan(problem, bf16_shape(), 1);
    EXPECT_LT(plan.workspace.total_bytes(), 200U << 20);
}

TEST(Blocking, WholeGranulesAndWholeSteps) {
    for (const KernelShape& shape : {f32_shape(), bf16_shape(), f64_shape()}) {
        for (const Direction direction : {Direction::forward, Direction::backward}) {
            const Blocking blocking = choose_blocking(direction, shape);
            EXPECT_GT(blocking.Br, 0);
            EXPECT_GT(blocking.Bc, 0);
            EXPECT_EQ(blocking.Bc % 16, 0);
            EXPECT_EQ(blocking.Br % shape.step, 0);
        }
    }
}

TEST(Workspace, BookingsDoNotOverlapAndFitTheTotal) {
    Workspace ledger;
    const auto a = ledger.book("a", 100, 3);
    const auto b = ledger.book("b", 4096, 2);
    const auto none = ledger.book("none", 0, 5);
    const auto c = ledger.book("c", 1, 1);
    std::vector<std::byte> block(ledger.total_bytes() + 7);
    for (int shift = 0; shift < 7; ++shift) {
        std::byte* start = block.data() + shift;
        const Grant grant(start);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(grant.at(a)) % 64, 0U);
        EXPECT_GE(grant.at(a, 1), grant.at(a, 0) + 100);
        EXPECT_GE(grant.at(b, 0), grant.at(a, 2) + 100);
        EXPECT_GE(grant.at(b, 1), grant.at(b, 0) + 4096);
        EXPECT_NE(grant.at(b, 1), grant.at(b, 0) + 4096) << "buffers a page apart share cache sets";
        EXPECT_EQ(none.pitch, 0);
        EXPECT_LE(grant.at(c) + 1, start + ledger.total_bytes());
    }
    EXPECT_EQ(Workspace{}.total_bytes(), 0U);
}

TEST(Cost, CountsVisiblePairsAndTiles) {
    const Problem causal = band_problem(Direction::backward, 1000, 1000, {-2000, 0});
    const Plan plan = make_plan(causal, f32_shape(), 1);
    const Cost cost = count_cost(causal, plan);
    EXPECT_DOUBLE_EQ(cost.visible_pairs, 2 * 1000.0 * 1001.0 / 2.0);
    EXPECT_DOUBLE_EQ(cost.operations, cost.visible_pairs * 10 * 64);
    const std::int64_t tiles = plan.row_blocks * plan.column_blocks * 2;
    EXPECT_EQ(cost.tiles_full + cost.tiles_partial + cost.tiles_skipped, tiles);
    EXPECT_GT(cost.tiles_skipped, tiles / 3) << "hidden blocks are never computed";
    const Problem forward = band_problem(Direction::forward, 10, 10, {-20, 20});
    EXPECT_DOUBLE_EQ(count_cost(forward, make_plan(forward, f32_shape(), 1)).operations, 2 * 100.0 * 4 * 64);
}

}  // namespace
}  // namespace fascore
