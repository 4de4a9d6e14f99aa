// SPDX-License-Identifier: Apache-2.0
//
// The part of info.h that needs the kernels: instruction sets and the core's peak.
#include <algorithm>
#include <array>
#include <chrono>

#include "fascore/info.h"
#include "kernels/select.h"

namespace fascore {

namespace {

// Median rate of short bursts. Not the best one: a run that is compared with it meets the same interruptions, and its
// own figure is a median too.
double burst_peak(double (*peak)(std::int64_t)) {
    using Clock = std::chrono::steady_clock;
    double operations = 0;
    const auto seconds = [&](std::int64_t rounds) {
        const auto start = Clock::now();
        operations = peak(rounds);
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    std::int64_t rounds = 1000;
    while (seconds(rounds) < 4e-3 && rounds < (std::int64_t{1} << 40)) rounds *= 2;
    std::array<double, 15> rates{};
    for (double& rate : rates) {
        const double took = seconds(rounds);
        rate = operations / took * 1e-9;
    }
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() / 2];
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
