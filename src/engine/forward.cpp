// SPDX-License-Identifier: Apache-2.0
//
// The forward's loop nest. A task is one query block I of one query head; it walks the kv blocks J it sees, upwards:
//
//   S = Q_I K_Jᵀ                                       product, depth D
//   m' = max(m, row max)   P = exp(scale·S − m')       one pass; l and m are running statistics of the row
//   O = O·exp(m − m') + P V_J                          rescale rows whose maximum moved, then a product over the block
//
// and ends with out = O / (l · keep_prob), softmax_max = m, softmax_sum = l. 4·D operations a visible pair.
//
// A row that saw nothing has l = 0 (a row that saw anything has l ≥ 1, or NaN): out 0, −FLT_MAX, +FLT_MAX. With a sink
// a row starts with m = sink, l = 1: the logit without a value.
//
// 8-bit inputs quantise R = P / keep_prob, which needs the final m and l: they walk the kv blocks twice, first for the
// statistics alone. 6·D operations a pair.
//
// Kᵀ and V of a unit are packed once, block by block, by whoever meets a block first. Tasks count I downwards: under a
// causal rule the last rows have most to do, and starting with them leaves no long task for the end.
//
// The sign of a negative scale goes into the packed query, so that the pass may take the maximum before it scales.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/engine.h"
#include "engine/schedule.h"
#include "engine/tile.h"

namespace fascore {

namespace {

using kernels::ComputeKernels;
using kernels::ProductArgs;

constexpr double invalid_row = 3.402823466385288598e38;  // FLT_MAX: the statistics of a row that sees nothing

void write_statistic(const Statistic& statistic, std::int64_t n, std::int64_t s, double value) {
    if (!statistic.wanted) return;
    if (statistic.dtype == DType::f32 && statistic.stride.d == 1) {
        auto* row = reinterpret_cast<float*>(address(statistic, n, s, 0));
        std::fill_n(row, statistic.copies, static_cast<float>(value));
        return;
    }
    for (std::int64_t copy = 0; copy < statistic.copies; ++copy) {
        store_scalar(address(statistic, n, s, copy), statistic.dtype, value);
    }
}

template <class Acc>
class Forward {
  public:
    Forward(const Problem& problem, const Plan& plan, const ComputeKernels& kernels, RunState& state, Grant grant)
        : problem_(problem),
          plan_(plan),
          kernels_(kernels),
          state_(state),
          grant_(grant),
          two_walks_(is_8bit(problem.dtype)) {}

    [[nodiscard]] std::int64_t tasks(std::int64_t unit) const {
        return problem_.G * grid_of(problem_, plan_, batch_of(unit)).row_blocks;
    }

    void open(std::int64_t slot, std::int64_t unit, int /*member*/) {
        const Batch batch = problem_.batch(batch_of(unit));
        const Grid grid = plan_.grid(batch.band, batch.S1, batch.S2);
        const std::int64_t h = unit % problem_.N2;
        auto* state = grant_.at<std::uint32_t>(plan_.forward.pack_state, slot);
        for (std::int64_t J = 0; J < grid.column_blocks; ++J) state[J] = 0;
        for (std::int64_t g = 0; g < problem_.G; ++g) {
            for (const Range dead : {Range{0, grid.rows.begin}, Range{grid.rows.end, batch.S1}}) {
                const std::int64_t n = h * problem_.G + g;
                zero_rows(batch.attention_out, n, dead, problem_.Dv);
                for (std::int64_t s = dead.begin; s < dead.end; ++s) write_dead(batch, n, s);
            }
        }
    }

