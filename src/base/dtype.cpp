// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace fascore {

namespace {

// Round to odd: truncate to f32 and set the last bit when anything was cut off. A second rounding to a narrower
// format is then the same as rounding once from the double (f32 keeps 13 bits or more beyond either target).
float f32_round_to_odd(double value) noexcept {
    const auto nearest = static_cast<float>(value);
    if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
    float truncated = nearest;
    if (std::isinf(nearest)) {
        truncated = std::copysign(std::numeric_limits<float>::max(), nearest);
    } else if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) {
        truncated = std::nextafter(nearest, 0.0F);
    }
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(truncated) | 1U);
}

template <class T>
T read(const void* element) noexcept {
    T value;
    std::memcpy(&value, element, sizeof value);
    return value;
}

template <class T>
void write(void* element, T value) noexcept {
    std::memcpy(element, &value, sizeof value);
}

}  // namespace

std::uint16_t f64_to_bf16(double value) noexcept { return f32_to_bf16(f32_round_to_odd(value)); }
std::uint16_t f64_to_f16(double value) noexcept { return f32_to_f16(f32_round_to_odd(value)); }
std::uint8_t f64_to_f8e4m3(double value) noexcept { return f32_to_f8e4m3(f32_round_to_odd(value)); }
std::uint8_t f64_to_f8e5m2(double value) noexcept { return f32_to_f8e5m2(f32_round_to_odd(value)); }

[[gnu::noinline]] double narrowed_to_f32(double value) noexcept {
    return static_cast<double>(static_cast<float>(value));
}

double load_scalar(const void* element, DType dtype) noexcept {
    switch (dtype) {
        case DType::f64: return read<double>(element);
        case DType::f32: return static_cast<double>(read<float>(element));
        case DType::bf16: return static_cast<double>(bf16_to_f32(read<std::uint16_t>(element)));
        case DType::f16: return static_cast<double>(f16_to_f32(read<std::uint16_t>(element)));
        case DType::boolean: return read<std::uint8_t>(element) != 0 ? 1.0 : 0.0;
        case DType::u8: return static_cast<double>(read<std::uint8_t>(element));
        case DType::f8e4m3: return static_cast<double>(f8e4m3_to_f32(read<std::uint8_t>(element)));
        case DType::f8e5m2: return static_cast<double>(f8e5m2_to_f32(read<std::uint8_t>(element)));
    }
    return 0.0;
}

void store_scalar(void* element, DType dtype, double value) noexcept {
    switch (dtype) {
        case DType::f64: write(element, value); break;
        case DType::f32: write(element, static_cast<float>(value)); break;
        case DType::bf16: write(element, f64_to_bf16(value)); break;
        case DType::f16: write(element, f64_to_f16(value)); break;
        case DType::boolean: write(element, static_cast<std::uint8_t>(value != 0.0)); break;
        case DType::u8: write(element, static_cast<std::uint8_t>(value)); break;
        case DType::f8e4m3: write(element, f64_to_f8e4m3(value)); break;
        case DType::f8e5m2: write(element, f64_to_f8e5m2(value)); break;
    }
}

}  // namespace fascore
