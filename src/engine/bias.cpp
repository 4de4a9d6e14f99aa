// SPDX-License-Identifier: Apache-2.0
#include "engine/bias.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

namespace fascore {

namespace {

std::int64_t width_of(Range columns) { return (columns.size() + granule - 1) / granule * granule; }

// One accumulate-type number as kernels take it.
class Factor {
  public:
    Factor(double value, std::int64_t acc_bytes)
        : wide_(value), narrow_(static_cast<float>(value)), bytes_(acc_bytes) {}
    [[nodiscard]] const void* address() const { return bytes_ == 8 ? static_cast<const void*>(&wide_) : &narrow_; }

  private:
    double wide_;
    float narrow_;
    std::int64_t bytes_;
};

// Row of a `tail` bias and what is added to its column.
struct TailRow {
    std::int64_t row;
    std::int64_t shift;
};
TailRow tail_row(const Batch& batch, std::int64_t i) {
    const std::int64_t threshold = batch.S1 - compressed_rows;
    if (i >= threshold) return {i - threshold, 0};
    const std::int64_t row = i % compressed_rows;
    return {row, batch.S2 - i - compressed_rows + row};
}

// Row and column of the element a `diagonal` bias has for (i, j), j ≤ i.
struct DiagonalElement {
    std::int64_t row;
    std::int64_t column;
};
DiagonalElement diagonal_element(const Batch& batch, std::int64_t i, std::int64_t j) {
    const std::int64_t p = i - j - (batch.bias.longest - compressed_rows);
    return {std::max<std::int64_t>(p, 0), std::max<std::int64_t>(-p, 0)};
}

double slope_of(const Batch& batch, std::int64_t n) {
    return load_scalar(address(batch.bias, n, 0, 0), batch.bias.dtype);
}

kernels::SlopeArgs slope_args(const Batch& batch, Range rows, Range columns) {
    kernels::SlopeArgs args{};
    args.root = batch.bias.kind == Bias::Kind::root_slope;
    args.first = columns.begin + batch.bias.k_start - rows.begin - batch.bias.q_start;
    args.rows = static_cast<std::int32_t>(rows.size());
    args.columns = static_cast<std::int32_t>(width_of(columns));
    return args;
}

template <class Acc>
void fill_diagonal(const Batch& batch, std::int64_t n, Range rows, Range columns, void* tile, std::int64_t ld) {
    const Bias& bias = batch.bias;
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        Acc* row = static_cast<Acc*>(tile) + (i - rows.begin) * ld;
        std::fill_n(row, width_of(columns), Acc{0});
        for (std::int64_t j = columns.begin; j < std::min(columns.end, i + 1); ++j) {
            const DiagonalElement from = diagonal_element(batch, i, j);
            row[j - columns.begin] =
                static_cast<Acc>(bias.factor * load_scalar(address(bias, n, from.row, from.column), bias.dtype));
        }
    }
}

// A factor that is not positive has turned −inf into something else.
void restore_infinities(const Batch& batch, std::int64_t n, Range rows, Range columns, const std::uint8_t* flags,
                        void* tile, std::int64_t ld, std::int64_t acc_bytes) {
    const Bias& bias = batch.bias;
    const double hidden = -std::numeric_limits<double>::infinity();
    for (std::int64_t r = 0; r < rows.size(); ++r) {
        for (std::int64_t c = 0; flags[r] != 0 && c < columns.size(); ++c) {
            if (load_scalar(address(bias, n, rows.begin + r, columns.begin + c), bias.dtype) != hidden) continue;
            store_scalar(static_cast<std::byte*>(tile) + (r * ld + c) * acc_bytes,
                         acc_bytes == 8 ? DType::f64 : DType::f32, hidden);
        }
    }
}

}  // namespace

