// SPDX-License-Identifier: Apache-2.0
//
// Runs the built program as a user would and catches what it says: exit status, stdout and stderr apart. Also a
// scratch folder, and files written byte by byte, for tests that hand the program bad ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace fascore::cli::testing {

struct Said {
    int status = -1;
    std::string out;
    std::string err;
};

/// `line` goes through the shell behind the program's path; `environment` ("A=1 B=2") before it.
[[nodiscard]] Said run_cli(const std::string& line, const std::string& environment = "");

/// A folder of this test's own, removed at the end.
class Scratch {
  public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
    [[nodiscard]] std::vector<std::string> files() const;

  private:
    std::filesystem::path folder_;
};

[[nodiscard]] std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);

/// A safetensors file from its parts, right or wrong: length (or the header's own), header, data.
[[nodiscard]] std::string safetensors_bytes(const std::string& header, const std::string& data);
[[nodiscard]] std::string safetensors_bytes(const std::string& header, const std::string& data, std::uint64_t length);

}  // namespace fascore::cli::testing
