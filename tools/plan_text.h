// SPDX-License-Identifier: Apache-2.0
//
// A plan for a person: what --plan prints.
#pragma once

#include <string>

#include "fascore/plan.h"

namespace fascore::cli {

/// Several lines, the first is `title`; ends with a newline.
[[nodiscard]] std::string plan_text(const std::string& title, const PlanInfo& plan);

/// "12.3 MiB", exact below 1 KiB.
[[nodiscard]] std::string bytes_text(double bytes);

}  // namespace fascore::cli
