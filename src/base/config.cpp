// SPDX-License-Identifier: Apache-2.0
#include "base/config.h"

#include <charconv>
#include <cstdlib>

namespace fascore {

namespace {

constexpr int most_threads = 1024;

ConfigVariable read(const char* name, std::string_view help) {
    ConfigVariable variable;
    variable.name = name;
    variable.help = help;
    // An empty value is what "FASCORE_ISA= program" leaves behind: it means "not set".
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
        variable.value = value;
        variable.set = true;
    }
    return variable;
}

enum Position : std::size_t { isa_position, threads_position };

}  // namespace

const std::vector<ConfigVariable>& config_variables() {
    static const std::vector<ConfigVariable> variables = {
        read("FASCORE_ISA", "kernel table to use, one of those `fascore info` lists; default: the best this CPU runs"),
        read("FASCORE_NUM_THREADS", "threads of a call that does not say, 1 to 1024; default: the machine's"),
    };
    return variables;
}

std::string_view config_isa() { return config_variables()[isa_position].value; }

Status config_threads(int& threads) {
    threads = 0;
    const ConfigVariable& variable = config_variables()[threads_position];
    return variable.set ? parse_threads(variable.value, threads) : Status();
}

Status parse_threads(std::string_view text, int& threads) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most_threads) {
        return {StatusCode::invalid_argument,
                "FASCORE_NUM_THREADS: given " + std::string(text) + ", must be 1 to " + std::to_string(most_threads)};
    }
    threads = value;
    return {};
}

}  // namespace fascore
