// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 with the bf16 dot product: as avx512.cpp, and bf16 problems stay bf16.
//
//   registers   panel        register tile   a step
//   32          4 vectors    6 × 64          24 dots of pairs into f32: 24 independent chains
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"

namespace fascore::kernels {
namespace {
#include "kernels/simd/avx512.h"
#include "kernels/simd/avx512_bf16.h"
#include "kernels/body/all.h"
#include "kernels/body/softmax_bf16.h"

constexpr ComputeKernels bf16_kernels{
    "bf16",
    tile_rows(32, 4),
    4 * F32::lanes,
    F32::lanes,
    2,
    sizeof(std::uint32_t),
    sizeof(float),
    product<Bf16, 32, 4>,
    load_rows_bf16,
    pack_by_columns<std::uint32_t>,
    pack_by_row_pairs,
    softmax_forward<F32, ToBf16<Bf16>>,
    softmax_backward_bf16<Bf16>,
    row_dot<F32>,
    store_rows<F32>,
    rescale_rows<F32>,
    load_rows<F32>,
    hide_infinite<F32>,
    slope_bias<F32>,
    slope_sum<F32>,
    add_tile<F32>,
    keep_words,
    quantise,
    peak<Bf16, 24, 4>,
    exp_array<F32>,
};
}  // namespace

extern const KernelTable kernels_avx512_bf16;
constinit const KernelTable kernels_avx512_bf16{
    "avx512_bf16",
    plain_kernels<F32, 32, 4, 24>("f32"),
    plain_kernels<F64, 32, 4, 24>("f64"),
    &bf16_kernels,
};
}  // namespace fascore::kernels
