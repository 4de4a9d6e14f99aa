// SPDX-License-Identifier: Apache-2.0
//
// The forward's loop nest. A task is one query block I of one query head; it walks the kv blocks J it sees, upwards:
//
//   S = Q_I K_Jᵀ                                       product, depth D
//   m' = max(m, row max)   P = exp(scale·S − m')       one pass; l and m are running statistics of the row
//   O = O·exp(m − m') + P V_J                          rescale rows whose maximum moved, then a product over the block
//
// and ends with out = O / l, softmax_max = m, softmax_sum = l. 4·D operations a visible pair.
//
// A row that saw nothing has l = 0 (a row that saw anything has l ≥ 1, or NaN): out 0, −FLT_MAX, +FLT_MAX.
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

void write_statistic(const Statistic& statistic, std::int64_t b, std::int64_t n, std::int64_t s, double value) {
    if (!statistic.wanted) return;
    if (statistic.dtype == DType::f32 && statistic.stride.d == 1) {
        auto* row = reinterpret_cast<float*>(address(statistic, b, n, s, 0));
        std::fill_n(row, statistic.copies, static_cast<float>(value));
        return;
    }
    for (std::int64_t copy = 0; copy < statistic.copies; ++copy) {
        store_scalar(address(statistic, b, n, s, copy), statistic.dtype, value);
    }
}

template <class Acc>
class Forward {
  public:
    Forward(const Problem& problem, const Plan& plan, const ComputeKernels& kernels, RunState& state, Grant grant)
        : problem_(problem), plan_(plan), kernels_(kernels), state_(state), grant_(grant) {}

    void open(std::int64_t slot, std::int64_t unit, int /*member*/) {
        const std::int64_t b = unit / problem_.N2;
        const std::int64_t h = unit % problem_.N2;
        auto* state = grant_.at<std::uint32_t>(plan_.forward.pack_state, slot);
        for (std::int64_t J = 0; J < plan_.column_blocks; ++J) state[J] = 0;
        for (std::int64_t g = 0; g < problem_.G; ++g) {
            for (const Range dead : {Range{0, plan_.rows.begin}, Range{plan_.rows.end, problem_.S1}}) {
                const std::int64_t n = h * problem_.G + g;
                zero_rows(problem_.attention_out, b, n, dead, problem_.Dv);
                for (std::int64_t s = dead.begin; s < dead.end; ++s) write_invalid(b, n, s);
            }
        }
    }

    void run(std::int64_t slot, std::int64_t unit, std::int64_t index, int member) {
        const std::int64_t b = unit / problem_.N2;
        const std::int64_t h = unit % problem_.N2;
        const std::int64_t I = plan_.row_blocks - 1 - index / problem_.G;
        const std::int64_t n = h * problem_.G + index % problem_.G;
        const Range rows = plan_.row_block(I);
        const ForwardBuffers& buffers = plan_.forward;

        kernels::LoadArgs load = load_args(problem_.query, b, n, rows, problem_.D, rows.size());
        load.negate = problem_.scale < 0;
        load.dst = grant_.at(buffers.query_rows, member);
        load.ld = plan_.D_row;
        kernels_.load_rows(load);
        auto* max = grant_.at<Acc>(buffers.statistics, member);
        Acc* sum = max + plan_.Br;
        Acc* rescale = sum + plan_.Br;
        for (std::int64_t r = 0; r < rows.size(); ++r) {
            max[r] = -std::numeric_limits<Acc>::infinity();
            sum[r] = 0;
        }

        bool started = false;
        const Range blocks = column_blocks_of(plan_, problem_.band, I);
        for (std::int64_t J = blocks.begin; J < blocks.end; ++J) {
            if (state_.stopped()) return;
            started = tile(slot, b, h, n, rows, J, member, max, sum, rescale, started) || started;
            state_.advance(member, 1);
        }
        finish(b, n, rows, member, max, sum, started);
    }