bool fill_bias(const Batch& batch, const kernels::ComputeKernels& kernels, std::int64_t n, Range rows, Range columns,
               void* tile, std::int64_t ld, std::uint8_t* flags) {
    const Bias& bias = batch.bias;
    const std::int64_t acc = kernels.acc_bytes;
    std::fill_n(flags, rows.size(), std::uint8_t{0});
    if (bias.slopes()) {
        kernels::SlopeArgs args = slope_args(batch, rows, columns);
        args.slope = slope_of(batch, n);
        args.dst = tile;
        args.ld = ld;
        kernels.slope_bias(args);
        return false;
    }
    if (bias.kind == Bias::Kind::diagonal) {
        if (acc == 8) {
            fill_diagonal<double>(batch, n, rows, columns, tile, ld);
        } else {
            fill_diagonal<float>(batch, n, rows, columns, tile, ld);
        }
        return false;
    }
    kernels::LoadArgs args{};
    args.element = element_of(bias.dtype);
    args.row_stride = bias.stride.s;
    args.column_stride = bias.stride.d;
    args.factor = bias.factor;
    args.ld = ld;
    args.width = width_of(columns);
    if (bias.kind == Bias::Kind::tail) {
        for (std::int64_t i = rows.begin; i < rows.end; ++i) {
            const TailRow from = tail_row(batch, i);
            args.src = address(bias, n, from.row, columns.begin + from.shift);
            args.rows = args.padded_rows = 1;
            args.columns = static_cast<std::int32_t>(
                std::clamp(i + 1 - columns.begin, std::int64_t{0}, columns.size()));  // beyond the diagonal: nothing
            args.dst = static_cast<std::byte*>(tile) + (i - rows.begin) * ld * acc;
            kernels.load_bias(args);
        }
        return false;
    }
    args.src = address(bias, n, rows.begin, columns.begin);
    args.rows = args.padded_rows = static_cast<std::int32_t>(rows.size());
    args.columns = static_cast<std::int32_t>(columns.size());
    args.dst = tile;
    args.nonfinite = flags;
    kernels.load_bias(args);
    // NaN and +inf go their IEEE way; −inf hides.
    const bool hides = std::memchr(flags, 1, static_cast<std::size_t>(rows.size())) != nullptr;
    if (hides && !(bias.factor > 0)) restore_infinities(batch, n, rows, columns, flags, tile, ld, acc);
    return hides;
}

// ---- the gradient --------------------------------------------------------------------------------------------------

void BiasGradient::begin() const {
    if (!wanted()) return;
    const BackwardBuffers& buffers = plan_.backward;
    if (problem_.bias.slopes()) {
        std::fill_n(grant_.at<double>(buffers.dslope), problem_.B * problem_.N1 * plan_.column_blocks, 0.0);
    }
    if (!has_sums()) return;
    const DpseSums& sums = buffers.dpse_sums;
    std::memset(grant_.at(buffers.dpse), 0, static_cast<std::size_t>(sums.elements * kernels_.acc_bytes));
    if (!in_turn()) return;
    auto* turns = grant_.at<std::int32_t>(buffers.dpse_turn);
    for (std::int64_t k = 0; k < sums.turns; ++k) {
        turns[k] = first_order(problem_.bias.compressed() ? 0 : k % plan_.column_blocks);
    }
}

bool BiasGradient::in_turn() const {
    const Bias& bias = problem_.bias;
    return bias.over_batches || bias.over_heads || bias.compressed();
}

std::int64_t BiasGradient::next_place(std::int64_t place, std::int64_t J) const {
    for (++place; place < problem_.B && !problem_.sequences.empty(); ++place) {
        if (grid_of(problem_, plan_, plan_.batch_of(place)).column_blocks > J) break;
    }
    return place;
}

std::int32_t BiasGradient::first_order(std::int64_t J) const {
    if (!problem_.bias.over_batches) return 0;
    const std::int64_t place = next_place(-1, J);
    const Bias& bias = problem_.bias;
    return static_cast<std::int32_t>(place * (bias.compressed() ? plan_.column_blocks
                                              : bias.over_heads ? problem_.N2
                                                                : 1));
}

