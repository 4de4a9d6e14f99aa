// SPDX-License-Identifier: Apache-2.0
//
// What a call would do, without doing it: block sizes, which tiles the rule hides, bytes of workspace by name, the
// operation count that every published figure is divided by, and the kernels chosen. Data pointers are not looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fascore/attention.h"
#include "fascore/export.h"
#include "fascore/status.h"

namespace fascore {

/// One line of the workspace ledger: `copies` buffers of `bytes_each`.
struct WorkspaceLine {
    std::string name;
    std::int64_t bytes_each = 0;
    std::int64_t copies = 0;
};

struct PlanInfo {
    std::int64_t B = 0, N1 = 0, N2 = 0, S1 = 0, S2 = 0, D = 0, Dv = 0;
    DType dtype = DType::f32;
    std::string isa;                 ///< "avx512_bf16", ...
    std::string compute;             ///< dtype the products take: "bf16", "f32" or "f64"
    std::string kernel;              ///< micro-kernel in words, "6x64 bf16 dot"
    int threads = 0;                 ///< that can find work
    std::int64_t Br = 0;             ///< query rows of a tile
    std::int64_t Bc = 0;             ///< key rows of a tile
    std::int64_t tiles_full = 0;     ///< visible throughout, by the rule (a mask tensor is looked at when it runs)
    std::int64_t tiles_partial = 0;  ///< some pairs visible
    std::int64_t tiles_skipped = 0;  ///< never computed
    /// Pairs (b, n, i, j) the rule lets through; a mask tensor is not looked at.
    double visible_pairs = 0;
    /// Operations by the published count: forward (2·D + 2·Dv) a visible pair, backward (6·D + 4·Dv).
    double operations = 0;
    std::vector<WorkspaceLine> workspace;
    std::size_t workspace_bytes = 0;
};

[[nodiscard]] FASCORE_EXPORT Status plan_forward(const AttentionParams& params, const ForwardInputs& in,
                                                 const ForwardOutputs& out, const Execution& execution,
                                                 PlanInfo& plan) noexcept;
[[nodiscard]] FASCORE_EXPORT Status plan_backward(const AttentionParams& params, const BackwardInputs& in,
                                                  const BackwardOutputs& out, const Execution& execution,
                                                  PlanInfo& plan) noexcept;

}  // namespace fascore
