// SPDX-License-Identifier: Apache-2.0
//
// The gradient's loop nest. A task is one kv block J of one unit (batch, kv head); per query head of the group and per
// query block I that sees J:
//
//   S  = Q_I K_Jᵀ              dP = dy_I V_Jᵀ                  two products, depth D and Dv
//   P  = exp(scale·S − max) / sum                              one pass over the tile: mask, P and dS, written in the
//   dS = P ∘ (dP − delta)                                      operand forms of what follows
//   dV_J += Pᵀ dy_I            dK_J += dSᵀ Q_I                 into accumulators of this thread
//   dQ_I += dS K_J                                             into the unit's accumulator, in turn
//
// With terms (softcap, bias, dropout: kernel_table.h) the same pass applies them; dpse, dsink and the slopes' gradient
// are by-products of a tile or a query block (bias.h).
//
// Five products, 10·D operations a visible pair. The accelerator's kernel runs two passes and pays seven, so as not to
// share dQ; we share it in a fixed order instead:
//
//            I=0   I=1   I=2        turn[I] is the J whose addition comes next. A thread that is early waits. Since
//     J=0    ──────────────→        tasks are taken in ascending J and every thread walks I upwards, the threads run
//     J=1       ──────────────→     one behind the other like this, and the lowest J never waits for anyone: no
//     J=2          ────────────→    deadlock for any number of threads, and the same sum for each.
//
// In a row like this all would go at the pace of the slowest. So dq_I is the sum of a few streams (plan.h): J waits for
// J − streams only, which was started long ago. The last to add to dq_I adds the streams up and stores it.
//
// Data    shared by a unit   a ring of query blocks (plan.h): query and dy in rows form (A of S, dP) and by_rows (B of
//                            dK, dV; for f32 and f64 the same memory), packed by whoever meets block I first;
//                            statistics and delta; the dq streams. Its place is free for I + ring once the last J has
//                            added to its dq
//         of one thread      K, V of its kv block in three forms; the score tiles; dk and dv accumulators
// Cost    the packing and the passes are O(S·D) and about 20 vector operations for 16 pairs.
#include <atomic>
#include <cmath>

#include "engine/ahead.h"
#include "engine/bias.h"
#include "engine/engine.h"
#include "engine/schedule.h"
#include "engine/tile.h"

namespace fascore {

namespace {

using kernels::ComputeKernels;
using kernels::ProductArgs;

template <class Acc>
class Backward {
  public:
    Backward(const Problem& problem, const Plan& plan, const ComputeKernels& kernels, RunState& state, Grant grant)
        : problem_(problem),
          plan_(plan),
          kernels_(kernels),
          state_(state),
          grant_(grant),
          bias_(problem, plan, kernels, state, grant),
          dq_wanted_(dq_rows(problem).wanted()),
          dk_wanted_(dk_rows(problem).wanted()),
          eight_bits_(is_8bit(problem.dtype)),
          strips_a_tile_(strips_of(plan, kernels)) {}

    /// Before and after the run.
    void begin() {
        bias_.begin();
        if (problem_.dsink.wanted)
            std::fill_n(dsink_part(0, 0), problem_.B * problem_.N1 * (plan_.row_blocks + 1), 0.0);
    }
    void finish(int member) {
        bias_.finish(member);
        if (member != 0 || !problem_.dsink.wanted) return;
        for (std::int64_t n = 0; n < problem_.N1; ++n) {
            double sum = 0;
            for (std::int64_t b = 0; b < problem_.B; ++b) {
                for (std::int64_t I = 0; I <= plan_.row_blocks; ++I) sum += dsink_part(b, n)[I];
            }
            store_scalar(address(problem_.dsink, n, 0), problem_.dsink.dtype, -sum);
        }
    }

    [[nodiscard]] std::int64_t tasks(std::int64_t unit) const {
        return grid_of(problem_, plan_, batch_of(unit)).column_blocks;
    }

