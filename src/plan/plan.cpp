// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>

#include "base/dtype.h"
#include "plan/blocking.h"

namespace fascore {

namespace {

constexpr std::int64_t span_bytes = 8;      // kernels::Span
constexpr std::int64_t control_bytes = 64;  // one cache line a slot
constexpr std::int64_t word_count = 16;     // words of a transpose block
constexpr std::int64_t quantised_block = 128;

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }
std::int64_t divide_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

// Panels of equal width: 80 columns in vectors of 16 are 48 + 32, not 64 + 16, since a register tile one vector wide
// has too few chains.
PanelForm panel_form(const KernelShape& shape, std::int64_t columns, std::int64_t steps) {
    const std::int64_t vectors = divide_up(columns, shape.lanes);
    const std::int64_t panels = divide_up(vectors, shape.nr / shape.lanes);
    PanelForm form;
    form.width = divide_up(vectors, panels) * shape.lanes;
    form.pitch = form.width;
    form.panel_bytes = form.width * steps * shape.word_bytes;
    form.bytes = form.panel_bytes * panels;
    return form;
}

// The by_rows form of a matrix [rows][columns] whose rows form has leading dimension ld.
PanelForm by_rows_form(const KernelShape& shape, std::int64_t columns, std::int64_t rows, std::int64_t ld) {
    PanelForm form = panel_form(shape, columns, divide_up(rows, shape.step));
    if (shape.step > 1) return form;
    form.pitch = ld;
    form.panel_bytes = form.width * shape.word_bytes;
    form.bytes = rows * ld * shape.word_bytes;
    return form;
}

// Rows a multiple of 512 bytes apart would share 8 of the 64 sets of an L1: one line more.
std::int64_t leading_dimension(const KernelShape& shape, std::int64_t columns) {
    const std::int64_t line = 64 / shape.element_bytes();
    return columns % (8 * line) == 0 ? columns + line : columns;
}

void book_forward(const Problem& problem, Plan& plan) {
    const KernelShape& shape = plan.shape;
    Workspace& ledger = plan.workspace;
    ForwardBuffers& buffers = plan.forward;
    const std::int64_t acc = shape.acc_bytes;
    const std::int64_t element = shape.element_bytes();
    buffers.control = ledger.book("control", control_bytes, plan.slots);
    buffers.pack_state = ledger.book("pack state", plan.column_blocks * 4, plan.slots);
    buffers.key_panels = ledger.book("key panels", plan.column_blocks * plan.key_columns.bytes, plan.slots);
    buffers.value_panels = ledger.book("value panels", plan.column_blocks * plan.value_panels.bytes, plan.slots);
    buffers.value_flags = ledger.book("value flags", plan.column_blocks * plan.Bc, plan.slots);
    const std::int64_t loaded = plan.rows_are_panels ? plan.D_ld : std::max(plan.D_ld, plan.Dv_ld);
    buffers.load = ledger.book("kv rows", plan.Bc * loaded * element, plan.threads);
    buffers.query_rows = ledger.book("query rows", plan.Br * plan.D_ld * element, plan.threads);
    buffers.scores = ledger.book("scores", plan.Br * plan.tile_ld * acc, plan.threads);
    buffers.weights = ledger.book("weights", shape.step > 1 ? plan.Br * plan.tile_ld * element : 0, plan.threads);
    buffers.out = ledger.book("out accumulator", plan.Br * plan.Dv_pad * acc, plan.threads);
    buffers.statistics = ledger.book("row statistics", 5 * plan.Br * acc, plan.threads);
    const std::int64_t bits = plan.Br * plan.row_words * 2;
    buffers.mask_words = ledger.book("mask bits", bits, plan.threads);
    buffers.keep_words = ledger.book("keep bits", problem.dropout.active ? bits : 0, plan.threads);
    buffers.bias = ledger.book("bias", problem.bias.present() ? plan.Br * plan.tile_ld * acc : 0, plan.threads);
    buffers.spans = ledger.book("spans", 2 * plan.Br * span_bytes, plan.threads);
}

// The sums of a broadcast pse have its own shape, densely; those of a compressed one [B or 1, N1, 1024, columns].
// Additions of one element are made in turn: of one kv block after the other where every batch and head adds to the
// same column of blocks, or of whole heads where the elements of different kv blocks meet.
DpseSums dpse_sums(const Problem& problem, const Plan& plan) {
    DpseSums sums;
    const Bias& bias = problem.bias;
    if (!problem.dpse.wanted || bias.slopes() || !bias.present()) return sums;
    const bool compressed = bias.compressed();
    if (!compressed && !bias.over_batches && !bias.over_heads && !bias.over_rows) return sums;
    const std::int64_t batches = bias.over_batches ? 1 : problem.B;
    const std::int64_t heads = bias.over_heads ? 1 : problem.N1;
    std::int64_t rows = bias.over_rows ? 1 : problem.S1;
    if (compressed) rows = compressed_rows;
    sums.stride.d = 1;
    sums.stride.s = bias.over_rows ? 0 : problem.S2;
    if (problem.packed && !compressed) {
        // Sequences lie one after the other: [N1, Skv] each.
        sums.elements = problem.N1 * problem.T2;
        sums.stride = {0, 0, 0, 1};
        sums.turns = problem.N1 * problem.B * plan.column_blocks;
        return sums;
    }
    sums.stride.n = bias.over_heads ? 0 : rows * problem.S2;
    sums.stride.b = bias.over_batches ? 0 : heads * rows * problem.S2;
    sums.elements = batches * heads * rows * problem.S2;
    sums.turns = batches * heads * (compressed ? 1 : plan.column_blocks);
    return sums;
}

void book_backward(const Problem& problem, Plan& plan) {
    const KernelShape& shape = plan.shape;
    Workspace& ledger = plan.workspace;
    BackwardBuffers& buffers = plan.backward;
    const std::int64_t acc = shape.acc_bytes;
    const std::int64_t element = shape.element_bytes();
    const std::int64_t blocks = problem.G * plan.ring;
    const std::int64_t panels = plan.rows_are_panels ? 0 : blocks;
    const std::int64_t words = shape.step > 1 ? divide_up(plan.Br, shape.step) * plan.tile_ld * shape.word_bytes : 0;
    buffers.control = ledger.book("control", control_bytes, plan.slots);
    buffers.pack_state = ledger.book("pack state", blocks * 4, plan.slots);
    const std::int64_t streams = Grid::dq_streams_of(plan.column_blocks * plan.Bc);
    buffers.turn = ledger.book("dq turns", streams * blocks * 4, plan.slots);
    buffers.pending = ledger.book("dq pending", blocks * 4, plan.slots);
    buffers.query_rows = ledger.book("query rows", blocks * plan.Br * plan.D_ld * element, plan.slots);
    buffers.query_panels = ledger.book("query panels", panels * plan.query_panels.bytes, plan.slots);
    buffers.dy_rows = ledger.book("dy rows", blocks * plan.Br * plan.Dv_ld * element, plan.slots);
    buffers.dy_panels = ledger.book("dy panels", panels * plan.dy_panels.bytes, plan.slots);
    buffers.dq = ledger.book("dq accumulators", streams * blocks * plan.Br * plan.D_pad * acc, plan.slots);
    buffers.statistics = ledger.book("row statistics", blocks * 3 * plan.Br * acc, plan.slots);
    buffers.flags = ledger.book("row flags", blocks * 2 * plan.Br, plan.slots);
    const std::int64_t loaded = plan.rows_are_panels ? plan.Dv_ld : std::max(plan.D_ld, plan.Dv_ld);
    buffers.load = ledger.book("kv rows", plan.Bc * loaded * element, plan.threads);
    const std::int64_t clean = plan.rows_are_panels ? std::max(plan.D_ld, plan.Dv_ld) : 0;
    buffers.clean = ledger.book("clean rows", plan.Br * clean * element, plan.threads);
    buffers.key_columns = ledger.book("key columns", plan.key_columns.bytes, plan.threads);
    buffers.value_columns = ledger.book("value columns", plan.value_columns.bytes, plan.threads);
    buffers.key_panels = ledger.book("key panels", plan.key_panels.bytes, plan.threads);
    buffers.key_flags = ledger.book("key flags", plan.Bc, plan.threads);
    buffers.scores = ledger.book("scores", plan.Br * plan.tile_ld * acc, plan.threads);
    buffers.dp = ledger.book("dp", plan.Br * plan.tile_ld * acc, plan.threads);
    buffers.p_depth = ledger.book("p", words, plan.threads);
    buffers.ds_depth = ledger.book("ds", words, plan.threads);
    buffers.ds_rows = ledger.book("ds rows", shape.step > 1 ? plan.Br * plan.tile_ld * element : 0, plan.threads);
    buffers.dk = ledger.book("dk accumulator", plan.Bc * plan.D_pad * acc, plan.threads);
    buffers.dv = ledger.book("dv accumulator", plan.Bc * plan.Dv_pad * acc, plan.threads);
    const std::int64_t bits = plan.Br * plan.row_words * 2;
    const std::int64_t tile = plan.Br * plan.tile_ld * acc;
    buffers.mask_words = ledger.book("mask bits", bits, plan.threads);
    buffers.keep_words = ledger.book("keep bits", problem.dropout.active ? bits : 0, plan.threads);
    buffers.bias = ledger.book("bias", problem.bias.present() ? tile : 0, plan.threads);
    buffers.dx = ledger.book("dx", problem.dpse.wanted ? tile : 0, plan.threads);
    const std::int64_t heads = problem.B * problem.N1;
    buffers.dsink = ledger.book("dsink sums", problem.dsink.wanted ? heads * (plan.row_blocks + 1) * 8 : 0, 1);
    const bool slopes = problem.dpse.wanted && problem.bias.slopes();
    buffers.dslope = ledger.book("slope sums", slopes ? heads * plan.column_blocks * 8 : 0, 1);
    buffers.dpse_sums = dpse_sums(problem, plan);
    buffers.dpse = ledger.book("dpse sums", buffers.dpse_sums.elements * acc, 1);
    buffers.dpse_turn = ledger.book("dpse turns", buffers.dpse_sums.turns * 4, 1);
    buffers.spans = ledger.book("spans", (2 * plan.Br + plan.Bc) * span_bytes, plan.threads);
}

// Floor division for negative numerators.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// Batches of a TND call by falling number of tiles; equals stay in order.
std::vector<std::int32_t> longest_first(const Problem& problem) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(problem.B));
    std::vector<double> work(order.size());
    for (std::size_t b = 0; b < order.size(); ++b) {
        order[b] = static_cast<std::int32_t>(b);
        const Sequence& sequence = problem.sequences[b];
        work[b] = visible_pairs(sequence.band, sequence.S1, sequence.S2);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return work[static_cast<std::size_t>(a)] > work[static_cast<std::size_t>(b)];
    });
    return order;
}

