// SPDX-License-Identifier: Apache-2.0
//
// Running the built program: see run_cli.h.
#include "tools/run_cli.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace fascore::cli::testing {

Said run_cli(const std::string& line, const std::string& environment) {
    const Scratch scratch;
    const std::string err = scratch.path("stderr");
    // env -u: what the surrounding shell has set must not reach the program. FASCORE_CLI_LAUNCHER is the emulator, if
    // any.
    const std::string command = fmt::format("env -u FASCORE_ISA -u FASCORE_NUM_THREADS {} {} '{}' {} 2>'{}'",
                                            environment, FASCORE_CLI_LAUNCHER, FASCORE_CLI_PATH, line, err);
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("popen failed");
    Said said;
    std::array<char, 4096> buffer{};
    for (std::size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
        said.out.append(buffer.data(), got);
    }
    const int status = pclose(pipe);
    said.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    said.err = read_bytes(err);
    return said;
}

Scratch::Scratch() {
    static std::atomic<int> number{0};
    folder_ =
        std::filesystem::temp_directory_path() / fmt::format("fascore-cli-test-{}-{}", getpid(), number.fetch_add(1));
    std::filesystem::create_directories(folder_);
}

Scratch::~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> Scratch::files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
}

std::string read_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string safetensors_bytes(const std::string& header, const std::string& data, std::uint64_t length) {
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    return bytes + header + data;
}

std::string safetensors_bytes(const std::string& header, const std::string& data) {
    return safetensors_bytes(header, data, header.size());
}

}  // namespace fascore::cli::testing
