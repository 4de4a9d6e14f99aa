// SPDX-License-Identifier: Apache-2.0
//
// What the tiles after this one will touch of the caller's memory, asked for while this one computes.
//
// The workspace stays in the cache by itself; the caller's tensors come from wherever they are, and their first touch
// would be waited for: a query block of 128 rows is 1,500 lines of query, dy and attention_out, a tile of a bias 1,000,
// each 8 of them on a page of their own. Asked for in one go they are waited for all the same, since a core has about
// a dozen misses under way and no more. So the products take them along, a few lines after each strip:
//
//   product   strip  fetch  strip  fetch  strip  fetch …        fetch: the next `quota` lines of the list
//
// Nothing depends on it: a line that was not foreseen, or was evicted again, is fetched when it is used.
#pragma once

#include "engine/tile.h"

namespace fascore {

class LookAhead {
  public:
    /// Rows of a tensor of head n. Columns further apart than one element are not foreseen.
    void read(const Operand& operand, std::int64_t n, Range rows, std::int64_t columns) {
        if (operand.stride.d != 1) return;
        add(address(operand, n, rows.begin), operand.stride.s * size_of(operand.dtype), rows,
            columns * size_of(operand.dtype), Use::read);
    }
    void read(const Rows& part, std::int64_t n, Range rows) {
        read(part.operand, n, rows, part.columns);
        if (part.rope_columns > 0) read(part.rope, n, rows, part.rope_columns);
    }
    void write(const Result& result, std::int64_t n, Range rows, std::int64_t columns) {
        if (!result.wanted || result.stride.d != 1) return;
        add(address(result, n, rows.begin), result.stride.s * size_of(result.dtype), rows,
            columns * size_of(result.dtype), Use::write);
    }
    void write(const ResultRows& part, std::int64_t n, Range rows) {
        write(part.result, n, rows, part.columns);
        if (part.rope_columns > 0) write(part.rope, n, rows, part.rope_columns);
    }
    /// Mask and bias of a tile. Rows that are all the same one are in the cache already.
    void read_pairs(const Batch& batch, std::int64_t n, Range rows, Range columns) {
        const MaskTensor& mask = batch.mask;
        if (mask.present && mask.stride_j == 1 && mask.stride_i != 0) {
            const std::uint8_t* first = address(mask, n, rows.begin, columns.begin);
            add(reinterpret_cast<const std::byte*>(first), mask.stride_i, rows, columns.size(), Use::read);
        }
        const Bias& bias = batch.bias;
        if (bias.kind == Bias::Kind::tensor && bias.stride.d == 1 && bias.stride.s != 0) {
            const std::int64_t element = size_of(bias.dtype);
            add(address(bias, n, rows.begin, columns.begin), bias.stride.s * element, rows, columns.size() * element,
                Use::read);
        }
    }

    /// The list for products of `strips` strips together; null when it is empty.
    [[nodiscard]] kernels::Ahead* over(std::int64_t strips) {
        if (list_.count == 0) return nullptr;
        list_.quota = static_cast<std::int32_t>((lines_ + strips - 1) / strips);
        return &list_;
    }

  private:
    enum class Use : std::uint8_t { read, write };
    static constexpr std::int64_t line_bytes = 64;

    void add(const std::byte* first, std::int64_t pitch, Range rows, std::int64_t row_bytes, Use use) {
        if (rows.empty() || row_bytes == 0 || list_.count == kernels::Ahead::most) return;
        const std::int64_t lines = (row_bytes + line_bytes - 1) / line_bytes;
        list_.list[list_.count++] = {reinterpret_cast<const char*>(first), pitch, static_cast<std::int32_t>(lines),
                                     static_cast<std::int32_t>(rows.size()), use == Use::write};
        lines_ += lines * rows.size();
    }

    kernels::Ahead list_{};
    std::int64_t lines_ = 0;
};

}  // namespace fascore