Range clamp_blocks(std::int64_t first, std::int64_t last, std::int64_t blocks) {
    Range range{std::max<std::int64_t>(first, 0), std::min(last + 1, blocks)};
    if (range.empty()) return {0, 0};
    return range;
}

}  // namespace

// Tile (I, J) sees something when its differences j − i, a run of integers from j0 − (i1−1) to (j1−1) − i0, meet
// [lower, upper], or [lower, cap] for the columns before the prefix. Blocks are clipped to what is live at their near
// end; a clipped last block only shortens the run at its far end, which cannot matter inside the live range.
Range Grid::row_blocks_of(std::int64_t J) const {
    if (row_blocks == 0) return {0, 0};
    const Range block = column_block(J);
    const std::int64_t nearest = std::max(block.begin, first_column);
    const std::int64_t first = nearest - (nearest < band.prefix ? band.cap : band.upper);
    const std::int64_t last = block.end - 1 - band.lower;
    return clamp_blocks(floor_divide(first - rows.begin, Br), floor_divide(last - rows.begin, Br), row_blocks);
}

Range Grid::column_blocks_of(std::int64_t I) const {
    if (column_blocks == 0) return {0, 0};
    const Range block = row_block(I);
    const std::int64_t first = std::max(block.begin, first_row) + band.lower;
    std::int64_t last = block.end - 1 + band.upper;
    if (band.prefix > 0) last = std::max(last, std::min(block.end - 1 + band.cap, band.prefix - 1));
    return clamp_blocks(floor_divide(first - columns.begin, Bc), floor_divide(last - columns.begin, Bc), column_blocks);
}

