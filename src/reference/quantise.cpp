// SPDX-License-Identifier: Apache-2.0
//
// Rounding to an 8-bit float in double arithmetic, where dividing by a power of two is exact: the neighbours of a value
// with exponent e are multiples of 2^(max(e, smallest) − fraction).
#include "reference/quantise.h"

#include <algorithm>

namespace fascore::reference {

namespace {

struct Format {
    int fraction;           // bits
    int smallest_exponent;  // of normal numbers
    double largest;
};

Format format_of(DType dtype) { return dtype == DType::f8e4m3 ? Format{3, -6, 448.0} : Format{2, -14, 57344.0}; }

}  // namespace

double largest_fp8(DType dtype) { return format_of(dtype).largest; }

double to_fp8(double value, DType dtype) {
    const Format format = format_of(dtype);
    if (std::isnan(value)) return value;
    if (std::isinf(value)) return std::copysign(format.largest, value);
    int exponent = 0;
    const double size = std::fabs(value);
    std::frexp(size, &exponent);  // size = m · 2^exponent, ½ ≤ m < 1
    const double unit = std::ldexp(1.0, std::max(exponent - 1, format.smallest_exponent) - format.fraction);
    return std::copysign(std::min(std::nearbyint(size / unit) * unit, format.largest), value);
}

}  // namespace fascore::reference
