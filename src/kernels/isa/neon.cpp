// SPDX-License-Identifier: Apache-2.0
//
// NEON (AArch64): bf16 and f16 widen to f32 in packing.
//
//   registers   panel        register tile   chains
//   32          4 vectors    6 × 16 f32      24 ≥ latency 4 × 4 pipes; 24 + 4 B + 1 broadcast = 29 registers
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"

namespace fascore::kernels {
namespace {
#include "kernels/simd/portable.h"
#include "kernels/simd/neon.h"
#include "kernels/body/all.h"
}  // namespace

extern const KernelTable kernels_neon;
constinit const KernelTable kernels_neon{
    "neon",
    plain_kernels<F32, 32, 4, 24>("f32"),
    plain_kernels<F64, 32, 4, 24>("f64"),
    nullptr,
};
}  // namespace fascore::kernels
