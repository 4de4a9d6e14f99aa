// SPDX-License-Identifier: Apache-2.0
//
// A plan for a person: the numbers of PlanInfo, one idea a line.
#include "plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fascore::cli {

std::string bytes_text(double bytes) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024.0 && unit < 4) {
        bytes /= 1024.0;
        ++unit;
    }
    return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string plan_text(const std::string& title, const PlanInfo& plan) {
    const auto tiles = static_cast<double>(plan.tiles_full + plan.tiles_partial + plan.tiles_skipped);
    // Cut, not rounded, to a tenth: "100.0 %" must not be said while a tile is left.
    const double skipped =
        tiles > 0 ? std::floor(1000.0 * static_cast<double>(plan.tiles_skipped) / tiles) / 10.0 : 0.0;
    std::string text = title + "\n";
    const auto line = [&](const char* key, const std::string& value) {
        text += fmt::format("  {:<14} {}\n", key, value);
    };
    line("problem", fmt::format("B={} N1={} N2={} S1={} S2={} D={} Dv={} {}", plan.B, plan.N1, plan.N2, plan.S1,
                                plan.S2, plan.D, plan.Dv, name(plan.dtype)));
    line("isa", plan.isa);
    line("kernel", fmt::format("{}, products in {}", plan.kernel, plan.compute));
    line("threads", fmt::format("{} can find work", plan.threads));
    line("tile", fmt::format("{} query rows x {} key rows", plan.Br, plan.Bc));
    line("tiles", fmt::format("{} full, {} partial, {} skipped ({:.1f} % never computed)", plan.tiles_full,
                              plan.tiles_partial, plan.tiles_skipped, skipped));
    line("visible pairs", fmt::format("{:.6g}", plan.visible_pairs));
    line("operations", fmt::format("{:.6g}", plan.operations));
    line("workspace",
         fmt::format("{} ({} bytes)", bytes_text(static_cast<double>(plan.workspace_bytes)), plan.workspace_bytes));
    std::size_t width = 0;
    for (const WorkspaceLine& entry : plan.workspace) width = std::max(width, entry.name.size());
    for (const WorkspaceLine& entry : plan.workspace) {
        text += fmt::format("    {:<{}}  {:>14} bytes x {}\n", entry.name, width, entry.bytes_each, entry.copies);
    }
    return text;
}

}  // namespace fascore::cli
