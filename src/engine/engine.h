// SPDX-License-Identifier: Apache-2.0
//
// The engine's two entries. Problem and plan are valid, the workspace has plan.workspace.total_bytes() bytes.
#pragma once

#include <cstddef>

#include "fascore/attention.h"
#include "kernels/kernel_table.h"
#include "plan/plan.h"
#include "problem/problem.h"

namespace fascore {

/// What the products of a problem of this dtype run in.
const kernels::ComputeKernels& compute_for(const kernels::KernelTable& table, DType dtype);

/// The plan's copy of the kernels' numbers.
KernelShape shape_of(const kernels::ComputeKernels& kernels);

[[nodiscard]] Status run_forward(const Problem& problem, const Plan& plan, const kernels::ComputeKernels& kernels,
                                 const Execution& execution, std::byte* workspace);
[[nodiscard]] Status run_backward(const Problem& problem, const Plan& plan, const kernels::ComputeKernels& kernels,
                                  const Execution& execution, std::byte* workspace);

}  // namespace fascore
