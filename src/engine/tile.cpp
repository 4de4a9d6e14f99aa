// SPDX-License-Identifier: Apache-2.0
#include "engine/tile.h"

namespace fascore {

namespace {

using kernels::Span;

void fill_spans(const Plan& plan, Range rows, const TileMaskBuffers& buffers) {
    const std::int64_t row_words = plan.row_words;
    const auto step = static_cast<std::int32_t>(plan.shape.step);
    const std::int64_t height = rows.size();
    for (std::int64_t r = 0; r < height; ++r) {
        const std::uint16_t* words = buffers.words + r * row_words;
        std::int64_t first = 0;
        std::int64_t last = row_words;
        while (first < row_words && words[first] == 0) ++first;
        while (last > first && words[last - 1] == 0) --last;
        const Span columns{static_cast<std::int32_t>(first * granule), static_cast<std::int32_t>(last * granule)};
        buffers.column_span[r] = columns;
        buffers.depth_rows[r] = Span{columns.begin / step, columns.end / step};
    }
    if (buffers.depth_columns == nullptr) return;
    for (std::int64_t g = 0; g < row_words; ++g) {
        std::int64_t first = 0;
        std::int64_t last = height;
        while (first < height && buffers.words[first * row_words + g] == 0) ++first;
        while (last > first && buffers.words[(last - 1) * row_words + g] == 0) --last;
        const Span depth{static_cast<std::int32_t>(first) / step, (static_cast<std::int32_t>(last) + step - 1) / step};
        for (std::int64_t c = 0; c < granule; ++c) {
            buffers.depth_columns[g * granule + c] = first == last ? Span{0, 0} : depth;
        }
    }
}

}  // namespace

TileMask mask_tile(const Problem& problem, const Plan& plan, std::int64_t b, std::int64_t n, Range rows, Range columns,
                   const TileMaskBuffers& buffers) {
    TileMask tile;
    tile.kind = classify(problem.band, rows, columns);
    if (tile.kind == TileClass::empty) return tile;
    // The zero columns that pad a tile to whole granules are hidden by bits.
    const bool padded = columns.size() % granule != 0;
    if (tile.kind == TileClass::full && !problem.mask.present && !padded) return tile;
    tile.kind = fill_tile(problem, b, n, rows, columns, buffers.words, plan.row_words);
    if (tile.kind == TileClass::empty || (tile.kind == TileClass::full && !padded)) return tile;
    tile.kind = TileClass::partial;
    tile.words = buffers.words;
    tile.row_words = plan.row_words;
    fill_spans(plan, rows, buffers);
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
        default: return kernels::Element::f32;
    }
}

void zero_rows(const Result& result, std::int64_t b, std::int64_t n, Range rows, std::int64_t columns) {
    const std::int64_t bytes = size_of(result.dtype);
    for (std::int64_t s = rows.begin; s < rows.end; ++s) {
        std::byte* row = address(result, b, n, s);
        if (result.stride.d == 1) {
            std::memset(row, 0, static_cast<std::size_t>(columns * bytes));
            continue;
        }
        for (std::int64_t c = 0; c < columns; ++c) {
            std::memset(row + c * result.stride.d * bytes, 0, static_cast<std::size_t>(bytes));
        }
    }
}

kernels::LoadArgs load_args(const Operand& operand, std::int64_t b, std::int64_t n, Range rows, std::int64_t columns,
                            std::int64_t padded_rows) {
    kernels::LoadArgs args{};
    args.src = address(operand, b, n, rows.begin);
    args.element = element_of(operand.dtype);
    args.row_stride = operand.stride.s;
    args.column_stride = operand.stride.d;
    args.rows = static_cast<std::int32_t>(rows.size());
    args.columns = static_cast<std::int32_t>(columns);
    args.padded_rows = static_cast<std::int32_t>(padded_rows);
    return args;
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
                              (r / shape.step * form.width + c % form.width) * shape.word_bytes;
            std::memset(word + r % shape.step * element, 0, static_cast<std::size_t>(element));
        }
    }
    return true;
}

}  // namespace fascore