std::int64_t BiasGradient::turn_index(const Part& part, std::int64_t n) const {
    const Bias& bias = problem_.bias;
    const std::int64_t heads = bias.over_heads ? 1 : problem_.N1;
    const std::int64_t head = (bias.over_batches ? 0 : part.batch.index) * heads + (bias.over_heads ? 0 : n);
    return bias.compressed() ? head : head * plan_.column_blocks + part.J;
}

std::int32_t BiasGradient::order_of(const Part& part) const {
    const Bias& bias = problem_.bias;
    const std::int64_t place = bias.over_batches ? part.place : 0;
    if (bias.compressed()) return static_cast<std::int32_t>(place * plan_.column_blocks + part.J);
    return static_cast<std::int32_t>(bias.over_heads ? place * problem_.N2 + part.h : place);
}

std::int32_t BiasGradient::next_after(const Part& part) const {
    const Bias& bias = problem_.bias;
    const bool last =
        bias.compressed() ? part.J + 1 >= part.grid.column_blocks : !bias.over_heads || part.h + 1 >= problem_.N2;
    if (!last || !bias.over_batches) return order_of(part) + 1;
    const std::int64_t place = next_place(part.place, bias.compressed() ? 0 : part.J);
    return static_cast<std::int32_t>(place * (bias.compressed() ? plan_.column_blocks
                                              : bias.over_heads ? problem_.N2
                                                                : 1));
}

void BiasGradient::take_turn(Part& part, std::int64_t n) const {
    if (part.holds_turn) return;
    std::atomic_ref<std::int32_t> turn(grant_.at<std::int32_t>(plan_.backward.dpse_turn)[turn_index(part, n)]);
    const std::int32_t mine = order_of(part);
    for (int round = 0; turn.load(std::memory_order_acquire) != mine; ++round) {
        if (state_.stopped()) return;
        spin_pause(round);
    }
    part.holds_turn = true;
}

void BiasGradient::pass_turn(Part& part, std::int64_t n) const {
    take_turn(part, n);
    if (!part.holds_turn) return;
    std::atomic_ref<std::int32_t> turn(grant_.at<std::int32_t>(plan_.backward.dpse_turn)[turn_index(part, n)]);
    turn.store(next_after(part), std::memory_order_release);
    part.holds_turn = false;
}

void BiasGradient::begin_head(Part& part, std::int64_t /*n*/) const { part.slope_sum = 0; }

void BiasGradient::end_head(Part& part, std::int64_t n) const {
    if (!wanted()) return;
    if (problem_.bias.slopes()) {
        const std::int64_t head = part.batch.index * problem_.N1 + n;
        grant_.at<double>(plan_.backward.dslope)[head * plan_.column_blocks + part.J] = part.slope_sum;
        return;
    }
    if (has_sums() && in_turn() && !problem_.bias.over_heads) pass_turn(part, n);
}

void BiasGradient::end(Part& part) const {
    if (wanted() && has_sums() && in_turn() && problem_.bias.over_heads) pass_turn(part, 0);
}

std::byte* BiasGradient::sums_of(const Batch& batch, std::int64_t n) const {
    const DpseSums& sums = plan_.backward.dpse_sums;
    std::int64_t offset = batch.index * sums.stride.b + n * sums.stride.n;
    if (problem_.packed && !problem_.bias.compressed()) {
        const Sequence& sequence = problem_.sequences[static_cast<std::size_t>(batch.index)];
        offset = sequence.k_begin * problem_.N1 + n * sequence.S2;
    }
    return grant_.at(plan_.backward.dpse) + offset * kernels_.acc_bytes;
}

