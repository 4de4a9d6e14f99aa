// SPDX-License-Identifier: Apache-2.0
//
// Environment variables: read here, once, at first use; nobody else calls getenv. A value that is not understood is an
// error that lists what is, never a silent default.
//
//   FASCORE_ISA          kernel table to use, one of built_isas()        default: the best this CPU can run
//   FASCORE_NUM_THREADS  threads of a call that does not say, 1..1024    default: the machine's
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fascore/status.h"

namespace fascore {

struct ConfigVariable {
    std::string_view name;
    std::string_view help;
    std::string value;
    bool set = false;
};

/// Every variable, in the order of the table above.
const std::vector<ConfigVariable>& config_variables();

/// FASCORE_ISA as given; empty when not set.
std::string_view config_isa();

/// FASCORE_NUM_THREADS checked; 0 when not set.
[[nodiscard]] Status config_threads(int& threads);

/// The rule behind it: a whole number from 1 to 1024 and nothing else. `threads` is left alone when refused.
[[nodiscard]] Status parse_threads(std::string_view text, int& threads);

}  // namespace fascore