  private:
    // Kᵀ and V of one kv block, once a unit.
    void load_key_value(std::int64_t slot, std::int64_t b, std::int64_t h, std::int64_t J, int member) {
        const ForwardBuffers& buffers = plan_.forward;
        const Range columns = plan_.column_block(J);
        const std::int64_t rows = columns.size();
        const std::int64_t padded = (rows + granule - 1) / granule * granule;
        std::byte* rows_form = grant_.at(buffers.load, member);
        std::byte* value_panels = grant_.at(buffers.value_panels, slot) + J * plan_.value_panels.bytes;
        std::uint8_t* flags = grant_.at<std::uint8_t>(buffers.value_flags, slot) + J * plan_.Bc;

        kernels::LoadArgs load = load_args(problem_.key, b, h, columns, problem_.D, padded);
        load.dst = rows_form;
        load.ld = plan_.D_row;
        kernels_.load_rows(load);
        kernels::PackArgs pack{};
        pack.src = rows_form;
        pack.ld = plan_.D_row;
        pack.src_bytes = plan_.shape.element_bytes();
        pack.rows = static_cast<std::int32_t>(padded);
        pack.columns = static_cast<std::int32_t>(plan_.D_row);
        pack.dst = grant_.at(buffers.key_panels, slot) + J * plan_.key_columns.bytes;
        pack.panel = plan_.key_columns.panel_bytes;
        pack.width = static_cast<std::int32_t>(plan_.key_columns.width);
        kernels_.pack_by_columns(pack);

        load = load_args(problem_.value, b, h, columns, problem_.Dv, padded);
        load.dst = rows_form;
        load.ld = plan_.Dv_row;
        load.nonfinite = flags;
        kernels_.load_rows(load);
        pack.ld = plan_.Dv_row;
        pack.columns = static_cast<std::int32_t>(plan_.Dv_pad);
        pack.dst = value_panels;
        pack.panel = plan_.value_panels.panel_bytes;
        pack.width = static_cast<std::int32_t>(plan_.value_panels.width);
        kernels_.pack_by_rows(pack);
        zero_flagged(flags, rows, problem_.Dv, plan_.value_panels, plan_.shape, value_panels);
    }

    // One tile; false when nothing of it is visible.
    bool tile(std::int64_t slot, std::int64_t b, std::int64_t h, std::int64_t n, Range rows, std::int64_t J, int member,
              Acc* max, Acc* sum, Acc* rescale, bool started) {
        const ForwardBuffers& buffers = plan_.forward;
        const Range columns = plan_.column_block(J);
        auto* spans = grant_.at<kernels::Span>(buffers.spans, member);
        const TileMask mask =
            mask_tile(problem_, plan_, b, n, rows, columns,
                      {grant_.at<std::uint16_t>(buffers.mask_words, member), spans, spans + plan_.Br, nullptr});
        if (mask.kind == TileClass::empty) return false;
        once(grant_.at<std::uint32_t>(buffers.pack_state, slot)[J], state_,
             [&] { load_key_value(slot, b, h, J, member); });

        const std::int64_t word = plan_.shape.word_bytes;
        const std::int64_t element = plan_.shape.element_bytes();
        const auto step = static_cast<std::int32_t>(plan_.shape.step);
        const auto width = static_cast<std::int32_t>(columns.size());
        const std::int32_t padded = (width + granule - 1) / granule * granule;
        auto* scores = grant_.at<Acc>(buffers.scores, member);
        auto* out = grant_.at<Acc>(buffers.out, member);

        ProductArgs product{};
        product.a = grant_.at(buffers.query_rows, member);
        product.a_row = plan_.D_row * element;
        product.a_step = word;
        product.b = grant_.at(buffers.key_panels, slot) + J * plan_.key_columns.bytes;
        product.b_panel = plan_.key_columns.panel_bytes;
        product.b_width = static_cast<std::int32_t>(plan_.key_columns.width);
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
        pass.row_max = max;
        pass.row_sum = sum;
        pass.row_rescale = rescale;
        pass.p = step == 1 ? static_cast<void*>(scores) : grant_.at(buffers.weights, member);
        pass.ldp = plan_.tile_ld;
        kernels_.softmax_forward(pass);

        if (started) {
            kernels_.rescale_rows({out, plan_.Dv_pad, product.m, static_cast<std::int32_t>(plan_.Dv_pad), rescale});
        }
        product.a = pass.p;
        product.a_row = plan_.tile_ld * element;
        product.b = grant_.at(buffers.value_panels, slot) + J * plan_.value_panels.bytes;
        product.b_panel = plan_.value_panels.panel_bytes;
        product.b_width = static_cast<std::int32_t>(plan_.value_panels.width);
        product.c = out;
        product.ldc = plan_.Dv_pad;
        product.n = static_cast<std::int32_t>(plan_.Dv_pad);
        product.k = (width + step - 1) / step;
        product.accumulate = started;
        product.column_span = nullptr;
        product.depth_span = mask.depth_rows;
        kernels_.product(product);
        add_flagged_values(mask, slot, b, h, J, rows, columns, pass.p, out);
        return true;
    }