    void open(std::int64_t slot, std::int64_t unit, int /*member*/) {
        const Batch batch = problem_.batch(batch_of(unit));
        const Grid grid = plan_.grid(batch.band, batch.S1, batch.S2);
        const std::int64_t h = unit % problem_.N2;
        const BackwardBuffers& buffers = plan_.backward;
        std::fill_n(grant_.at<std::uint32_t>(buffers.pack_state, slot), problem_.G * plan_.ring, 0U);
        // What sees nothing and what nobody sees. Only dsink asks rows that see nothing.
        for (std::int64_t g = 0; g < problem_.G; ++g) {
            const std::int64_t n = h * problem_.G + g;
            bias_.zero_dead(batch, grid, n);
            for (const Range dead : {Range{0, grid.rows.begin}, Range{grid.rows.end, batch.S1}}) {
                zero_rows(dq_rows(batch), n, dead);
                if (!problem_.dsink.wanted || batch.S2 == 0) continue;
                double& part = dsink_part(batch.index, n)[plan_.row_blocks];
                for (std::int64_t s = dead.begin; s < dead.end; ++s) {
                    part += sink_share(batch, n, s) * delta_of_row(batch, n, s);
                }
            }
        }
        for (const Range dead : {Range{0, grid.columns.begin}, Range{grid.columns.end, batch.S2}}) {
            zero_rows(dk_rows(batch), h, dead);
            zero_rows(dv_rows(batch), h, dead);
        }
    }

    void run(std::int64_t slot, std::int64_t unit, std::int64_t J, int member) {
        Task task(problem_, plan_, batch_of(unit));
        task.slot = slot;
        task.h = unit % problem_.N2;
        task.J = J;
        task.columns = task.grid.column_block(J);
        task.member = member;
        load_key_value(task);
        const Range blocks = task.grid.row_blocks_of(J);
        BiasGradient::Part part{task.batch, task.grid, unit / problem_.N2, task.h, J};
        for (std::int64_t g = 0; g < problem_.G; ++g) {
            const std::int64_t n = task.h * problem_.G + g;
            if (bias_.wanted()) {
                bias_.begin_head(part, n);
                const Range rows = task.grid.rows;
                const Range first = blocks.empty() ? rows : Range{rows.begin, task.grid.row_block(blocks.begin).begin};
                const Range last = blocks.empty() ? Range{} : Range{task.grid.row_block(blocks.end - 1).end, rows.end};
                bias_.add(part, n, first, task.columns, nullptr);
                bias_.add(part, n, last, task.columns, nullptr);
            }
            for (std::int64_t I = blocks.begin; I < blocks.end; ++I) {
                if (state_.stopped()) return;
                tile(task, part, g, I);
                state_.advance(member, 1);
            }
            bias_.end_head(part, n);
        }
        bias_.end(part);
        store_key_value(task);
    }

  private:
    struct Task {
        Task(const Problem& problem, const Plan& plan, std::int64_t b)
            : batch(problem.batch(b)), grid(plan.grid(batch.band, batch.S1, batch.S2)) {}

        Batch batch;
        Grid grid;
        std::int64_t slot = 0;
        std::int64_t h = 0;
        std::int64_t J = 0;
        Range columns;
        int member = 0;
        bool key_flagged = false;
        bool started = false;  // dk and dv accumulators hold something
    };

    // Query block I of head g of the unit: its shared buffers.
    struct QueryBlock {
        std::int64_t index;  // of (head, place in the ring)
        std::uint32_t use;   // of that place
        std::int64_t I;
        Range rows;
        std::byte* query_rows;
        std::byte* query_panels;
        std::byte* dy_rows;
        std::byte* dy_panels;
        Acc* max;
        Acc* inverse;
        Acc* delta;
        std::uint8_t* query_flags;
        std::uint8_t* dy_flags;
    };

    std::int64_t batch_of(std::int64_t unit) const { return plan_.batch_of(unit / problem_.N2); }

    double* dsink_part(std::int64_t b, std::int64_t n) const {
        return grant_.at<double>(plan_.backward.dsink) + (b * problem_.N1 + n) * (plan_.row_blocks + 1);
    }

    static double read(const Statistic& statistic, std::int64_t n, std::int64_t s) {
        return load_scalar(address(statistic, n, s, 0), statistic.dtype);
    }

    // The sink's share of row s's softmax, by the statistics given.
    static double sink_share(const Batch& batch, std::int64_t n, std::int64_t s) {
        return std::exp(sink_of(batch, n) - read(batch.softmax_max, n, s)) / read(batch.softmax_sum, n, s);
    }

