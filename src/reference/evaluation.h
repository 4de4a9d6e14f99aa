// SPDX-License-Identifier: Apache-2.0
//
// One source serves both evaluations; they differ in the type of the sums and in what happens to each finished step:
//
//              sums       each of raw, scaled, capped, bias, x, P, R, out, dR, dP, dx, dz and the gradients
//   exact      f64        kept
//   plain      f32        rounded to the dtype of the inputs (what a tensor of a framework holds); bias to that of pse
//   plain f64  f64        kept
//
// 8-bit inputs keep their steps in the type of the sums: what is rounded there is quantise.h's.
#pragma once

#include "base/dtype.h"

namespace fascore::reference {

struct Exact {
    using Real = double;
    explicit Exact(DType /*inputs*/) {}
    static double step(double value) { return value; }
    static double as(DType /*dtype*/, double value) { return value; }
};

struct Plain {
    using Real = float;
    explicit Plain(DType inputs) : dtype(inputs) {}
    [[nodiscard]] float step(float value) const { return as(dtype, value); }
    [[nodiscard]] static float as(DType dtype, float value) {
        switch (dtype) {
            case DType::bf16: return bf16_to_f32(f32_to_bf16(value));
            case DType::f16: return f16_to_f32(f32_to_f16(value));
            default: return value;
        }
    }
    DType dtype;
};

}  // namespace fascore::reference
