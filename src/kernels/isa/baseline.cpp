// SPDX-License-Identifier: Apache-2.0
//
// No flags at all: what every CPU of the architecture runs. Complete, so a missing fast kernel is slow, never absent.
//
//   registers   panel        register tile   chains
//   16          2 vectors    6 × 8 f32       12; without FMA a product needs one register more, and 13 + 2 fit
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"

namespace fascore::kernels {
namespace {
#include "kernels/simd/portable.h"
using F32 = PortableF32<TwoRoundings>;
using F64 = PortableF64<TwoRoundings>;
#include "kernels/body/all.h"
}  // namespace

extern const KernelTable kernels_baseline;
constinit const KernelTable kernels_baseline{
    "baseline",
    plain_kernels<F32, 16, 2, 12>("f32"),
    plain_kernels<F64, 16, 2, 12>("f64"),
    nullptr,
};
}  // namespace fascore::kernels