    // Δ − dlse of one row as dsink takes it. A row that saw no key has attention_out = 0 and any dy, also NaN: what a 0
    // is multiplied with does not count.
    static double delta_of_row(const Batch& batch, std::int64_t n, std::int64_t s) {
        const auto element = [s, n](const Operand& operand, std::int64_t c) {
            return load_scalar(address(operand, n, s) + c * operand.stride.d * size_of(operand.dtype), operand.dtype);
        };
        double delta = 0;
        for (std::int64_t c = 0; c < batch.Dv; ++c) {
            const double out = element(batch.attention_in, c);
            if (out != 0) delta += out * element(batch.dy, c);
        }
        delta *= row_scale(batch.dy, n, s);
        return batch.dlse.wanted ? delta - read(batch.dlse, n, s) : delta;
    }

    QueryBlock query_block(const Task& task, std::int64_t g, std::int64_t I) const {
        const BackwardBuffers& buffers = plan_.backward;
        const std::int64_t element = plan_.shape.element_bytes();
        const std::int64_t slot = task.slot;
        QueryBlock block{};
        block.index = g * plan_.ring + I % plan_.ring;
        block.use = static_cast<std::uint32_t>(I / plan_.ring);
        block.I = I;
        block.rows = task.grid.row_block(I);
        block.query_rows = grant_.at(buffers.query_rows, slot) + block.index * plan_.Br * plan_.D_ld * element;
        block.query_panels = grant_.at(buffers.query_panels, slot) + block.index * plan_.query_panels.bytes;
        block.dy_rows = grant_.at(buffers.dy_rows, slot) + block.index * plan_.Br * plan_.Dv_ld * element;
        block.dy_panels = grant_.at(buffers.dy_panels, slot) + block.index * plan_.dy_panels.bytes;
        block.max = grant_.at<Acc>(buffers.statistics, slot) + block.index * 3 * plan_.Br;
        block.inverse = block.max + plan_.Br;
        block.delta = block.inverse + plan_.Br;
        block.query_flags = grant_.at<std::uint8_t>(buffers.flags, slot) + block.index * 2 * plan_.Br;
        block.dy_flags = block.query_flags + plan_.Br;
        return block;
    }

    // 1. The kv block in the forms its products need: Kᵀ (S), Vᵀ (dP), K (dQ).
    void load_key_value(Task& task) {
        const BackwardBuffers& buffers = plan_.backward;
        const std::int64_t rows = task.columns.size();
        const std::int64_t padded = (rows + granule - 1) / granule * granule;
        std::byte* panels = grant_.at(buffers.key_panels, task.member);
        std::byte* value_form = grant_.at(buffers.load, task.member);
        std::byte* key_form = plan_.rows_are_panels ? panels : value_form;
        auto* flags = grant_.at<std::uint8_t>(buffers.key_flags, task.member);

        load(kernels_, key_rows(task.batch), task.h, task.columns, {key_form, plan_.D_row, plan_.D_ld, padded, flags});
        pack(kernels_.pack_by_columns, plan_.shape, key_form, plan_.D_ld, padded, plan_.D_row, plan_.key_columns,
             grant_.at(buffers.key_columns, task.member));
        if (dq_wanted_) {
            if (!plan_.rows_are_panels) {
                pack(kernels_.pack_by_rows, plan_.shape, key_form, plan_.D_ld, padded, plan_.D_pad, plan_.key_panels,
                     panels);
            }
            task.key_flagged = zero_flagged(flags, rows, problem_.D, plan_.key_panels, plan_.shape, panels);
        }
        load(kernels_, value_rows(task.batch), task.h, task.columns,
             {value_form, plan_.Dv_row, plan_.Dv_ld, padded, nullptr});
        pack(kernels_.pack_by_columns, plan_.shape, value_form, plan_.Dv_ld, padded, plan_.Dv_row, plan_.value_columns,
             grant_.at(buffers.value_columns, task.member));
    }

