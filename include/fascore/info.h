// SPDX-License-Identifier: Apache-2.0
//
// What this build and this machine have: instruction sets, the one that is chosen and why, environment variables,
// scalar dtype conversion, and the core's arithmetic peak.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fascore/export.h"
#include "fascore/status.h"
#include "fascore/tensor.h"

namespace fascore {

/// One kernel table of this build, best first.
struct IsaInfo {
    std::string name;       ///< "avx512_bf16", "avx512", "avx2", "neon", "baseline"
    std::string needs;      ///< CPU features it needs, in words
    bool runnable = false;  ///< this machine has them
};

[[nodiscard]] FASCORE_EXPORT std::vector<IsaInfo> built_isas();

/// The table that `request` (empty: FASCORE_ISA, else the best) selects, and the reason in words.
/// fails  invalid_argument for an unknown name (lists the known ones), unavailable for one this CPU cannot run
[[nodiscard]] FASCORE_EXPORT Status select_isa(std::string_view request, std::string& isa, std::string& why);

/// Threads a call with Execution::threads = 0 uses.
[[nodiscard]] FASCORE_EXPORT Status default_threads(int& threads);

/// An environment variable fascore reads (once, at first use).
struct EnvironmentVariable {
    std::string name;
    std::string value;  ///< empty when not set
    bool set = false;
    std::string help;
};

[[nodiscard]] FASCORE_EXPORT std::vector<EnvironmentVariable> environment_variables();

/// Peak of one core of this machine right now, GFLOP/s, measured with the ISA's own instructions and at least 16
/// independent accumulators (about 0.1 s each). 0 where the ISA has no such instruction.
struct Peak {
    double f32 = 0;       ///< multiply-add, f32
    double f64 = 0;       ///< multiply-add, f64
    double bf16_dot = 0;  ///< two-term bf16 dot product into f32
};

[[nodiscard]] FASCORE_EXPORT Status measure_peak(std::string_view isa, Peak& peak);

/// One element as a double, and a double rounded to nearest even into an element (overflow to Inf, NaN stays NaN).
/// Any dtype; the 8-bit floats are stored saturating.
[[nodiscard]] FASCORE_EXPORT double load_element(const void* element, DType dtype) noexcept;
FASCORE_EXPORT void store_element(void* element, DType dtype, double value) noexcept;

}  // namespace fascore
