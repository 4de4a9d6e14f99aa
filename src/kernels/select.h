// SPDX-License-Identifier: Apache-2.0
//
// Which kernel table runs: the first of the ordered list (targets.cmake) whose needs this CPU meets and which is not
// known to be slow on it; FASCORE_ISA or a caller's request overrides, or fails with the list.
//
// "Slow": an instruction set can be there and not pay. The bf16 dot product is one instruction a cycle and port on AMD
// (Zen 4 on) and Intel's Cooper Lake, but about one every two cycles on Intel's Sapphire Rapids and Emerald Rapids
// (measured 0.46 a cycle beside 2 FMA: 75 against 165 GFLOP/s), whose matrix unit took its place. There bf16 problems
// run faster widened to f32, so avx512_bf16 is built, runnable and tested on such a machine, but must be asked for.
// The rule goes by the CPU's name, never by a timing: a timing could choose differently in two runs, and so would the
// bits.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fascore/status.h"
#include "kernels/kernel_table.h"

namespace fascore::kernels {

struct IsaEntry {
    const KernelTable* table;
    const char* needs;    ///< CPU features in words
    bool runnable;        ///< this CPU has them and the system saves the registers
    const char* demoted;  ///< why it is not chosen by default although runnable; null otherwise
};

/// Every table of this build, best first.
[[nodiscard]] std::span<const IsaEntry> isa_entries();

/// The table `request` names; empty: FASCORE_ISA, else the best. `why` says it in words.
[[nodiscard]] Status select_table(std::string_view request, const KernelTable*& table, std::string& why);

}  // namespace fascore::kernels