    // 2. The query block in its forms, its statistics and delta, and nothing added to its dq yet.
    void load_query(const Task& task, std::int64_t n, const QueryBlock& block) {
        const Batch& batch = task.batch;
        const std::int64_t rows = block.rows.size();
        const std::int64_t step = plan_.shape.step;
        const std::int64_t padded = (rows + step - 1) / step * step;

        const Range seen = task.grid.column_blocks_of(block.I);
        grant_.at<std::int32_t>(plan_.backward.pending, task.slot)[block.index] =
            static_cast<std::int32_t>(seen.size());
        const std::int64_t streams = task.grid.dq_streams();
        for (std::int64_t J = seen.begin; J < seen.begin + streams; ++J) {
            dq_turn(task.slot, J % streams, block) = static_cast<std::int32_t>(J);
        }

        load(kernels_, query_rows(batch), n, block.rows,
             {block.query_rows, plan_.D_row, plan_.D_ld, padded, block.query_flags});
        if (dk_wanted_ && !plan_.rows_are_panels) {
            pack(kernels_.pack_by_rows, plan_.shape, block.query_rows, plan_.D_ld, padded, plan_.D_pad,
                 plan_.query_panels, block.query_panels);
            zero_flagged(block.query_flags, rows, problem_.D, plan_.query_panels, plan_.shape, block.query_panels);
        }
        load(kernels_, dy_rows(batch), n, block.rows,
             {block.dy_rows, plan_.Dv_row, plan_.Dv_ld, padded, block.dy_flags});
        if (problem_.dv.wanted && !plan_.rows_are_panels) {
            pack(kernels_.pack_by_rows, plan_.shape, block.dy_rows, plan_.Dv_ld, padded, plan_.Dv_pad, plan_.dy_panels,
                 block.dy_panels);
            zero_flagged(block.dy_flags, rows, problem_.Dv, plan_.dy_panels, plan_.shape, block.dy_panels);
        }

        kernels::RowDotArgs dot{};
        dot.x = address(batch.dy, n, block.rows.begin);
        dot.x_element = element_of(batch.dy.dtype);
        dot.x_row = batch.dy.stride.s;
        dot.x_column = batch.dy.stride.d;
        dot.y = address(batch.attention_in, n, block.rows.begin);
        dot.y_element = element_of(batch.attention_in.dtype);
        dot.y_row = batch.attention_in.stride.s;
        dot.y_column = batch.attention_in.stride.d;
        dot.rows = static_cast<std::int32_t>(rows);
        dot.columns = static_cast<std::int32_t>(problem_.Dv);
        dot.out = block.delta;
        kernels_.row_dot(dot);

        double dsink = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t s = block.rows.begin + r;
            block.max[r] = static_cast<Acc>(read(batch.softmax_max, n, s));
            block.inverse[r] = 1 / static_cast<Acc>(read(batch.softmax_sum, n, s));
            if (eight_bits_) block.delta[r] *= static_cast<Acc>(row_scale(batch.dy, n, s));
            if (batch.dlse.wanted) block.delta[r] -= static_cast<Acc>(read(batch.dlse, n, s));
            if (!problem_.dsink.wanted) continue;
            const auto delta = static_cast<double>(block.delta[r]);
            dsink += sink_share(batch, n, s) * (std::isfinite(delta) ? delta : delta_of_row(batch, n, s));
        }
        if (problem_.dsink.wanted) dsink_part(batch.index, n)[block.I] = dsink;
    }

    // What is touched of the caller's memory before the next tile is done: dq of this block when nobody adds to it
    // after us; a query block that this unit opens next; at the end of the task its results and the next kv block.
    void look_ahead(const Task& task, std::int64_t g, std::int64_t I, LookAhead& next) const {
        const Batch& batch = task.batch;
        const std::int64_t n = task.h * problem_.G + g;
        if (dq_wanted_ && task.J + 1 == task.grid.column_blocks_of(I).end) {
            next.write(dq_rows(batch), n, task.grid.row_block(I));
        }
        if (I + 1 < task.grid.row_blocks_of(task.J).end) {
            const QueryBlock block = query_block(task, g, I + 1);
            next.read_pairs(batch, n, block.rows, task.columns);
            if (begun(pack_state(task.slot, block), block.use)) return;
            next.read(query_rows(batch), n, block.rows);
            next.read(dy_rows(batch), n, block.rows);
            next.read(batch.attention_in, n, block.rows, batch.Dv);
        } else if (g + 1 == problem_.G) {
            next.write(dk_rows(batch), task.h, task.columns);
            next.write(dv_rows(batch), task.h, task.columns);
            if (task.J + 1 == task.grid.column_blocks) return;
            const Range columns = task.grid.column_block(task.J + 1);
            next.read(key_rows(batch), task.h, columns);
            next.read(value_rows(batch), task.h, columns);
        }
    }

