// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>

#include "plan/blocking.h"

namespace fascore {

namespace {

constexpr std::int64_t span_bytes = 8;      // kernels::Span
constexpr std::int64_t control_bytes = 64;  // one cache line a slot
constexpr std::int64_t word_count = 16;     // words of a transpose block

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }
std::int64_t divide_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

// Panels of equal width: 80 columns in vectors of 16 are 48 + 32, not 64 + 16, since a register tile one vector wide
// has too few chains.
PanelForm panel_form(const KernelShape& shape, std::int64_t columns, std::int64_t steps) {
    const std::int64_t vectors = divide_up(columns, shape.lanes);
    const std::int64_t panels = divide_up(vectors, shape.nr / shape.lanes);
    PanelForm form;
    form.width = divide_up(vectors, panels) * shape.lanes;
    form.panel_bytes = form.width * steps * shape.word_bytes;
    form.bytes = form.panel_bytes * panels;
    return form;
}

void book_forward(Plan& plan) {
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
    buffers.load = ledger.book("kv rows", plan.Bc * std::max(plan.D_row, plan.Dv_row) * element, plan.threads);
    buffers.query_rows = ledger.book("query rows", plan.Br * plan.D_row * element, plan.threads);
    buffers.scores = ledger.book("scores", plan.Br * plan.tile_ld * acc, plan.threads);
    buffers.weights = ledger.book("weights", shape.step > 1 ? plan.Br * plan.tile_ld * element : 0, plan.threads);
    buffers.out = ledger.book("out accumulator", plan.Br * plan.Dv_pad * acc, plan.threads);
    buffers.statistics = ledger.book("row statistics", 3 * plan.Br * acc, plan.threads);
    buffers.mask_words = ledger.book("mask bits", plan.Br * plan.row_words * 2, plan.threads);
    buffers.spans = ledger.book("spans", 2 * plan.Br * span_bytes, plan.threads);
}

void book_backward(const Problem& problem, Plan& plan) {
    const KernelShape& shape = plan.shape;
    Workspace& ledger = plan.workspace;
    BackwardBuffers& buffers = plan.backward;
    const std::int64_t acc = shape.acc_bytes;
    const std::int64_t element = shape.element_bytes();
    const std::int64_t blocks = problem.G * plan.row_blocks;
    const std::int64_t words = shape.step > 1 ? divide_up(plan.Br, shape.step) * plan.tile_ld * shape.word_bytes : 0;
    buffers.control = ledger.book("control", control_bytes, plan.slots);
    buffers.pack_state = ledger.book("pack state", blocks * 4, plan.slots);
    buffers.turn = ledger.book("dq turns", blocks * 4, plan.slots);
    buffers.query_rows = ledger.book("query rows", blocks * plan.Br * plan.D_row * element, plan.slots);
    buffers.query_panels = ledger.book("query panels", blocks * plan.query_panels.bytes, plan.slots);
    buffers.dy_rows = ledger.book("dy rows", blocks * plan.Br * plan.Dv_row * element, plan.slots);
    buffers.dy_panels = ledger.book("dy panels", blocks * plan.dy_panels.bytes, plan.slots);
    buffers.dq = ledger.book("dq accumulator", blocks * plan.Br * plan.D_pad * acc, plan.slots);
    buffers.statistics = ledger.book("row statistics", blocks * 3 * plan.Br * acc, plan.slots);
    buffers.flags = ledger.book("row flags", blocks * 2 * plan.Br, plan.slots);
    buffers.load = ledger.book("kv rows", plan.Bc * std::max(plan.D_row, plan.Dv_row) * element, plan.threads);
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
    buffers.mask_words = ledger.book("mask bits", plan.Br * plan.row_words * 2, plan.threads);
    buffers.spans = ledger.book("spans", (2 * plan.Br + plan.Bc) * span_bytes, plan.threads);
}

// Floor division for negative numerators.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

Range clamp_blocks(std::int64_t first, std::int64_t last, std::int64_t blocks) {
    Range range{std::max<std::int64_t>(first, 0), std::min(last + 1, blocks)};
    if (range.empty()) return {0, 0};
    return range;
}

}  // namespace