std::int64_t Grid::most_row_blocks() const {
    std::int64_t most = 0;
    for (std::int64_t J = 0; J < column_blocks && most < row_blocks; ++J)
        most = std::max(most, row_blocks_of(J).size());
    return most;
}

Grid Plan::grid(const Band& band, std::int64_t S1, std::int64_t S2) const {
    Grid grid;
    grid.band = band;
    grid.Br = Br;
    grid.Bc = Bc;
    grid.rows = live_rows(band, S1, S2);
    grid.columns = live_columns(band, S1, S2);
    if (grid.rows.empty() || grid.columns.empty()) {
        grid.rows = {};
        grid.columns = {};
        return grid;
    }
    grid.first_row = grid.rows.begin;
    grid.first_column = grid.columns.begin;
    grid.rows.begin -= grid.rows.begin % row_raster;
    grid.columns.begin -= grid.columns.begin % column_raster;
    if (Br > 0) grid.row_blocks = divide_up(grid.rows.size(), Br);
    if (Bc > 0) grid.column_blocks = divide_up(grid.columns.size(), Bc);
    return grid;
}

Grid grid_of(const Problem& problem, const Plan& plan, std::int64_t b) {
    if (problem.sequences.empty()) return plan.grid(problem.band, problem.S1, problem.S2);
    const Sequence& sequence = problem.sequences[static_cast<std::size_t>(b)];
    return plan.grid(sequence.band, sequence.S1, sequence.S2);
}

