// SPDX-License-Identifier: Apache-2.0
//
// Tensor views: a pointer, a dtype, a shape and strides. Views own nothing; whoever made the memory keeps it alive
// until the call returns.
//
//   element (i0, i1, ...) lies at  data + size_of(dtype) · Σ_a i_a · stride[a]
//
// Strides count elements, not bytes. Any stride is allowed on an input: 0 broadcasts one element along an axis, a
// negative one walks backwards. On an output two elements must not share an address (no 0 stride on an axis longer
// than 1). A default-constructed view (rank 0) means "absent"; so does one whose shape has elements but whose data is
// null, except where a parameter is required: there it is refused by name.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "fascore/export.h"

namespace fascore {

/// Element types. boolean and u8 are for masks: one byte an element, non-zero = true. The 8-bit floats are inputs only:
///   f8e4m3   1 sign, 4 exponent, 3 fraction, largest 448, NaN but no Inf (FLOAT8_E4M3FN)
///   f8e5m2   1 sign, 5 exponent, 2 fraction, largest 57344, Inf and NaN   (FLOAT8_E5M2)
enum class DType : std::uint8_t { f64, f32, bf16, f16, boolean, u8, f8e4m3, f8e5m2 };

/// Bytes of one element.
FASCORE_EXPORT std::int64_t size_of(DType dtype) noexcept;

/// The name used in messages, on the command line and in files: "f64", "f32", "bf16", "f16", "bool", "u8",
/// "f8e4m3", "f8e5m2".
FASCORE_EXPORT std::string_view name(DType dtype) noexcept;

inline constexpr int max_rank = 8;

/// Shape and strides shared by both kinds of view.
struct TensorDims {
    DType dtype = DType::f32;
    int rank = 0;
    std::array<std::int64_t, max_rank> shape{};
    std::array<std::int64_t, max_rank> stride{};

    /// Number of elements: the product of the extents, 1 for rank 0.
    [[nodiscard]] constexpr std::int64_t count() const noexcept {
        std::int64_t elements = 1;
        for (int axis = 0; axis < rank; ++axis) elements *= shape[static_cast<std::size_t>(axis)];
        return elements;
    }
};

/// A tensor that is only read.
struct ConstTensorView : TensorDims {
    const void* data = nullptr;

    ConstTensorView() = default;

    /// Row-major contiguous (last axis fastest).
    ConstTensorView(const void* where, DType type, std::initializer_list<std::int64_t> extents) noexcept : data(where) {
        dtype = type;
        for (std::int64_t extent : extents) {
            if (rank < max_rank) shape[static_cast<std::size_t>(rank++)] = extent;
        }
        std::int64_t step = 1;
        for (auto axis = static_cast<std::size_t>(rank); axis-- > 0;) {
            stride[axis] = step;
            step *= shape[axis];
        }
    }

    /// True when the caller passed a tensor at all.
    [[nodiscard]] bool present() const noexcept { return rank > 0; }
};

/// A tensor that is written.
struct TensorView : TensorDims {
    void* data = nullptr;

    TensorView() = default;
    TensorView(void* where, DType type, std::initializer_list<std::int64_t> extents) noexcept : data(where) {
        static_cast<TensorDims&>(*this) = ConstTensorView(where, type, extents);
    }

    [[nodiscard]] bool present() const noexcept { return rank > 0; }

    // NOLINTNEXTLINE(google-explicit-constructor): a written tensor may be read wherever one is expected.
    operator ConstTensorView() const noexcept {
        ConstTensorView view;
        static_cast<TensorDims&>(view) = *this;
        view.data = data;
        return view;
    }
};

}  // namespace fascore
