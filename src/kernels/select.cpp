// SPDX-License-Identifier: Apache-2.0
//
// Compiled with no ISA flag. Names every table of the build, so that a static library keeps them (no registering
// constructors).
#include "kernels/select.h"

#include <array>
#include <vector>

#include "base/config.h"
#include "kernels/isa_list.h"

namespace fascore::kernels {

#define FASCORE_DECLARE(isa) extern const KernelTable kernels_##isa;
FASCORE_ISA_LIST(FASCORE_DECLARE)
#undef FASCORE_DECLARE

namespace {

// What each name needs. __builtin_cpu_supports asks the CPU and whether the system saves the registers.
struct Requirement {
    std::string_view isa;
    const char* needs;
    bool (*met)();
    const char* (*demoted)();
};

bool always() { return true; }
const char* never_demoted() { return nullptr; }

#if defined(__x86_64__)
bool has_avx2() {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
           __builtin_cpu_supports("f16c") != 0;
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0; }

const char* slow_bf16_dot() {
    if (__builtin_cpu_is("intel") != 0 && __builtin_cpu_is("cooperlake") == 0) {
        return "this CPU's bf16 dot product is slower than its f32 multiply-add";
    }
    return nullptr;
}

constexpr std::array requirements{
    Requirement{"avx512_bf16", "AVX-512 F, BW, VL, DQ, BF16", has_avx512_bf16, slow_bf16_dot},
    Requirement{"avx512", "AVX-512 F, BW, VL, DQ", has_avx512, never_demoted},
    Requirement{"avx2", "AVX2, FMA, F16C", has_avx2, never_demoted},
    Requirement{"baseline", "nothing beyond x86-64", always, never_demoted},
};
#elif defined(__aarch64__)
constexpr std::array requirements{
    Requirement{"neon", "nothing beyond AArch64", always, never_demoted},
    Requirement{"baseline", "nothing beyond AArch64", always, never_demoted},
};
#else
constexpr std::array requirements{
    Requirement{"baseline", "nothing", always, never_demoted},
};
#endif

std::vector<IsaEntry> make_entries() {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    const std::array tables{
#define FASCORE_NAME(isa) &kernels_##isa,
        FASCORE_ISA_LIST(FASCORE_NAME)
#undef FASCORE_NAME
    };
    std::vector<IsaEntry> entries;
    for (const KernelTable* table : tables) {
        for (const Requirement& requirement : requirements) {
            if (requirement.isa != table->name) continue;
            entries.push_back({table, requirement.needs, requirement.met(), requirement.demoted()});
        }
    }
    return entries;
}

std::string known_names() {
    std::string names;
    for (const IsaEntry& entry : isa_entries()) {
        if (!names.empty()) names += ", ";
        names += entry.table->name;
    }
    return names;
}

}  // namespace

std::span<const IsaEntry> isa_entries() {
    static const std::vector<IsaEntry> entries = make_entries();
    return entries;
}

Status select_table(std::string_view request, const KernelTable*& table, std::string& why) {
    const bool from_environment = request.empty() && !config_isa().empty();
    const std::string_view wanted = from_environment ? config_isa() : request;
    const std::string parameter = from_environment ? "FASCORE_ISA" : "isa";
    if (!wanted.empty()) {
        for (const IsaEntry& entry : isa_entries()) {
            if (wanted != entry.table->name) continue;
            if (!entry.runnable) {
                return {StatusCode::unavailable, parameter + ": " + std::string(wanted) +
                                                     ", this CPU lacks what it needs (" + entry.needs + ")"};
            }
            table = entry.table;
            why = from_environment ? "FASCORE_ISA asks for it" : "asked for by the caller";
            return {};
        }
        return {StatusCode::invalid_argument,
                parameter + ": '" + std::string(wanted) + "', must be one of " + known_names()};
    }
    std::string passed_over;
    for (const IsaEntry& entry : isa_entries()) {
        if (!entry.runnable) continue;
        if (entry.demoted != nullptr) {
            passed_over +=
                std::string("; ") + entry.table->name + " runs here too but was passed over: " + entry.demoted;
            continue;
        }
        table = entry.table;
        why = "the best this CPU can run" + passed_over;
        return {};
    }
    return {StatusCode::internal_error, "isa: no kernel table of this build runs on this CPU"};
}

}  // namespace fascore::kernels