    // out[row] += P(row, column) · value row, for flagged value rows and visible pairs (see tile.h).
    void add_flagged_values(const TileMask& mask, std::int64_t slot, std::int64_t b, std::int64_t h, std::int64_t J,
                            Range rows, Range columns, const void* weights, Acc* out) {
        const std::uint8_t* flags = grant_.at<std::uint8_t>(plan_.forward.value_flags, slot) + J * plan_.Bc;
        if (!any_flagged(flags, columns.size())) return;
        const DType dtype = plan_.shape.step == 2 ? DType::bf16 : sizeof(Acc) == 8 ? DType::f64 : DType::f32;
        for (std::int64_t c = 0; c < columns.size(); ++c) {
            if (flags[c] == 0) continue;
            for (std::int64_t r = 0; r < rows.size(); ++r) {
                if (!mask.visible(r, c)) continue;
                const std::byte* weight =
                    static_cast<const std::byte*>(weights) + (r * plan_.tile_ld + c) * plan_.shape.element_bytes();
                add_row(out + r * plan_.Dv_pad, static_cast<Acc>(load_scalar(weight, dtype)), problem_.value, b, h,
                        columns.begin + c, problem_.Dv);
            }
        }
    }

    void finish(std::int64_t b, std::int64_t n, Range rows, int member, const Acc* max, const Acc* sum, bool started) {
        if (started) {
            kernels::StoreArgs args{};
            args.src = grant_.at(plan_.forward.out, member);
            args.ld = plan_.Dv_pad;
            args.rows = static_cast<std::int32_t>(rows.size());
            args.columns = static_cast<std::int32_t>(problem_.Dv);
            args.factor = sum;
            args.factor_step = 1;
            args.divide = true;
            args.dst = address(problem_.attention_out, b, n, rows.begin);
            args.element = element_of(problem_.attention_out.dtype);
            args.row_stride = problem_.attention_out.stride.s;
            args.column_stride = problem_.attention_out.stride.d;
            kernels_.store_rows(args);
        }
        for (std::int64_t r = 0; r < rows.size(); ++r) {
            const std::int64_t s = rows.begin + r;
            if (sum[r] == 0) {
                zero_rows(problem_.attention_out, b, n, {s, s + 1}, problem_.Dv);
                write_invalid(b, n, s);
                continue;
            }
            write_statistic(problem_.softmax_max, b, n, s, static_cast<double>(max[r]));
            write_statistic(problem_.softmax_sum, b, n, s, static_cast<double>(sum[r]));
        }
    }

    void write_invalid(std::int64_t b, std::int64_t n, std::int64_t s) {
        write_statistic(problem_.softmax_max, b, n, s, -invalid_row);
        write_statistic(problem_.softmax_sum, b, n, s, invalid_row);
    }

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
    for (std::int64_t I = 0; I < plan.row_blocks; ++I) tiles += column_blocks_of(plan, problem.band, I).size();
    RunState state(execution, tiles * problem.G * plan.units);
    Forward<Acc> body(problem, plan, kernels, state, grant);
    Schedule<Forward<Acc>> schedule(body, state, grant.at<Slot>(plan.forward.control), plan.slots, plan.units,
                                    plan.row_blocks * problem.G);
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