Work count_work(const Problem& problem, const Plan& plan) {
    Work work;
    const bool forward = problem.direction == Direction::forward;
    const auto count = [&](const Grid& grid, std::int64_t batches) {
        work.tasks += (forward ? problem.G * grid.row_blocks : grid.column_blocks) * problem.N2 * batches;
        std::int64_t tiles = 0;
        for (std::int64_t I = 0; I < grid.row_blocks; ++I) tiles += grid.column_blocks_of(I).size();
        work.tiles += tiles * problem.N1 * batches;
    };
    if (problem.sequences.empty()) {
        count(grid_of(problem, plan, 0), problem.B);
    } else {
        for (std::int64_t b = 0; b < problem.B; ++b) count(grid_of(problem, plan, b), 1);
    }
    return work;
}

Plan make_plan(const Problem& problem, const KernelShape& shape, int threads) {
    Plan plan;
    plan.shape = shape;
    if (problem.empty()) return plan;
    const bool eight_bits = is_8bit(problem.dtype);
    if (eight_bits) plan.row_raster = plan.column_raster = quantised_block;
    if (problem.dropout.generated) plan.column_raster = std::max<std::int64_t>(plan.column_raster, granule);

    // The largest grid of any batch, in rows and columns first.
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    const std::int64_t kinds = problem.sequences.empty() ? 1 : problem.B;
    for (std::int64_t b = 0; b < kinds; ++b) {
        const Grid grid = grid_of(problem, plan, b);
        rows = std::max(rows, grid.rows.size());
        columns = std::max(columns, grid.columns.size());
    }
    Blocking blocking = choose_blocking(problem.direction, shape);
    if (eight_bits) blocking = {quantised_block, quantised_block};
    // A block never needs to be larger than the problem; sizes stay whole granules so the panels keep their form.
    plan.Br = std::min(blocking.Br, round_up(std::max<std::int64_t>(rows, 1), 2));
    plan.Bc = std::min(blocking.Bc, round_up(std::max<std::int64_t>(columns, 1), granule));
    plan.row_blocks = divide_up(rows, plan.Br);
    plan.column_blocks = divide_up(columns, plan.Bc);
    plan.units = problem.B * problem.N2;
    if (problem.packed) plan.order = longest_first(problem);
    const std::int64_t tasks =
        problem.direction == Direction::forward ? problem.G * plan.row_blocks : plan.column_blocks;
    plan.threads = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, plan.units * tasks));
    plan.slots = std::min(plan.threads, plan.units);
    if (problem.direction == Direction::backward) {
        std::int64_t most = 0;
        for (std::int64_t b = 0; b < kinds && most < plan.row_blocks; ++b) {
            most = std::max(most, grid_of(problem, plan, b).most_row_blocks());
        }
        plan.ring = std::min(plan.row_blocks, most + plan.threads * divide_up(plan.Bc, plan.Br));
    }

    plan.rows_are_panels = shape.step == 1;
    plan.D_pad = round_up(problem.D, granule);
    plan.Dv_pad = round_up(problem.Dv, granule);
    plan.D_row = round_up(problem.D, word_count * shape.step);
    plan.Dv_row = round_up(problem.Dv, word_count * shape.step);
    plan.D_ld = leading_dimension(shape, plan.D_row);
    plan.Dv_ld = leading_dimension(shape, plan.Dv_row);
    plan.tile_ld = plan.Bc + granule;  // one line more here too
    plan.row_words = plan.Bc / granule;

    plan.key_columns = panel_form(shape, plan.Bc, plan.D_row / shape.step);
    plan.value_columns = panel_form(shape, plan.Bc, plan.Dv_row / shape.step);
    plan.key_panels = by_rows_form(shape, plan.D_pad, plan.Bc, plan.D_ld);
    plan.value_panels = by_rows_form(shape, plan.Dv_pad, plan.Bc, plan.Dv_ld);
    plan.query_panels = by_rows_form(shape, plan.D_pad, plan.Br, plan.D_ld);
    plan.dy_panels = by_rows_form(shape, plan.Dv_pad, plan.Br, plan.Dv_ld);
    if (problem.direction == Direction::forward) {
        book_forward(problem, plan);
    } else {
        book_backward(problem, plan);
    }
    return plan;
}

}  // namespace fascore
