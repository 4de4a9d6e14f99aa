// SPDX-License-Identifier: Apache-2.0
#include "problem/words.h"

#include <array>
#include <charconv>

namespace fascore {

namespace {

// The name of an enum value, or the number that was cast to it.
template <class Enum>
std::string named(Enum value) {
    const std::string_view known = name(value);
    return known == "unknown" ? "value " + text(static_cast<std::int64_t>(value)) : std::string(known);
}

}  // namespace

std::string text(std::int64_t value) { return std::to_string(value); }

std::string text(double value) {
    std::array<char, 32> digits{};
    const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    return {digits.data(), result.ptr};
}

std::string text(Layout layout) { return named(layout); }
std::string text(DType dtype) { return named(dtype); }

std::string shape_is(const TensorDims& dims) { return "shape is " + shape_text(dims.shape, dims.rank); }
std::string strides_are(const TensorDims& dims) { return "strides are " + shape_text(dims.stride, dims.rank); }
std::string dtype_is(DType dtype) { return "dtype is " + text(dtype); }

std::string either(const std::vector<std::string>& words) {
    std::string sentence;
    for (std::size_t k = 0; k < words.size(); ++k) {
        if (k > 0) sentence += k + 1 == words.size() ? " or " : ", ";
        sentence += words[k];
    }
    return sentence;
}

Status refuse(std::string_view parameter, const std::string& given, const std::string& allowed) {
    return {StatusCode::invalid_argument, std::string(parameter) + ": " + given + ", " + allowed};
}

}  // namespace fascore