    // Strips of the five products of a whole tile.
    static std::int64_t strips_of(const Plan& plan, const ComputeKernels& kernels) {
        const auto panels = [](const PanelForm& form, std::int64_t columns) {
            return (columns + form.width - 1) / form.width;
        };
        const auto strips = [&](std::int64_t rows) { return (rows + kernels.mr - 1) / kernels.mr; };
        return strips(plan.Br) * (panels(plan.key_columns, plan.Bc) + panels(plan.value_columns, plan.Bc) +
                                  panels(plan.key_panels, plan.D_pad)) +
               strips(plan.Bc) * (panels(plan.dy_panels, plan.Dv_pad) + panels(plan.query_panels, plan.D_pad));
    }

    // 3. One tile.
    void tile(Task& task, BiasGradient::Part& part, std::int64_t g, std::int64_t I) {
        const BackwardBuffers& buffers = plan_.backward;
        const std::int64_t n = task.h * problem_.G + g;
        const QueryBlock block = query_block(task, g, I);
        once(pack_state(task.slot, block), block.use, state_, [&] { load_query(task, n, block); });
        if (state_.stopped()) return;

        auto* spans = grant_.at<kernels::Span>(buffers.spans, task.member);
        const TileMask mask = mask_tile(
            task.batch, plan_, kernels_, n, block.rows, task.columns,
            {grant_.at<std::uint16_t>(buffers.mask_words, task.member), spans, spans + plan_.Br, spans + 2 * plan_.Br,
             grant_.at(buffers.bias, task.member), grant_.at<std::uint16_t>(buffers.keep_words, task.member)});
        if (mask.kind == TileClass::empty) {
            bias_.add(part, n, block.rows, task.columns, nullptr);
            take_turn(task, n, block, [](Acc*, bool) { return false; });
            return;
        }

        const auto rows = static_cast<std::int32_t>(block.rows.size());
        const auto columns = static_cast<std::int32_t>(task.columns.size());
        const std::int32_t padded = (columns + granule - 1) / granule * granule;
        const std::int64_t word = plan_.shape.word_bytes;
        const std::int64_t element = plan_.shape.element_bytes();
        const auto step = static_cast<std::int32_t>(plan_.shape.step);
        auto* scores = grant_.at<Acc>(buffers.scores, task.member);
        auto* dp = grant_.at<Acc>(buffers.dp, task.member);

        LookAhead next;
        look_ahead(task, g, I, next);
        kernels::Ahead* ahead = next.over(strips_a_tile_);

        // S and dP: A is query and dy in rows form.
        ProductArgs product{};
        product.ahead = ahead;
        product.m = rows;
        product.n = padded;
        product.a_step = word;
        product.ldc = plan_.tile_ld;
        product.column_span = mask.column_span;
        product.a = block.query_rows;
        product.a_row = plan_.D_ld * element;
        set_b(product, plan_.key_columns, grant_.at(buffers.key_columns, task.member));
        product.k = steps(problem_.D);
        product.c = scores;
        kernels_.product(product);
        product.a = block.dy_rows;
        product.a_row = plan_.Dv_ld * element;
        set_b(product, plan_.value_columns, grant_.at(buffers.value_columns, task.member));
        product.k = steps(problem_.Dv);
        product.c = dp;
        kernels_.product(product);

        // P and dS. One row-major tile serves both orders where a word is one element.
        const bool in_place = step == 1;
        kernels::SoftmaxBackwardArgs pass{};
        pass.s = scores;
        pass.dp = dp;
        pass.lds = plan_.tile_ld;
        pass.rows = rows;
        pass.columns = padded;
        pass.visible = mask.words;
        pass.row_words = mask.row_words;
        pass.column_span = mask.column_span;
        pass.scale = problem_.scale;
        pass.row_max = block.max;
        pass.row_inverse = block.inverse;
        pass.row_delta = block.delta;
        pass.p_depth = in_place ? static_cast<void*>(scores) : grant_.at(buffers.p_depth, task.member);
        pass.ds_depth = in_place ? static_cast<void*>(dp) : grant_.at(buffers.ds_depth, task.member);
        pass.ldw = plan_.tile_ld;
        pass.ds_rows = in_place ? static_cast<void*>(dp) : grant_.at(buffers.ds_rows, task.member);
        pass.ldr = plan_.tile_ld;
        pass.terms = mask.terms;
        const BiasGradient::Target dx =
            bias_.target(part, n, block.rows, task.columns, grant_.at(buffers.dx, task.member));
        pass.dx = dx.data;
        pass.ldx = dx.ld;
        pass.dx_factor = dx.factor;
        pass.dx_once = dx.is_dpse;
        kernels_.softmax_backward(pass);
        if (!dx.is_dpse) bias_.add(part, n, block.rows, task.columns, pass.dx);
        if (eight_bits_) quantise(scores, dp, rows, padded);

        // dV and dK: A is Pᵀ and dSᵀ, read down the rows of the tile.
        product = ProductArgs{};
        product.ahead = ahead;
        product.m = columns;
        product.a_row = word;
        product.a_step = plan_.tile_ld * word;
        product.k = (rows + step - 1) / step;
        product.accumulate = task.started;
        product.depth_span = mask.depth_columns;
        if (problem_.dv.wanted) {
            product.a = pass.p_depth;
            set_b(
                product, plan_.dy_panels,
                clean_panels(task, block.dy_rows, block.dy_panels, plan_.dy_panels, block.dy_flags, rows, problem_.Dv));
            product.n = static_cast<std::int32_t>(plan_.Dv_pad);
            product.c = grant_.at(buffers.dv, task.member);
            product.ldc = plan_.Dv_pad;
            kernels_.product(product);
            add_flagged_rows(mask, block.dy_flags, rows, columns, dy_rows(task.batch), n, block.rows.begin,
                             pass.p_depth, static_cast<Acc*>(product.c), plan_.Dv_pad);
        }
        if (dk_wanted_) {
            product.a = pass.ds_depth;
            set_b(product, plan_.query_panels,
                  clean_panels(task, block.query_rows, block.query_panels, plan_.query_panels, block.query_flags, rows,
                               problem_.D));
            product.n = static_cast<std::int32_t>(plan_.D_pad);
            product.c = grant_.at(buffers.dk, task.member);
            product.ldc = plan_.D_pad;
            kernels_.product(product);
            add_flagged_rows(mask, block.query_flags, rows, columns, query_rows(task.batch), n, block.rows.begin,
                             pass.ds_depth, static_cast<Acc*>(product.c), plan_.D_pad);
        }
        task.started = true;

        // dQ, when its turn comes.
        take_turn(task, n, block, [&](Acc* dq, bool accumulate) {
            product = ProductArgs{};
            product.ahead = ahead;
            product.a = pass.ds_rows;
            product.a_row = plan_.tile_ld * element;
            product.a_step = word;
            set_b(product, plan_.key_panels, grant_.at(buffers.key_panels, task.member));
            product.c = dq;
            product.ldc = plan_.D_pad;
            product.m = rows;
            product.n = static_cast<std::int32_t>(plan_.D_pad);
            product.k = (columns + step - 1) / step;
            product.accumulate = accumulate;
            product.depth_span = mask.depth_rows;
            kernels_.product(product);
            if (task.key_flagged) add_flagged_keys(mask, task, block, pass.ds_depth, dq);
            return true;
        });
    }

