// SPDX-License-Identifier: Apache-2.0
//
// Suite files: syntax in suite.h.
#include "suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "command.h"
#include "standard_suite.h"

namespace fascore::cli {
namespace {

constexpr std::string_view blanks = " \t\r";

bool is_name(std::string_view name) {
    return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
        return std::isalnum(letter) != 0 || letter == '_' || letter == '-' || letter == '.';
    });
}

std::string read_text(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) {
        throw Failure(fmt::format("SUITE: {}, must be a suite file or the name of one in {}", path, suite_directory));
    }
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) throw Failure(fmt::format("{}: cannot be read", path));
    return text.str();
}

}  // namespace

std::vector<SuiteRow> parse_suite(std::string_view text, const std::string& source) {
    std::vector<SuiteRow> rows;
    std::set<std::string, std::less<>> names;
    for (int number = 1; !text.empty(); ++number) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        line = line.substr(0, line.find('#'));
        const auto start = line.find_first_not_of(blanks);
        if (start == std::string_view::npos) continue;
        line.remove_prefix(start);
        const std::string where = fmt::format("{}:{}", source, number);
        const std::string name(line.substr(0, line.find_first_of(blanks)));
        if (!is_name(name)) {
            throw Failure(fmt::format("{}: name is {}, must be letters, digits, '_', '-' and '.', before the problem",
                                      where, name));
        }
        if (!names.insert(name).second)
            throw Failure(fmt::format("{}: name is {}, must be given once a file", where, name));
        rows.push_back({name, parse_problem_line(line.substr(name.size()), where)});
        if (rows.back().problem.input.empty() && rows.back().problem.shape.empty()) {
            throw Failure(fmt::format("{}: {}: problem is absent, must be a file or --shape", where, name));
        }
    }
    if (rows.empty()) throw Failure(fmt::format("{}: has no rows, must have at least one", source));
    return rows;
}

std::vector<SuiteRow> read_suite(const std::string& request) {
    std::error_code ignored;
    const std::string name = request.empty() ? "standard" : request;
    const std::string beside_sources = fmt::format("{}/{}.txt", suite_directory, name);
    const bool is_path = name.find('/') != std::string::npos || std::filesystem::exists(name, ignored);
    if (!is_path || request.empty()) {
        if (std::filesystem::exists(beside_sources, ignored))
            return parse_suite(read_text(beside_sources), beside_sources);
        if (name == "standard") return parse_suite(standard_suite, "standard (built in)");
    }
    return parse_suite(read_text(request), request);
}

std::vector<SuiteRow> select_rows(std::vector<SuiteRow> rows, const std::vector<std::string>& names) {
    if (names.empty()) return rows;
    std::string known;
    for (const SuiteRow& row : rows) known += (known.empty() ? "" : ", ") + row.name;
    for (const std::string& name : names) {
        if (std::none_of(rows.begin(), rows.end(), [&](const SuiteRow& row) { return row.name == name; })) {
            throw Failure(fmt::format("--only: {}, must be one of {}", name, known));
        }
    }
    std::erase_if(rows,
                  [&](const SuiteRow& row) { return std::find(names.begin(), names.end(), row.name) == names.end(); });
    return rows;
}

}  // namespace fascore::cli