// Tile (I, J) sees something when its differences j − i, a run of integers from j0 − (i1−1) to (j1−1) − i0, meet
// [lower, upper]. A clipped last block only shortens the run at its far end, which cannot matter inside the live range.
Range row_blocks_of(const Plan& plan, const Band& band, std::int64_t J) {
    if (plan.row_blocks == 0) return {0, 0};
    const Range columns = plan.column_block(J);
    const std::int64_t first_row = columns.begin - band.upper;
    const std::int64_t last_row = columns.end - 1 - band.lower;
    return clamp_blocks(floor_divide(first_row - plan.rows.begin, plan.Br),
                        floor_divide(last_row - plan.rows.begin, plan.Br), plan.row_blocks);
}

Range column_blocks_of(const Plan& plan, const Band& band, std::int64_t I) {
    if (plan.column_blocks == 0) return {0, 0};
    const Range rows = plan.row_block(I);
    const std::int64_t first_column = rows.begin + band.lower;
    const std::int64_t last_column = rows.end - 1 + band.upper;
    return clamp_blocks(floor_divide(first_column - plan.columns.begin, plan.Bc),
                        floor_divide(last_column - plan.columns.begin, plan.Bc), plan.column_blocks);
}

Plan make_plan(const Problem& problem, const KernelShape& shape, int threads) {
    Plan plan;
    plan.shape = shape;
    if (problem.empty()) return plan;
    plan.rows = live_rows(problem.band, problem.S1, problem.S2);
    plan.columns = live_columns(problem.band, problem.S1, problem.S2);
    const Blocking blocking = choose_blocking(problem.direction, shape, problem.D, problem.Dv);
    // A block never needs to be larger than the problem; sizes stay whole granules so the panels keep their form.
    plan.Br = std::min(blocking.Br, round_up(std::max<std::int64_t>(plan.rows.size(), 1), 2));
    plan.Bc = std::min(blocking.Bc, round_up(std::max<std::int64_t>(plan.columns.size(), 1), granule));
    plan.row_blocks = divide_up(plan.rows.size(), plan.Br);
    plan.column_blocks = divide_up(plan.columns.size(), plan.Bc);
    plan.units = problem.B * problem.N2;
    const std::int64_t tasks =
        problem.direction == Direction::forward ? problem.G * plan.row_blocks : plan.column_blocks;
    plan.threads = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, plan.units * tasks));
    plan.slots = std::min(plan.threads, plan.units);

    plan.D_pad = round_up(problem.D, granule);
    plan.Dv_pad = round_up(problem.Dv, granule);
    plan.D_row = round_up(problem.D, word_count * shape.step);
    plan.Dv_row = round_up(problem.Dv, word_count * shape.step);
    plan.tile_ld = plan.Bc + granule;  // one line more: rows 512 bytes apart would share 8 cache sets
    plan.row_words = plan.Bc / granule;

    plan.key_columns = panel_form(shape, plan.Bc, plan.D_row / shape.step);
    plan.value_columns = panel_form(shape, plan.Bc, plan.Dv_row / shape.step);
    plan.key_panels = panel_form(shape, plan.D_pad, divide_up(plan.Bc, shape.step));
    plan.value_panels = panel_form(shape, plan.Dv_pad, divide_up(plan.Bc, shape.step));
    plan.query_panels = panel_form(shape, plan.D_pad, divide_up(plan.Br, shape.step));
    plan.dy_panels = panel_form(shape, plan.Dv_pad, divide_up(plan.Br, shape.step));
    if (problem.direction == Direction::forward) {
        book_forward(plan);
    } else {
        book_backward(problem, plan);
    }
    return plan;
}

}  // namespace fascore