void BiasGradient::add_to_sums(const Part& part, std::int64_t n, Range rows, Range columns, const void* dx) const {
    const DpseSums& sums = plan_.backward.dpse_sums;
    const std::int64_t acc = kernels_.acc_bytes;
    std::byte* base = sums_of(part.batch, n);
    kernels::AddArgs args{};
    args.src = dx;
    args.ld = plan_.tile_ld;
    args.rows = static_cast<std::int32_t>(rows.size());
    args.columns = static_cast<std::int32_t>(columns.size());
    args.dst_row = sums.stride.s;
    args.dst_column = 1;
    if (!problem_.bias.compressed()) {
        args.dst = base + (rows.begin * sums.stride.s + columns.begin) * acc;
        kernels_.add_tile(args);
        return;
    }
    args.rows = 1;
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        args.src = static_cast<const std::byte*>(dx) + (i - rows.begin) * plan_.tile_ld * acc;
        const std::int64_t count = std::clamp(i + 1 - columns.begin, std::int64_t{0}, columns.size());
        if (problem_.bias.kind == Bias::Kind::tail) {
            const TailRow to = tail_row(part.batch, i);
            args.columns = static_cast<std::int32_t>(count);
            args.dst = base + (to.row * sums.stride.s + columns.begin + to.shift) * acc;
            kernels_.add_tile(args);
            continue;
        }
        args.columns = 1;
        for (std::int64_t c = 0; c < count; ++c, args.src = static_cast<const std::byte*>(args.src) + acc) {
            const DiagonalElement to = diagonal_element(part.batch, i, columns.begin + c);
            args.dst = base + (to.row * sums.stride.s + to.column) * acc;
            kernels_.add_tile(args);
        }
    }
}

BiasGradient::Target BiasGradient::target(const Part& part, std::int64_t n, Range rows, Range columns,
                                          void* tile) const {
    if (!wanted()) return {nullptr, 0, 0, false};
    const Result& dpse = part.batch.dpse;
    const bool is_dpse = !has_sums() && !problem_.bias.slopes() && size_of(dpse.dtype) == kernels_.acc_bytes &&
                         dpse.stride.d == 1 && columns.size() % granule == 0;
    if (!is_dpse) return {tile, plan_.tile_ld, 1, false};
    std::byte* first = address(dpse, n, rows.begin) + columns.begin * kernels_.acc_bytes;
    return {first, dpse.stride.s, problem_.bias.factor, true};
}

void BiasGradient::add(Part& part, std::int64_t n, Range rows, Range columns, const void* dx) const {
    if (!wanted() || rows.empty() || columns.empty()) return;
    if (problem_.bias.slopes()) {
        if (dx == nullptr) return;
        kernels::SlopeArgs args = slope_args(part.batch, rows, columns);
        args.dst = const_cast<void*>(dx);
        args.ld = plan_.tile_ld;
        part.slope_sum += kernels_.slope_sum(args);
        return;
    }
    if (has_sums()) {
        if (dx == nullptr) return;
        if (in_turn()) take_turn(part, n);
        if (!state_.stopped()) add_to_sums(part, n, rows, columns, dx);
        return;
    }
    if (dx == nullptr) {
        zero_block(part.batch, n, rows, columns);
        return;
    }
    const Result& dpse = part.batch.dpse;
    const Factor factor(problem_.bias.factor, kernels_.acc_bytes);
    kernels::StoreArgs args{};
    args.src = dx;
    args.ld = plan_.tile_ld;
    args.rows = static_cast<std::int32_t>(rows.size());
    args.columns = static_cast<std::int32_t>(columns.size());
    args.factor = factor.address();
    args.dst = address(dpse, n, rows.begin) + columns.begin * dpse.stride.d * size_of(dpse.dtype);
    args.once = true;
    args.element = element_of(dpse.dtype);
    args.row_stride = dpse.stride.s;
    args.column_stride = dpse.stride.d;
    kernels_.store_rows(args);
}

