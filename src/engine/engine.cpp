// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

namespace fascore {

const kernels::ComputeKernels& compute_for(const kernels::KernelTable& table, DType dtype) {
    if (dtype == DType::f64) return table.f64;
    if (dtype == DType::bf16 && table.bf16 != nullptr) return *table.bf16;
    return table.f32;
}

KernelShape shape_of(const kernels::ComputeKernels& kernels) {
    KernelShape shape;
    shape.nr = kernels.nr;
    shape.lanes = kernels.lanes;
    shape.step = kernels.step;
    shape.word_bytes = kernels.word_bytes;
    shape.acc_bytes = kernels.acc_bytes;
    return shape;
}

}  // namespace fascore
