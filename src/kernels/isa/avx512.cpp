// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 without the bf16 dot: bf16 and f16 widen to f32 in packing.
//
//   registers   panel        register tile   chains
//   32          4 vectors    6 × 64 f32      24 ≥ latency 4 × 2 ports; 24 + 4 B + 1 broadcast = 29 registers
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"

namespace fascore::kernels {
namespace {
#include "kernels/simd/avx512.h"
#include "kernels/body/all.h"
}  // namespace

extern const KernelTable kernels_avx512;
constinit const KernelTable kernels_avx512{
    "avx512",
    plain_kernels<F32, 32, 4, 24>("f32"),
    plain_kernels<F64, 32, 4, 24>("f64"),
    nullptr,
};
}  // namespace fascore::kernels