void BiasGradient::zero_block(const Batch& batch, std::int64_t n, Range rows, Range columns) const {
    Result block = batch.dpse;
    block.data += columns.begin * block.stride.d * size_of(block.dtype);
    zero_rows(block, n, rows, columns.size());
}

void BiasGradient::zero_dead(const Batch& batch, const Grid& grid, std::int64_t n) const {
    if (!wanted() || has_sums() || problem_.bias.slopes()) return;
    zero_block(batch, n, {0, grid.rows.begin}, {0, batch.S2});
    zero_block(batch, n, {grid.rows.end, batch.S1}, {0, batch.S2});
    zero_block(batch, n, grid.rows, {0, grid.columns.begin});
    zero_block(batch, n, grid.rows, {grid.columns.end, batch.S2});
}

void BiasGradient::finish(int member) {
    if (!wanted()) return;
    const Result& dpse = problem_.dpse;
    const Bias& bias = problem_.bias;
    if (bias.slopes()) {
        if (member != 0) return;
        const auto* parts = grant_.at<double>(plan_.backward.dslope);
        const std::int64_t batches = bias.over_batches ? 1 : problem_.B;
        for (std::int64_t b = 0; b < batches; ++b) {
            for (std::int64_t n = 0; n < problem_.N1; ++n) {
                double sum = 0;
                for (std::int64_t other = b; other < (bias.over_batches ? problem_.B : b + 1); ++other) {
                    const double* part = parts + (other * problem_.N1 + n) * plan_.column_blocks;
                    for (std::int64_t J = 0; J < plan_.column_blocks; ++J) sum += part[J];
                }
                const std::int64_t offset = b * dpse.stride.b + n * dpse.stride.n;
                store_scalar(dpse.data + offset * size_of(dpse.dtype), dpse.dtype, -sum);
            }
        }
        return;
    }
    if (!has_sums()) return;
    const Factor factor(bias.factor, kernels_.acc_bytes);
    kernels::StoreArgs args{};
    args.rows = 1;
    args.factor = factor.address();
    args.element = element_of(dpse.dtype);
    args.column_stride = dpse.stride.d;
    if (problem_.packed && !bias.compressed()) {  // [N1·T2] in the order of the sums
        if (member != 0) return;
        std::int64_t used = 0;
        for (const Sequence& sequence : problem_.sequences) used = std::max(used, sequence.k_begin + sequence.S2);
        args.src = grant_.at(plan_.backward.dpse);
        args.columns = static_cast<std::int32_t>(used * problem_.N1);
        args.dst = dpse.data;
        kernels_.store_rows(args);
        for (std::int64_t k = used * problem_.N1; k < bias.elements; ++k) {
            store_scalar(dpse.data + k * dpse.stride.d * size_of(dpse.dtype), dpse.dtype, 0.0);
        }
        return;
    }
    const std::int64_t batches = bias.over_batches ? 1 : problem_.B;
    const std::int64_t heads = bias.over_heads ? 1 : problem_.N1;
    const std::int64_t rows = bias.compressed() ? compressed_rows : bias.over_rows ? 1 : problem_.S1;
    args.columns = static_cast<std::int32_t>(problem_.S2);
    const std::int64_t all = batches * heads * rows;
    for (std::int64_t k = next_row_.fetch_add(1, std::memory_order_relaxed); k < all;
         k = next_row_.fetch_add(1, std::memory_order_relaxed)) {
        const std::int64_t b = k / (heads * rows);
        const std::int64_t n = k / rows % heads;
        const std::int64_t row = k % rows;
        args.src = grant_.at(plan_.backward.dpse) + k * problem_.S2 * kernels_.acc_bytes;
        const std::int64_t offset = b * dpse.stride.b + n * dpse.stride.n + row * dpse.stride.s;
        args.dst = dpse.data + offset * size_of(dpse.dtype);
        kernels_.store_rows(args);
    }
}

}  // namespace fascore
