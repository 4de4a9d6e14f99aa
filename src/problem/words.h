// SPDX-License-Identifier: Apache-2.0
//
// The words of a refusal: "<parameter>: <what was given>, <what is allowed>". Built only once a rule is broken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fascore/attention.h"

namespace fascore {

[[nodiscard]] std::string text(std::int64_t value);
[[nodiscard]] std::string text(double value);
[[nodiscard]] std::string text(Layout layout);
[[nodiscard]] std::string text(DType dtype);

/// "[2, 4, 5, 8]"; a rank that is not one shows what there is.
template <class Extents>
std::string shape_text(const Extents& extents, int rank) {
    std::string words = "[";
    for (int axis = 0; axis < std::min(rank, static_cast<int>(extents.size())); ++axis) {
        if (axis > 0) words += ", ";
        words += text(std::int64_t{extents[static_cast<std::size_t>(axis)]});
    }
    return words + "]";
}

/// "shape is [2, 4, 5, 8]", "strides are [160, 40, 8, 1]", "dtype is bf16"
[[nodiscard]] std::string shape_is(const TensorDims& dims);
[[nodiscard]] std::string strides_are(const TensorDims& dims);
[[nodiscard]] std::string dtype_is(DType dtype);

/// "a", "a or b", "a, b or c"
[[nodiscard]] std::string either(const std::vector<std::string>& words);

[[nodiscard]] Status refuse(std::string_view parameter, const std::string& given, const std::string& allowed);

/// Runs rules (callables that return a Status) until one refuses.
template <class... Rules>
Status in_order(const Rules&... rules) {
    Status status;
    static_cast<void>((... && (status = rules()).ok()));
    return status;
}

}  // namespace fascore
