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
// Five products, 10·D operations a visible pair. The accelerator's kernel runs two passes and pays seven, so as not to
// share dQ; we share it in a fixed order instead:
//
//            I=0   I=1   I=2        turn[I] is the J whose addition comes next. A thread that is early waits. Since
//     J=0    ──────────────→        tasks are taken in ascending J and every thread walks I upwards, the threads run
//     J=1       ──────────────→     one behind the other like this, and the lowest J never waits for anyone: no
//     J=2          ────────────→    deadlock for any number of threads, and the same sum for each.
//
// Data    shared by a unit   query and dy in rows form (A of S, dP) and by_rows (B of dK, dV), packed once by whoever
//                            meets block I first; statistics and delta; the dq accumulator
//         of one thread      K, V of its kv block in three forms; the score tiles; dk and dv accumulators
// Cost    the packing and the passes are O(S·D) and about 20 vector operations for 16 pairs.
#include <atomic>
#include <cmath>

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
        : problem_(problem), plan_(plan), kernels_(kernels), state_(state), grant_(grant) {}

    void open(std::int64_t slot, std::int64_t unit, int /*member*/) {
        const std::int64_t b = unit / problem_.N2;
        const std::int64_t h = unit % problem_.N2;
        const BackwardBuffers& buffers = plan_.backward;
        auto* state = grant_.at<std::uint32_t>(buffers.pack_state, slot);
        auto* turn = grant_.at<std::int32_t>(buffers.turn, slot);
        for (std::int64_t g = 0; g < problem_.G; ++g) {
            for (std::int64_t I = 0; I < plan_.row_blocks; ++I) {
                state[g * plan_.row_blocks + I] = 0;
                const Range seen = column_blocks_of(plan_, problem_.band, I);
                turn[g * plan_.row_blocks + I] = static_cast<std::int32_t>(seen.begin);
            }
        }
        // What sees nothing and what nobody sees.
        for (std::int64_t g = 0; g < problem_.G && problem_.dq.wanted; ++g) {
            const std::int64_t n = h * problem_.G + g;
            zero_rows(problem_.dq, b, n, {0, plan_.rows.begin}, problem_.D);
            zero_rows(problem_.dq, b, n, {plan_.rows.end, problem_.S1}, problem_.D);
        }
        for (const Range dead : {Range{0, plan_.columns.begin}, Range{plan_.columns.end, problem_.S2}}) {
            if (problem_.dk.wanted) zero_rows(problem_.dk, b, h, dead, problem_.D);
            if (problem_.dv.wanted) zero_rows(problem_.dv, b, h, dead, problem_.Dv);
        }
    }

    void run(std::int64_t slot, std::int64_t unit, std::int64_t J, int member) {
        Task task;
        task.slot = slot;
        task.b = unit / problem_.N2;
        task.h = unit % problem_.N2;
        task.J = J;
        task.columns = plan_.column_block(J);
        task.member = member;
        load_key_value(task);
        const Range blocks = row_blocks_of(plan_, problem_.band, J);
        for (std::int64_t g = 0; g < problem_.G; ++g) {
            for (std::int64_t I = blocks.begin; I < blocks.end; ++I) {
                if (state_.stopped()) return;
                tile(task, g, I);
                state_.advance(member, 1);
            }
        }
        store_key_value(task);
    }

  private:
    struct Task {
        std::int64_t slot = 0;
        std::int64_t b = 0;
        std::int64_t h = 0;
        std::int64_t J = 0;
        Range columns;
        int member = 0;
        bool key_flagged = false;
        bool started = false;  // dk and dv accumulators hold something
    };

    // Query block I of head g of the unit: its shared buffers.
    struct QueryBlock {
        std::int64_t index;
        Range rows;
        std::byte* query_rows;
        std::byte* query_panels;
        std::byte* dy_rows;
        std::byte* dy_panels;
        Acc* dq;
        Acc* max;
        Acc* inverse;
        Acc* delta;
        std::uint8_t* query_flags;
        std::uint8_t* dy_flags;
    };

    QueryBlock query_block(std::int64_t slot, std::int64_t g, std::int64_t I) const {
        const BackwardBuffers& buffers = plan_.backward;
        const std::int64_t element = plan_.shape.element_bytes();
        QueryBlock block{};
        block.index = g * plan_.row_blocks + I;
        block.rows = plan_.row_block(I);
        block.query_rows = grant_.at(buffers.query_rows, slot) + block.index * plan_.Br * plan_.D_row * element;
        block.query_panels = grant_.at(buffers.query_panels, slot) + block.index * plan_.query_panels.bytes;
        block.dy_rows = grant_.at(buffers.dy_rows, slot) + block.index * plan_.Br * plan_.Dv_row * element;
        block.dy_panels = grant_.at(buffers.dy_panels, slot) + block.index * plan_.dy_panels.bytes;
        block.dq = grant_.at<Acc>(buffers.dq, slot) + block.index * plan_.Br * plan_.D_pad;
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
        std::byte* load = grant_.at(buffers.load, task.member);
        auto* flags = grant_.at<std::uint8_t>(buffers.key_flags, task.member);

        kernels::LoadArgs args = load_args(problem_.key, task.b, task.h, task.columns, problem_.D, padded);
        args.dst = load;
        args.ld = plan_.D_row;
        args.nonfinite = flags;
        kernels_.load_rows(args);
        pack(kernels_.pack_by_columns, load, plan_.D_row, padded, plan_.D_row, plan_.key_columns,
             grant_.at(buffers.key_columns, task.member));
        if (problem_.dq.wanted) {
            std::byte* panels = grant_.at(buffers.key_panels, task.member);
            pack(kernels_.pack_by_rows, load, plan_.D_row, padded, plan_.D_pad, plan_.key_panels, panels);
            task.key_flagged = zero_flagged(flags, rows, problem_.D, plan_.key_panels, plan_.shape, panels);
        }

        args = load_args(problem_.value, task.b, task.h, task.columns, problem_.Dv, padded);
        args.dst = load;
        args.ld = plan_.Dv_row;
        kernels_.load_rows(args);
        pack(kernels_.pack_by_columns, load, plan_.Dv_row, padded, plan_.Dv_row, plan_.value_columns,
             grant_.at(buffers.value_columns, task.member));
    }

    // 2. The query block in its forms, its statistics and delta.
    void load_query(const Task& task, std::int64_t n, const QueryBlock& block) {
        const std::int64_t rows = block.rows.size();
        const std::int64_t step = plan_.shape.step;
        const std::int64_t padded = (rows + step - 1) / step * step;

        kernels::LoadArgs args = load_args(problem_.query, task.b, n, block.rows, problem_.D, padded);
        args.dst = block.query_rows;
        args.ld = plan_.D_row;
        args.nonfinite = block.query_flags;
        kernels_.load_rows(args);
        if (problem_.dk.wanted) {
            pack(kernels_.pack_by_rows, block.query_rows, plan_.D_row, padded, plan_.D_pad, plan_.query_panels,
                 block.query_panels);
            zero_flagged(block.query_flags, rows, problem_.D, plan_.query_panels, plan_.shape, block.query_panels);
        }

        args = load_args(problem_.dy, task.b, n, block.rows, problem_.Dv, padded);
        args.dst = block.dy_rows;
        args.ld = plan_.Dv_row;
        args.nonfinite = block.dy_flags;
        kernels_.load_rows(args);
        if (problem_.dv.wanted) {
            pack(kernels_.pack_by_rows, block.dy_rows, plan_.Dv_row, padded, plan_.Dv_pad, plan_.dy_panels,
                 block.dy_panels);
            zero_flagged(block.dy_flags, rows, problem_.Dv, plan_.dy_panels, plan_.shape, block.dy_panels);
        }

        kernels::RowDotArgs dot{};
        dot.x = address(problem_.dy, task.b, n, block.rows.begin);
        dot.x_element = element_of(problem_.dy.dtype);
        dot.x_row = problem_.dy.stride.s;
        dot.x_column = problem_.dy.stride.d;
        dot.y = address(problem_.attention_in, task.b, n, block.rows.begin);
        dot.y_element = element_of(problem_.attention_in.dtype);
        dot.y_row = problem_.attention_in.stride.s;
        dot.y_column = problem_.attention_in.stride.d;
        dot.rows = static_cast<std::int32_t>(rows);
        dot.columns = static_cast<std::int32_t>(problem_.Dv);
        dot.out = block.delta;
        kernels_.row_dot(dot);

        for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t s = block.rows.begin + r;
            const Statistic& max = problem_.softmax_max;
            const Statistic& sum = problem_.softmax_sum;
            block.max[r] = static_cast<Acc>(load_scalar(address(max, task.b, n, s, 0), max.dtype));
            block.inverse[r] = 1 / static_cast<Acc>(load_scalar(address(sum, task.b, n, s, 0), sum.dtype));
        }
    }

    // 3. One tile.
    void tile(Task& task, std::int64_t g, std::int64_t I) {
        const BackwardBuffers& buffers = plan_.backward;
        const std::int64_t n = task.h * problem_.G + g;
        const QueryBlock block = query_block(task.slot, g, I);
        once(grant_.at<std::uint32_t>(buffers.pack_state, task.slot)[block.index], state_,
             [&] { load_query(task, n, block); });
        if (state_.stopped()) return;

        auto* spans = grant_.at<kernels::Span>(buffers.spans, task.member);
        const TileMask mask = mask_tile(
            problem_, plan_, task.b, n, block.rows, task.columns,
            {grant_.at<std::uint16_t>(buffers.mask_words, task.member), spans, spans + plan_.Br, spans + 2 * plan_.Br});
        if (mask.kind == TileClass::empty) {
            take_turn(task, n, block, [](bool) { return false; });
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

        // S and dP: A is query and dy in rows form.
        ProductArgs product{};
        product.m = rows;
        product.n = padded;
        product.a_step = word;
        product.ldc = plan_.tile_ld;
        product.column_span = mask.column_span;
        product.a = block.query_rows;
        product.a_row = plan_.D_row * element;
        product.b = grant_.at(buffers.key_columns, task.member);
        product.b_panel = plan_.key_columns.panel_bytes;
        product.b_width = static_cast<std::int32_t>(plan_.key_columns.width);
        product.k = steps(problem_.D);
        product.c = scores;
        kernels_.product(product);
        product.a = block.dy_rows;
        product.a_row = plan_.Dv_row * element;
        product.b = grant_.at(buffers.value_columns, task.member);
        product.b_panel = plan_.value_columns.panel_bytes;
        product.b_width = static_cast<std::int32_t>(plan_.value_columns.width);
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
        kernels_.softmax_backward(pass);

        // dV and dK: A is Pᵀ and dSᵀ, read down the rows of the tile.
        product = ProductArgs{};
        product.m = columns;
        product.a_row = word;
        product.a_step = plan_.tile_ld * word;
        product.k = (rows + step - 1) / step;
        product.accumulate = task.started;
        product.depth_span = mask.depth_columns;
        if (problem_.dv.wanted) {
            product.a = pass.p_depth;
            product.b = block.dy_panels;
            product.b_panel = plan_.dy_panels.panel_bytes;
            product.b_width = static_cast<std::int32_t>(plan_.dy_panels.width);
            product.n = static_cast<std::int32_t>(plan_.Dv_pad);
            product.c = grant_.at(buffers.dv, task.member);
            product.ldc = plan_.Dv_pad;
            kernels_.product(product);
            add_flagged_rows(mask, block.dy_flags, rows, columns, problem_.dy, task.b, n, block.rows.begin, problem_.Dv,
                             pass.p_depth, static_cast<Acc*>(product.c), plan_.Dv_pad);
        }
        if (problem_.dk.wanted) {
            product.a = pass.ds_depth;
            product.b = block.query_panels;
            product.b_panel = plan_.query_panels.panel_bytes;
            product.b_width = static_cast<std::int32_t>(plan_.query_panels.width);
            product.n = static_cast<std::int32_t>(plan_.D_pad);
            product.c = grant_.at(buffers.dk, task.member);
            product.ldc = plan_.D_pad;
            kernels_.product(product);
            add_flagged_rows(mask, block.query_flags, rows, columns, problem_.query, task.b, n, block.rows.begin,
                             problem_.D, pass.ds_depth, static_cast<Acc*>(product.c), plan_.D_pad);
        }
        task.started = true;

        // dQ, when its turn comes.
        take_turn(task, n, block, [&](bool accumulate) {
            product = ProductArgs{};
            product.a = pass.ds_rows;
            product.a_row = plan_.tile_ld * element;
            product.a_step = word;
            product.b = grant_.at(buffers.key_panels, task.member);
            product.b_panel = plan_.key_panels.panel_bytes;
            product.b_width = static_cast<std::int32_t>(plan_.key_panels.width);
            product.c = block.dq;
            product.ldc = plan_.D_pad;
            product.m = rows;
            product.n = static_cast<std::int32_t>(plan_.D_pad);
            product.k = (columns + step - 1) / step;
            product.accumulate = accumulate;
            product.depth_span = mask.depth_rows;
            kernels_.product(product);
            if (task.key_flagged) add_flagged_keys(mask, task, block, pass.ds_depth);
            return true;
        });
    }

    // The ordered addition to dq of (head, I): J's turn comes after every lower J that sees I. Once anything was added,
    // started_bit stands in the turn: until then the accumulator holds nothing.
    template <class Add>
    void take_turn(const Task& task, std::int64_t n, const QueryBlock& block, const Add& add) {
        if (!problem_.dq.wanted) return;
        std::atomic_ref<std::int32_t> turn(grant_.at<std::int32_t>(plan_.backward.turn, task.slot)[block.index]);
        const auto mine = static_cast<std::int32_t>(task.J);
        std::int32_t seen = turn.load(std::memory_order_acquire);
        for (int round = 0; (seen & turn_mask) != mine; ++round) {
            if (state_.stopped()) return;
            spin_pause(round);
            seen = turn.load(std::memory_order_acquire);
        }
        const bool started = (seen & started_bit) != 0;
        const bool added = add(started);
        const std::int64_t I = block.index % plan_.row_blocks;
        if (task.J + 1 == column_blocks_of(plan_, problem_.band, I).end) {
            if (started || added) {
                store(problem_.dq, task.b, n, block.rows, problem_.D, block.dq, plan_.D_pad);
            } else {
                zero_rows(problem_.dq, task.b, n, block.rows, problem_.D);
            }
        }
        const std::int32_t next = (mine + 1) | (started || added ? started_bit : 0);
        turn.store(next, std::memory_order_release);
    }

    // 4. dk and dv leave in their dtype.
    void store_key_value(const Task& task) {
        const BackwardBuffers& buffers = plan_.backward;
        if (!task.started) {  // the mask tensor hides the whole block
            if (problem_.dk.wanted) zero_rows(problem_.dk, task.b, task.h, task.columns, problem_.D);
            if (problem_.dv.wanted) zero_rows(problem_.dv, task.b, task.h, task.columns, problem_.Dv);
            return;
        }
        if (problem_.dk.wanted) {
            store(problem_.dk, task.b, task.h, task.columns, problem_.D, grant_.at<Acc>(buffers.dk, task.member),
                  plan_.D_pad);
        }
        if (problem_.dv.wanted) {
            store(problem_.dv, task.b, task.h, task.columns, problem_.Dv, grant_.at<Acc>(buffers.dv, task.member),
                  plan_.Dv_pad, Acc{1});
        }
    }

    void store(const Result& result, std::int64_t b, std::int64_t n, Range rows, std::int64_t columns, const Acc* acc,
               std::int64_t ld) {
        store(result, b, n, rows, columns, acc, ld, static_cast<Acc>(problem_.scale));
    }
    void store(const Result& result, std::int64_t b, std::int64_t n, Range rows, std::int64_t columns, const Acc* acc,
               std::int64_t ld, Acc factor) {
        kernels::StoreArgs args{};
        args.src = acc;
        args.ld = ld;
        args.rows = static_cast<std::int32_t>(rows.size());
        args.columns = static_cast<std::int32_t>(columns);
        args.factor = &factor;
        args.dst = address(result, b, n, rows.begin);
        args.element = element_of(result.dtype);
        args.row_stride = result.stride.s;
        args.column_stride = result.stride.d;
        kernels_.store_rows(args);
    }

    void pack(void (*kernel)(const kernels::PackArgs&), const std::byte* src, std::int64_t ld, std::int64_t rows,
              std::int64_t columns, const PanelForm& form, std::byte* dst) const {
        kernels::PackArgs args{};
        args.src = src;
        args.ld = ld;
        args.src_bytes = plan_.shape.element_bytes();
        args.rows = static_cast<std::int32_t>(rows);
        args.columns = static_cast<std::int32_t>(columns);
        args.dst = dst;
        args.panel = form.panel_bytes;
        args.width = static_cast<std::int32_t>(form.width);
        kernel(args);
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
                          const Operand& operand, std::int64_t b, std::int64_t n, std::int64_t first_row,
                          std::int64_t width, const void* weights, Acc* acc, std::int64_t ld) {
        if (!any_flagged(flags, rows)) return;
        for (std::int64_t r = 0; r < rows; ++r) {
            if (flags[r] == 0) continue;
            for (std::int64_t c = 0; c < columns; ++c) {
                if (!mask.visible(r, c)) continue;
                add_row(acc + c * ld, tile_element(weights, r, c), operand, b, n, first_row + r, width);
            }
        }
    }

    // dq[row] += dS(row, column) · key row, for flagged key rows and visible pairs.
    void add_flagged_keys(const TileMask& mask, const Task& task, const QueryBlock& block, const void* ds) {
        const auto* flags = grant_.at<std::uint8_t>(plan_.backward.key_flags, task.member);
        for (std::int64_t c = 0; c < task.columns.size(); ++c) {
            if (flags[c] == 0) continue;
            for (std::int64_t r = 0; r < block.rows.size(); ++r) {
                if (!mask.visible(r, c)) continue;
                add_row(block.dq + r * plan_.D_pad, tile_element(ds, r, c), problem_.key, task.b, task.h,
                        task.columns.begin + c, problem_.D);
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
};

template <class Acc>
Status run(const Problem& problem, const Plan& plan, const ComputeKernels& kernels, const Execution& execution,
           std::byte* workspace) {
    const Grant grant(workspace);
    std::int64_t tiles = 0;
    for (std::int64_t J = 0; J < plan.column_blocks; ++J) tiles += row_blocks_of(plan, problem.band, J).size();
    RunState state(execution, tiles * problem.G * plan.units);
    Backward<Acc> body(problem, plan, kernels, state, grant);
    Schedule<Backward<Acc>> schedule(body, state, grant.at<Slot>(plan.backward.control), plan.slots, plan.units,
                                     plan.column_blocks);
    run_team(static_cast<int>(plan.threads), schedule);
    if (state.stopped()) return {StatusCode::cancelled, "attention_backward: cancelled by the caller's token"};
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