    void run(std::int64_t slot, std::int64_t unit, std::int64_t index, int member) {
        Task task(problem_, plan_, batch_of(unit));
        const Batch& batch = task.batch;
        task.slot = slot;
        task.h = unit % problem_.N2;
        task.member = member;
        const std::int64_t I = task.grid.row_blocks - 1 - index / problem_.G;
        task.n = task.h * problem_.G + index % problem_.G;
        task.rows = task.grid.row_block(I);
        const ForwardBuffers& buffers = plan_.forward;

        load(kernels_, query_rows(batch), task.n, task.rows,
             {grant_.at(buffers.query_rows, member), plan_.D_row, plan_.D_ld, task.rows.size(), nullptr,
              problem_.scale < 0});
        auto* max = grant_.at<Acc>(buffers.statistics, member);
        task.max = max;
        task.sum = max + plan_.Br;
        task.rescale = task.sum + plan_.Br;
        const Acc sink =
            batch.sink.present ? static_cast<Acc>(sink_of(batch, task.n)) : -std::numeric_limits<Acc>::infinity();
        std::fill_n(task.max, task.rows.size(), sink);
        std::fill_n(task.sum, task.rows.size(), sink == -std::numeric_limits<Acc>::infinity() ? Acc{0} : Acc{1});

        const Range blocks = task.grid.column_blocks_of(I);
        if (two_walks_) {
            for (std::int64_t J = blocks.begin; J < blocks.end; ++J) {
                if (state_.stopped()) return;
                tile(task, J, Walk::statistics);
            }
            // R = P · 1/(l · keep_prob), the rest of the walk knows m.
            task.factor = task.rescale + 2 * plan_.Br;
            const Acc keep_prob = static_cast<Acc>(batch.dropout.active ? batch.dropout.keep_prob : 1.0);
            for (std::int64_t r = 0; r < task.rows.size(); ++r) task.factor[r] = 1 / (task.sum[r] * keep_prob);
        }
        for (std::int64_t J = blocks.begin; J < blocks.end; ++J) {
            if (state_.stopped()) return;
            if (tile(task, J, two_walks_ ? Walk::quantised : Walk::online)) task.started = true;
            state_.advance(member, 1);
        }
        finish(task);
    }

  private:
    enum class Walk : std::uint8_t { online, statistics, quantised };

    struct Task {
        Task(const Problem& problem, const Plan& plan, std::int64_t b)
            : batch(problem.batch(b)), grid(plan.grid(batch.band, batch.S1, batch.S2)) {}

        Batch batch;
        Grid grid;
        std::int64_t slot = 0;
        std::int64_t h = 0;
        std::int64_t n = 0;
        Range rows;
        int member = 0;
        Acc* max = nullptr;
        Acc* sum = nullptr;
        Acc* rescale = nullptr;
        Acc* factor = nullptr;
        bool started = false;  // the out accumulator holds something
    };

    std::int64_t batch_of(std::int64_t unit) const { return plan_.batch_of(unit / problem_.N2); }

    // Kᵀ and V of one kv block, once a unit.
    void load_key_value(const Task& task, std::int64_t J) {
        const ForwardBuffers& buffers = plan_.forward;
        const Range columns = task.grid.column_block(J);
        const std::int64_t rows = columns.size();
        const std::int64_t padded = (rows + granule - 1) / granule * granule;
        std::byte* rows_form = grant_.at(buffers.load, task.member);
        std::byte* value_panels = grant_.at(buffers.value_panels, task.slot) + J * plan_.value_panels.bytes;
        std::uint8_t* flags = grant_.at<std::uint8_t>(buffers.value_flags, task.slot) + J * plan_.Bc;

        load(kernels_, key_rows(task.batch), task.h, columns, {rows_form, plan_.D_row, plan_.D_ld, padded, nullptr});
        pack(kernels_.pack_by_columns, plan_.shape, rows_form, plan_.D_ld, padded, plan_.D_row, plan_.key_columns,
             grant_.at(buffers.key_panels, task.slot) + J * plan_.key_columns.bytes);
        std::byte* value_rows_form = plan_.rows_are_panels ? value_panels : rows_form;
        load(kernels_, value_rows(task.batch), task.h, columns,
             {value_rows_form, plan_.Dv_row, plan_.Dv_ld, padded, flags});
        if (!plan_.rows_are_panels) {
            pack(kernels_.pack_by_rows, plan_.shape, value_rows_form, plan_.Dv_ld, padded, plan_.Dv_pad,
                 plan_.value_panels, value_panels);
        }
        zero_flagged(flags, rows, problem_.Dv, plan_.value_panels, plan_.shape, value_panels);
    }

