// SPDX-License-Identifier: Apache-2.0
#include "engine/tile.h"

#include <algorithm>
#include <array>
#include <bit>

#include "engine/bias.h"

namespace fascore {

namespace {

using kernels::Span;

constexpr std::int64_t most_rows = 256;  // of a block, query or key side (plan/blocking.cpp)
constexpr std::int64_t rows_a_scale = 128;

Range intersection(Range a, Range b) {
    const std::int64_t begin = std::max(a.begin, b.begin);
    return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Elements to the steps that hold them.
Span steps_of(Range elements, std::int64_t step) {
    if (elements.empty()) return Span{0, 0};
    return Span{static_cast<std::int32_t>(elements.begin / step),
                static_cast<std::int32_t>((elements.end + step - 1) / step)};
}

// Words end the rows of a column at those of its granule, the band at its own: some 7 rows less at an end.
void fill_spans(const Band& band, const Plan& plan, Range rows, Range columns, const TileMaskBuffers& buffers) {
    const std::int64_t row_words = plan.row_words;
    const std::int64_t step = plan.shape.step;
    const std::int64_t height = rows.size();
    for (std::int64_t r = 0; r < height; ++r) {
        const std::uint16_t* words = buffers.words + r * row_words;
        std::int64_t first = 0;
        std::int64_t last = row_words;
        while (first < row_words && words[first] == 0) ++first;
        while (last > first && words[last - 1] == 0) --last;
        buffers.column_span[r] =
            Span{static_cast<std::int32_t>(first * granule), static_cast<std::int32_t>(last * granule)};
        buffers.depth_rows[r] = Span{0, 0};
        if (first == last) continue;
        const Range seen{first * granule + std::countr_zero(words[first]),
                         (last - 1) * granule + std::bit_width(words[last - 1])};
        buffers.depth_rows[r] = steps_of(seen, step);
    }
    if (buffers.depth_columns == nullptr) return;
    for (std::int64_t g = 0; g < row_words; ++g) {
        std::int64_t first = 0;
        std::int64_t last = height;
        while (first < height && buffers.words[first * row_words + g] == 0) ++first;
        while (last > first && buffers.words[(last - 1) * row_words + g] == 0) --last;
        for (std::int64_t c = g * granule; c < (g + 1) * granule; ++c) {
            const Range by_band = visible_rows(band, columns.begin + c, rows.end);
            const Range seen = intersection({first, last}, {by_band.begin - rows.begin, by_band.end - rows.begin});
            buffers.depth_columns[c] = steps_of(seen, step);
        }
    }
}

// Softcap, bias and dropout bits of the tile.
kernels::ScoreTerms make_terms(const Batch& batch, const Plan& plan, const kernels::ComputeKernels& kernels,
                               std::int64_t n, Range rows, Range columns, const TileMaskBuffers& buffers) {
    kernels::ScoreTerms terms{};
    terms.softcap = batch.softcap;
    if (batch.bias.present()) {
        terms.bias = buffers.bias;
        terms.ldb = plan.tile_ld;
    }
    if (batch.dropout.active) {
        const Dropout& dropout = batch.dropout;
        kernels::KeepArgs args{};
        args.bits = dropout.bits;
        args.first = dropout.first + (n * batch.S1 + rows.begin) * dropout.pitch + columns.begin;
        args.pitch = dropout.pitch;
        args.seed = dropout.seed;
        args.block = dropout.block;
        args.threshold = dropout.threshold;
        args.rows = static_cast<std::int32_t>(rows.size());
        args.columns = static_cast<std::int32_t>(columns.size());
        args.words = buffers.keep;
        args.row_words = plan.row_words;
        kernels.keep_words(args);
        terms.keep = buffers.keep;
        terms.keep_factor = 1 / dropout.keep_prob;
    }
    return terms;
}

// The class of a tile by its bits.
TileClass class_of(const std::uint16_t* words, std::int64_t row_words, Range rows) {
    std::uint32_t any = 0;
    for (std::int64_t w = 0; w < rows.size() * row_words; ++w) any |= words[w];
    return any == 0 ? TileClass::empty : TileClass::partial;
}

}  // namespace

TileMask mask_tile(const Batch& batch, const Plan& plan, const kernels::ComputeKernels& kernels, std::int64_t n,
                   Range rows, Range columns, const TileMaskBuffers& buffers) {
    TileMask tile;
    tile.kind = classify(batch.band, rows, columns);
    if (tile.kind == TileClass::empty) return tile;
    std::array<std::uint8_t, most_rows> flags;
    const bool hides =
        batch.bias.present() && fill_bias(batch, kernels, n, rows, columns, buffers.bias, plan.tile_ld, flags.data());
    // The zero columns that pad a tile to whole granules are hidden by bits.
    const bool padded = columns.size() % granule != 0;
    const bool bits = tile.kind != TileClass::full || batch.mask.present || padded || hides;
    if (bits) {
        tile.kind = fill_tile(batch, n, rows, columns, buffers.words, plan.row_words);
        if (hides && tile.kind != TileClass::empty) {
            kernels.hide_infinite({buffers.bias, plan.tile_ld, static_cast<std::int32_t>(rows.size()),
                                   static_cast<std::int32_t>((columns.size() + granule - 1) / granule * granule),
                                   flags.data(), buffers.words, plan.row_words});
            tile.kind = class_of(buffers.words, plan.row_words, rows);
        }
        if (tile.kind == TileClass::empty) return tile;
    }
    tile.row_words = plan.row_words;
    tile.terms = make_terms(batch, plan, kernels, n, rows, columns, buffers);
    if (!bits || (tile.kind == TileClass::full && !padded)) return tile;
    tile.kind = TileClass::partial;
    tile.words = buffers.words;
    fill_spans(batch.band, plan, rows, columns, buffers);
    tile.column_span = buffers.column_span;
    tile.depth_rows = buffers.depth_rows;
    tile.depth_columns = buffers.depth_columns;
    return tile;
}

kernels::Element element_of(DType dtype) {
    switch (dtype) {
        case DType::f64: return kernels::Element::f64;
        case DType::bf16: return kernels::Element::bf16;
        case DType::f16: return kernels::Element::f16;
        case DType::f8e4m3: return kernels::Element::f8e4m3;
        case DType::f8e5m2: return kernels::Element::f8e5m2;
        default: return kernels::Element::f32;
    }
}

double row_scale(const Operand& operand, std::int64_t n, std::int64_t s) {
    const RowScale& scale = operand.scale;
    if (scale.data == nullptr) return 1;
    const std::int64_t element = n * scale.stride.n + s / rows_a_scale * scale.stride.s;
    return load_scalar(scale.data + element * size_of(DType::f32), DType::f32);
}

void load(const kernels::ComputeKernels& kernels, const Rows& rows, std::int64_t n, Range range, const Loaded& to) {
    std::array<float, most_rows> factors;
    kernels::LoadArgs args{};
    args.rows = static_cast<std::int32_t>(range.size());
    args.padded_rows = static_cast<std::int32_t>(to.padded_rows);
    args.factor = to.negate ? -1 : 1;
    args.ld = to.ld;
    args.nonfinite = to.nonfinite;
    const auto part = [&](const Operand& operand, std::int64_t columns, std::int64_t first) {
        args.src = address(operand, n, range.begin);
        args.element = element_of(operand.dtype);
        args.row_stride = operand.stride.s;
        args.column_stride = operand.stride.d;
        args.columns = static_cast<std::int32_t>(columns);
        args.row_factor = nullptr;
        if (operand.scale.data != nullptr) {
            for (std::int64_t r = 0; r < range.size(); ++r) {
                factors[static_cast<std::size_t>(r)] = static_cast<float>(row_scale(operand, n, range.begin + r));
            }
            args.row_factor = factors.data();
        }
        args.dst = to.dst + first * kernels.word_bytes / kernels.step;
        args.width = to.columns - first;
        args.merge = first > 0;
        kernels.load_rows(args);
    };
    part(rows.operand, rows.columns, 0);
    if (rows.rope_columns > 0) part(rows.rope, rows.rope_columns, rows.columns);
}

void pack(void (*kernel)(const kernels::PackArgs&), const KernelShape& shape, const std::byte* src, std::int64_t ld,
          std::int64_t rows, std::int64_t columns, const PanelForm& form, std::byte* dst) {
    kernels::PackArgs args{};
    args.src = src;
    args.ld = ld;
    args.src_bytes = shape.element_bytes();
    args.rows = static_cast<std::int32_t>(rows);
    args.columns = static_cast<std::int32_t>(columns);
    args.dst = dst;
    args.panel = form.panel_bytes;
    args.width = static_cast<std::int32_t>(form.width);
    kernel(args);
}

void store(const kernels::ComputeKernels& kernels, const ResultRows& rows, std::int64_t n, Range range, const void* acc,
           std::int64_t ld, const void* factor, bool divide) {
    kernels::StoreArgs args{};
    args.ld = ld;
    args.rows = static_cast<std::int32_t>(range.size());
    args.factor = factor;
    args.factor_step = divide ? 1 : 0;
    args.divide = divide;
    const auto part = [&](const Result& result, std::int64_t columns, std::int64_t first) {
        if (!result.wanted) return;
        args.src = static_cast<const std::byte*>(acc) + first * kernels.acc_bytes;
        args.columns = static_cast<std::int32_t>(columns);
        args.dst = address(result, n, range.begin);
        args.element = element_of(result.dtype);
        args.row_stride = result.stride.s;
        args.column_stride = result.stride.d;
        kernels.store_rows(args);
    };
    part(rows.result, rows.columns, 0);
    if (rows.rope_columns > 0) part(rows.rope, rows.rope_columns, rows.columns);
}

void zero_rows(const Result& result, std::int64_t n, Range rows, std::int64_t columns) {
    if (!result.wanted || columns == 0) return;
    const std::int64_t bytes = size_of(result.dtype);
    for (std::int64_t s = rows.begin; s < rows.end; ++s) {
        std::byte* row = address(result, n, s);
        if (result.stride.d == 1) {
            std::memset(row, 0, static_cast<std::size_t>(columns * bytes));
            continue;
        }
        for (std::int64_t c = 0; c < columns; ++c) {
            std::memset(row + c * result.stride.d * bytes, 0, static_cast<std::size_t>(bytes));
        }
    }
}

void zero_rows(const ResultRows& rows, std::int64_t n, Range range) {
    zero_rows(rows.result, n, range, rows.columns);
    if (rows.rope_columns > 0) zero_rows(rows.rope, n, range, rows.rope_columns);
}

bool any_flagged(const std::uint8_t* flags, std::int64_t rows) {
    return std::memchr(flags, 1, static_cast<std::size_t>(rows)) != nullptr;
}

bool zero_flagged(const std::uint8_t* flags, std::int64_t rows, std::int64_t columns, const PanelForm& form,
                  const KernelShape& shape, std::byte* panels) {
    if (!any_flagged(flags, rows)) return false;
    const std::int64_t element = shape.element_bytes();
    for (std::int64_t r = 0; r < rows; ++r) {
        if (flags[r] == 0) continue;
        for (std::int64_t c = 0; c < columns; ++c) {
            std::byte* word = panels + c / form.width * form.panel_bytes +
                              (r / shape.step * form.pitch + c % form.width) * shape.word_bytes;
            std::memset(word + r % shape.step * element, 0, static_cast<std::size_t>(element));
        }
    }
    return true;
}

}  // namespace fascore
