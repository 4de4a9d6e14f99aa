// SPDX-License-Identifier: Apache-2.0
//
// The part of info.h that needs the kernels: instruction sets and the core's peak.
#include <algorithm>
#include <chrono>

#include "fascore/info.h"
#include "kernels/select.h"

namespace fascore {

namespace {

// Best rate of several short bursts: the peak is what the core can do, and anything else that ran meanwhile only
// lowers a burst.
double burst_peak(double (*peak)(std::int64_t)) {
    using Clock = std::chrono::steady_clock;
    const auto rate = [&](std::int64_t rounds) {
        const auto start = Clock::now();
        const double operations = peak(rounds);
        return operations / std::chrono::duration<double>(Clock::now() - start).count() * 1e-9;
    };
    std::int64_t rounds = 1000;
    for (auto took = 0.0; took < 4e-3 && rounds < (std::int64_t{1} << 40); rounds *= 2) {
        const auto start = Clock::now();
        peak(rounds);
        took = std::chrono::duration<double>(Clock::now() - start).count();
    }
    double best = 0;
    for (int burst = 0; burst < 10; ++burst) best = std::max(best, rate(rounds));
    return best;
}

}  // namespace

std::vector<IsaInfo> built_isas() {
    std::vector<IsaInfo> isas;
    for (const kernels::IsaEntry& entry : kernels::isa_entries()) {
        isas.push_back({entry.table->name, entry.needs, entry.runnable});
    }
    return isas;
}

Status select_isa(std::string_view request, std::string& isa, std::string& why) {
    const kernels::KernelTable* table = nullptr;
    if (Status s = kernels::select_table(request, table, why); !s.ok()) return s;
    isa = table->name;
    return {};
}

Status measure_peak(std::string_view isa, Peak& peak) {
    const kernels::KernelTable* table = nullptr;
    std::string why;
    if (Status s = kernels::select_table(isa, table, why); !s.ok()) return s;
    peak.f32 = burst_peak(table->f32.peak);
    peak.f64 = burst_peak(table->f64.peak);
    peak.bf16_dot = table->bf16 == nullptr ? 0 : burst_peak(table->bf16->peak);
    return {};
}

}  // namespace fascore
