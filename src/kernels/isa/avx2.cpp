// SPDX-License-Identifier: Apache-2.0
//
// AVX2 with FMA and F16C: bf16 and f16 widen to f32 in packing.
//
//   registers   panel        register tile   chains
//   16          2 vectors    6 × 16 f32      12 ≥ latency 4 × 2 ports; 12 + 2 B + 1 broadcast = 15 registers
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"

namespace fascore::kernels {
namespace {
#include "kernels/simd/avx2.h"
#include "kernels/body/all.h"
}  // namespace

extern const KernelTable kernels_avx2;
constinit const KernelTable kernels_avx2{
    "avx2",
    plain_kernels<F32, 16, 2, 12>("f32"),
    plain_kernels<F64, 16, 2, 12>("f64"),
    nullptr,
};
}  // namespace fascore::kernels
