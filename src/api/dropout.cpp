// SPDX-License-Identifier: Apache-2.0
//
// fascore/dropout.h implemented: element e is byte e mod 16 of block ⌈offset/16⌉ + ⌊e / 16⌋. A row starts inside a
// block when first_element is not a multiple of 16.
#include "fascore/dropout.h"

#include <array>
#include <cstddef>
#include <new>
#include <string>

#include "base/philox.h"

namespace fascore {

namespace {

Status refuse(const char* parameter, const std::string& given, const char* allowed) {
    return {StatusCode::invalid_argument, std::string(parameter) + ": " + given + ", " + allowed};
}

Status check(double keep_prob, std::int64_t first_element, const TensorView& keep) {
    // Written so that a NaN is refused.
    if (!(keep_prob > 0.0 && keep_prob <= 1.0)) {
        return refuse("keep_prob", "given " + std::to_string(keep_prob), "must be above 0 and at most 1");
    }
    if (first_element < 0) {
        return refuse("first_element", "given " + std::to_string(first_element), "must be 0 or more");
    }
    if (keep.rank != 2) return refuse("keep", "rank is " + std::to_string(keep.rank), "must be 2");
    if (keep.dtype != DType::u8 && keep.dtype != DType::boolean) {
        return refuse("keep", "dtype is " + std::string(name(keep.dtype)), "must be bool or u8");
    }
    if (keep.shape[0] < 0 || keep.shape[1] < 0) return refuse("keep", "an extent is negative", "must be 0 or more");
    if (keep.data == nullptr && keep.count() > 0) return refuse("keep", "data is null", "must be given");
    return {};
}

void write(std::uint64_t seed, std::uint64_t offset, double keep_prob, std::int64_t first_element,
           const TensorView& keep) {
    constexpr std::int64_t block_bytes = 16;
    const std::int64_t rows = keep.shape[0];
    const std::int64_t columns = keep.shape[1];
    const std::int64_t pitch = (columns + block_bytes - 1) / block_bytes * block_bytes;
    const std::uint32_t threshold = dropout_threshold(keep_prob);
    for (std::int64_t r = 0; r < rows; ++r) {
        auto* row = static_cast<std::uint8_t*>(keep.data) + r * keep.stride[0];
        std::array<std::uint32_t, 4> block{};
        for (std::int64_t c = 0; c < columns; ++c) {
            const std::int64_t e = first_element + r * pitch + c;
            const auto t = static_cast<int>(e % block_bytes);
            if (c == 0 || t == 0) {
                block = philox_block(seed, dropout_block(offset) + static_cast<std::uint64_t>(e / block_bytes));
            }
            row[c * keep.stride[1]] = philox_byte(block, t) <= threshold ? 1 : 0;
        }
    }
}

}  // namespace

Status dropout_keep(std::uint64_t seed, std::uint64_t offset, double keep_prob, std::int64_t first_element,
                    const TensorView& keep) noexcept {
    try {
        Status status = check(keep_prob, first_element, keep);
        if (status.ok()) write(seed, offset, keep_prob, first_element, keep);
        return status;
    } catch (const std::bad_alloc&) {
        return {StatusCode::out_of_memory, {}};
    } catch (...) {
        return {StatusCode::internal_error, {}};
    }
}

}  // namespace fascore