    // One tile; false when nothing of it is visible.
    bool tile(const Task& task, std::int64_t J, Walk walk) {
        const ForwardBuffers& buffers = plan_.forward;
        const Range rows = task.rows;
        const Range columns = task.grid.column_block(J);
        auto* spans = grant_.at<kernels::Span>(buffers.spans, task.member);
        const TileMask mask = mask_tile(
            task.batch, plan_, kernels_, task.n, rows, columns,
            {grant_.at<std::uint16_t>(buffers.mask_words, task.member), spans, spans + plan_.Br, nullptr,
             grant_.at(buffers.bias, task.member), grant_.at<std::uint16_t>(buffers.keep_words, task.member)});
        if (mask.kind == TileClass::empty) return false;
        once(grant_.at<std::uint32_t>(buffers.pack_state, task.slot)[J], 0, state_, [&] { load_key_value(task, J); });

        const std::int64_t word = plan_.shape.word_bytes;
        const std::int64_t element = plan_.shape.element_bytes();
        const auto step = static_cast<std::int32_t>(plan_.shape.step);
        const auto width = static_cast<std::int32_t>(columns.size());
        const std::int32_t padded = (width + granule - 1) / granule * granule;
        auto* scores = grant_.at<Acc>(buffers.scores, task.member);
        auto* out = grant_.at<Acc>(buffers.out, task.member);

        ProductArgs product{};
        product.a = grant_.at(buffers.query_rows, task.member);
        product.a_row = plan_.D_ld * element;
        product.a_step = word;
        set_b(product, plan_.key_columns, grant_.at(buffers.key_panels, task.slot) + J * plan_.key_columns.bytes);
        product.c = scores;
        product.ldc = plan_.tile_ld;
        product.m = static_cast<std::int32_t>(rows.size());
        product.n = padded;
        product.k = static_cast<std::int32_t>((problem_.D + step - 1) / step);
        product.column_span = mask.column_span;
        kernels_.product(product);

        kernels::SoftmaxForwardArgs pass{};
        pass.s = scores;
        pass.lds = plan_.tile_ld;
        pass.rows = product.m;
        pass.columns = padded;
        pass.visible = mask.words;
        pass.row_words = mask.row_words;
        pass.column_span = mask.column_span;
        pass.scale = std::fabs(problem_.scale);
        pass.row_max = task.max;
        // The second walk has the maximum already; what it would add to the sum goes beside it.
        pass.row_sum = walk == Walk::quantised ? task.rescale + plan_.Br : task.sum;
        pass.row_rescale = task.rescale;
        pass.p = step == 1 ? static_cast<void*>(scores) : grant_.at(buffers.weights, task.member);
        pass.ldp = plan_.tile_ld;
        pass.terms = mask.terms;
        kernels_.softmax_forward(pass);
        if (walk == Walk::statistics) return true;
        if (walk == Walk::quantised) {
            kernels::QuantiseArgs quantise{};
            quantise.x = scores;
            quantise.ld = plan_.tile_ld;
            quantise.rows = product.m;
            quantise.columns = padded;
            quantise.element = element_of(problem_.dtype);
            quantise.row_factor = reinterpret_cast<const float*>(task.factor);  // 8-bit inputs accumulate in f32
            kernels_.quantise(quantise);
        } else if (task.started) {
            kernels_.rescale_rows(
                {out, plan_.Dv_pad, product.m, static_cast<std::int32_t>(plan_.Dv_pad), task.rescale});
        }
        product.a = pass.p;
        product.a_row = plan_.tile_ld * element;
        set_b(product, plan_.value_panels, grant_.at(buffers.value_panels, task.slot) + J * plan_.value_panels.bytes);
        product.c = out;
        product.ldc = plan_.Dv_pad;
        product.n = static_cast<std::int32_t>(plan_.Dv_pad);
        product.k = (width + step - 1) / step;
        product.accumulate = task.started;
        product.column_span = nullptr;
        product.depth_span = mask.depth_rows;
        kernels_.product(product);
        add_flagged_values(mask, task, J, columns, pass.p, out);
        return true;
    }

