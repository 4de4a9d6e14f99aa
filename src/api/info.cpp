// SPDX-License-Identifier: Apache-2.0
//
// The part of info.h that needs no kernels: threads, environment variables, scalar conversion. api/isa.cpp has the
// instruction sets.
#include "fascore/info.h"

#include "base/config.h"
#include "base/dtype.h"
#include "base/parallel.h"

namespace fascore {

Status default_threads(int& threads) {
    int configured = 0;
    if (Status s = config_threads(configured); !s.ok()) return s;
    threads = configured > 0 ? configured : hardware_threads();
    return {};
}

std::vector<EnvironmentVariable> environment_variables() {
    std::vector<EnvironmentVariable> variables;
    for (const ConfigVariable& known : config_variables()) {
        variables.push_back({std::string(known.name), known.value, known.set, std::string(known.help)});
    }
    return variables;
}

double load_element(const void* element, DType dtype) noexcept { return load_scalar(element, dtype); }

void store_element(void* element, DType dtype, double value) noexcept { store_scalar(element, dtype, value); }

}  // namespace fascore