    // The by_rows form of a query block's operand, its flagged rows zero. Where the rows form is that form, which S and
    // dP want with its NaN and Inf, the zeros are put in a copy, for this tile: nobody pays for them who has none.
    const std::byte* clean_panels(const Task& task, const std::byte* rows_form, const std::byte* panels,
                                  const PanelForm& form, const std::uint8_t* flags, std::int64_t rows,
                                  std::int64_t columns) const {
        if (!plan_.rows_are_panels) return panels;
        if (!any_flagged(flags, rows)) return rows_form;
        std::byte* clean = grant_.at(plan_.backward.clean, task.member);
        std::memcpy(clean, rows_form, static_cast<std::size_t>(rows * form.pitch * plan_.shape.word_bytes));
        zero_flagged(flags, rows, columns, form, plan_.shape, clean);
        return clean;
    }

    // The ordered addition to dq of (head, I), and the end of the block's use with the last one.
    template <class Add>
    void take_turn(const Task& task, std::int64_t n, const QueryBlock& block, const Add& add) {
        if (dq_wanted_ && !add_in_turn(task, block, add)) return;
        std::atomic_ref<std::int32_t> pending(grant_.at<std::int32_t>(plan_.backward.pending, task.slot)[block.index]);
        if (pending.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        if (dq_wanted_) store_query(task, n, block);
        use_up(pack_state(task.slot, block), block.use);
    }

    // J's turn in its stream comes after every lower J of the stream that sees I. Once anything was added, started_bit
    // stands in the turn: until then the accumulator holds nothing. False when the run was stopped meanwhile.
    template <class Add>
    bool add_in_turn(const Task& task, const QueryBlock& block, const Add& add) {
        const std::int64_t streams = task.grid.dq_streams();
        const std::int64_t stream = task.J % streams;
        std::atomic_ref<std::int32_t> turn(dq_turn(task.slot, stream, block));
        const auto mine = static_cast<std::int32_t>(task.J);
        std::int32_t seen = turn.load(std::memory_order_acquire);
        for (int round = 0; (seen & turn_mask) != mine; ++round) {
            if (state_.stopped()) return false;
            spin_pause(round);
            seen = turn.load(std::memory_order_acquire);
        }
        const bool started = (seen & started_bit) != 0;
        const bool added = add(dq_of(task.slot, stream, block), started);
        const auto next = static_cast<std::int32_t>(task.J + streams);
        turn.store(next | (started || added ? started_bit : 0), std::memory_order_release);
        return true;
    }

    std::uint32_t& pack_state(std::int64_t slot, const QueryBlock& block) const {
        return grant_.at<std::uint32_t>(plan_.backward.pack_state, slot)[block.index];
    }

    // Where a stream of a query block's dq and its turn stand.
    [[nodiscard]] std::int64_t dq_place(std::int64_t stream, std::int64_t index) const {
        return stream * problem_.G * plan_.ring + index;
    }

    std::int32_t& dq_turn(std::int64_t slot, std::int64_t stream, const QueryBlock& block) const {
        return grant_.at<std::int32_t>(plan_.backward.turn, slot)[dq_place(stream, block.index)];
    }

    Acc* dq_of(std::int64_t slot, std::int64_t stream, const QueryBlock& block) const {
        return grant_.at<Acc>(plan_.backward.dq, slot) + dq_place(stream, block.index) * plan_.Br * plan_.D_pad;
    }

    // dq of (head, I) leaves: the sum of its streams, in order.
    void store_query(const Task& task, std::int64_t n, const QueryBlock& block) {
        Acc* sum = nullptr;
        for (std::int64_t stream = 0; stream < task.grid.dq_streams(); ++stream) {
            if ((dq_turn(task.slot, stream, block) & started_bit) == 0) continue;
            Acc* part = dq_of(task.slot, stream, block);
            if (sum == nullptr) {
                sum = part;
                continue;
            }
            const auto rows = static_cast<std::int32_t>(block.rows.size());
            const auto columns = static_cast<std::int32_t>(plan_.D_pad);
            kernels_.add_tile({part, plan_.D_pad, rows, columns, sum, plan_.D_pad, 1});
        }
        if (sum == nullptr) {
            zero_rows(dq_rows(task.batch), n, block.rows);
            return;
        }
        const auto scale = static_cast<Acc>(problem_.scale);
        store(kernels_, dq_rows(task.batch), n, block.rows, sum, plan_.D_pad, &scale);
    }

    // P becomes R as 8 bits hold it, dS what they hold of it block by block.
    void quantise(Acc* weights, Acc* dx, std::int32_t rows, std::int32_t columns) {
        kernels::QuantiseArgs args{};
        args.ld = plan_.tile_ld;
        args.rows = rows;
        args.columns = columns;
        args.element = element_of(problem_.dtype);
        args.x = weights;
        kernels_.quantise(args);
        args.x = dx;
        args.block = true;
        kernels_.quantise(args);
    }

    // 4. dk and dv leave in their dtype.
    void store_key_value(const Task& task) {
        const BackwardBuffers& buffers = plan_.backward;
        if (!task.started) {  // the mask hides the whole block
            zero_rows(dk_rows(task.batch), task.h, task.columns);
            zero_rows(dv_rows(task.batch), task.h, task.columns);
            return;
        }
        const auto scale = static_cast<Acc>(problem_.scale);
        const Acc one = 1;
        if (dk_wanted_) {
            store(kernels_, dk_rows(task.batch), task.h, task.columns, grant_.at(buffers.dk, task.member), plan_.D_pad,
                  &scale);
        }
        if (problem_.dv.wanted) {
            store(kernels_, dv_rows(task.batch), task.h, task.columns, grant_.at(buffers.dv, task.member), plan_.Dv_pad,
                  &one);
        }
    }

    std::int32_t steps(std::int64_t elements) const {
        return static_cast<std::int32_t>((elements + plan_.shape.step - 1) / plan_.shape.step);
    }

    // Element (row, column) of a tile in the depth-over-rows form.
    Acc tile_element(const void* tile, std::int64_t row, std::int64_t column) const {
        const std::int64_t step = plan_.shape.step;
        const std::byte* word = static_cast<const std::byte*>(tile) +
                                (row / step * plan_.tile_ld + column) * plan_.shape.word_bytes +
                                row % step * plan_.shape.element_bytes();
        const DType dtype = step == 2 ? DType::bf16 : sizeof(Acc) == 8 ? DType::f64 : DType::f32;
        return static_cast<Acc>(load_scalar(word, dtype));
    }

    // acc[column] += weight(row, column) · operand row, for flagged rows and visible pairs (see tile.h).
    void add_flagged_rows(const TileMask& mask, const std::uint8_t* flags, std::int64_t rows, std::int64_t columns,
                          const Rows& operand, std::int64_t n, std::int64_t first_row, const void* weights, Acc* acc,
                          std::int64_t ld) {
        if (!any_flagged(flags, rows)) return;
        for (std::int64_t r = 0; r < rows; ++r) {
            if (flags[r] == 0) continue;
            for (std::int64_t c = 0; c < columns; ++c) {
                if (!mask.visible(r, c)) continue;
                add_row(acc + c * ld, tile_element(weights, r, c), operand, n, first_row + r);
            }
        }
    }

    // dq[row] += dS(row, column) · key row, for flagged key rows and visible pairs.
    void add_flagged_keys(const TileMask& mask, const Task& task, const QueryBlock& block, const void* ds, Acc* dq) {
        const auto* flags = grant_.at<std::uint8_t>(plan_.backward.key_flags, task.member);
        for (std::int64_t c = 0; c < task.columns.size(); ++c) {
            if (flags[c] == 0) continue;
            for (std::int64_t r = 0; r < block.rows.size(); ++r) {
                if (!mask.visible(r, c)) continue;
                add_row(dq + r * plan_.D_pad, tile_element(ds, r, c), key_rows(task.batch), task.h,
                        task.columns.begin + c);
            }
        }
    }

    static constexpr std::int32_t started_bit = 1 << 30;
    static constexpr std::int32_t turn_mask = started_bit - 1;

    const Problem& problem_;
    const Plan& plan_;
    const ComputeKernels& kernels_;
    RunState& state_;
    Grant grant_;
    BiasGradient bias_;
    bool dq_wanted_;
    bool dk_wanted_;
    bool eight_bits_;
    std::int64_t strips_a_tile_;
};

template <class Acc>
Status run(const Problem& problem, const Plan& plan, const ComputeKernels& kernels, const Execution& execution,
           std::byte* workspace) {
    const Grant grant(workspace);
    const Work work = count_work(problem, plan);
    RunState state(execution, work.tiles);
    Backward<Acc> body(problem, plan, kernels, state, grant);
    body.begin();
    Schedule<Backward<Acc>> schedule(body, state, grant.at<Slot>(plan.backward.control), plan.slots, plan.units,
                                     work.tasks);
    const int members = static_cast<int>(plan.threads);
    run_team(members, schedule);
    if (state.stopped()) return {StatusCode::cancelled, "attention_backward: cancelled by the caller's token"};
    auto finish = [&](int member) { body.finish(member); };
    run_team(problem.dpse.wanted && !problem.bias.slopes() ? members : 1, finish);
    state.finish();
    return {};
}

}  // namespace

Status run_backward(const Problem& problem, const Plan& plan, const ComputeKernels& kernels, const Execution& execution,
                    std::byte* workspace) {
    return plan.shape.acc_bytes == 8 ? run<double>(problem, plan, kernels, execution, workspace)
                                     : run<float>(problem, plan, kernels, execution, workspace);
}

}  // namespace fascore