    // out[row] += P(row, column) · value row, for flagged value rows and visible pairs (see tile.h).
    void add_flagged_values(const TileMask& mask, const Task& task, std::int64_t J, Range columns, const void* weights,
                            Acc* out) {
        const std::uint8_t* flags = grant_.at<std::uint8_t>(plan_.forward.value_flags, task.slot) + J * plan_.Bc;
        if (!any_flagged(flags, columns.size())) return;
        const DType dtype = plan_.shape.step == 2 ? DType::bf16 : sizeof(Acc) == 8 ? DType::f64 : DType::f32;
        for (std::int64_t c = 0; c < columns.size(); ++c) {
            if (flags[c] == 0) continue;
            for (std::int64_t r = 0; r < task.rows.size(); ++r) {
                if (!mask.visible(r, c)) continue;
                const std::byte* weight =
                    static_cast<const std::byte*>(weights) + (r * plan_.tile_ld + c) * plan_.shape.element_bytes();
                add_row(out + r * plan_.Dv_pad, static_cast<Acc>(load_scalar(weight, dtype)), value_rows(task.batch),
                        task.h, columns.begin + c);
            }
        }
    }

    void finish(const Task& task) {
        const Batch& batch = task.batch;
        if (task.started) {
            Acc* divisor = task.sum;
            if (two_walks_) {
                divisor = task.factor;  // R was normalised
                std::fill_n(divisor, task.rows.size(), Acc{1});
            } else if (batch.dropout.active) {
                divisor = task.rescale;
                for (std::int64_t r = 0; r < task.rows.size(); ++r) {
                    divisor[r] = task.sum[r] * static_cast<Acc>(batch.dropout.keep_prob);
                }
            }
            store(kernels_, {batch.attention_out, problem_.Dv, batch.attention_out, 0}, task.n, task.rows,
                  grant_.at(plan_.forward.out, task.member), plan_.Dv_pad, divisor, true);
        }
        for (std::int64_t r = 0; r < task.rows.size(); ++r) {
            const std::int64_t s = task.rows.begin + r;
            if (!task.started || task.sum[r] == 0) {
                zero_rows(batch.attention_out, task.n, {s, s + 1}, problem_.Dv);
                write_dead(batch, task.n, s);
                continue;
            }
            write_statistic(batch.softmax_max, task.n, s, static_cast<double>(task.max[r]));
            write_statistic(batch.softmax_sum, task.n, s, static_cast<double>(task.sum[r]));
        }
    }

    // A row that sees no key: its sink, if it has one, is all of its softmax. Without keys at all, 0.
    void write_dead(const Batch& batch, std::int64_t n, std::int64_t s) {
        const bool sink = batch.sink.present && std::isfinite(sink_of(batch, n));
        const bool keys = batch.S2 > 0;
        write_statistic(batch.softmax_max, n, s, !keys ? 0 : sink ? sink_of(batch, n) : -invalid_row);
        write_statistic(batch.softmax_sum, n, s, !keys ? 0 : sink ? 1 : invalid_row);
    }

    const Problem& problem_;
    const Plan& plan_;
    const ComputeKernels& kernels_;
    RunState& state_;
    Grant grant_;
    bool two_walks_;
};

template <class Acc>
Status run(const Problem& problem, const Plan& plan, const ComputeKernels& kernels, const Execution& execution,
           std::byte* workspace) {
    const Grant grant(workspace);
    const Work work = count_work(problem, plan);
    RunState state(execution, work.tiles);
    Forward<Acc> body(problem, plan, kernels, state, grant);
    Schedule<Forward<Acc>> schedule(body, state, grant.at<Slot>(plan.forward.control), plan.slots, plan.units,
                                    work.tasks);
    run_team(static_cast<int>(plan.threads), schedule);
    if (state.stopped()) return {StatusCode::cancelled, "attention_forward: cancelled by the caller's token"};
    state.finish();
    return {};
}

}  // namespace

Status run_forward(const Problem& problem, const Plan& plan, const ComputeKernels& kernels, const Execution& execution,
                   std::byte* workspace) {
    return plan.shape.acc_bytes == 8 ? run<double>(problem, plan, kernels, execution, workspace)
                                     : run<float>(problem, plan, kernels, execution, workspace);
}

}  // namespace fascore
