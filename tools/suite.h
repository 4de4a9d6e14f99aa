// SPDX-License-Identifier: Apache-2.0
//
// Suite files: benchmark problems as text.
//
//   # comment, to the end of the line
//   name   --shape 1,8,4096,128 --causal           a name, then a problem in the CLI's syntax (problem_options.h)
//
// Names are letters, digits, '_', '-' and '.', each once a file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "problem_options.h"

namespace fascore::cli {

struct SuiteRow {
    std::string name;
    ProblemOptions problem;
};

/// Understands a suite; `source` (a path) opens the error texts, with the line number.
[[nodiscard]] std::vector<SuiteRow> parse_suite(std::string_view text, const std::string& source);

/// A suite by path, by the name of one that comes with the sources ("standard"), or, when empty, the standard one: from
/// the sources where they still are, else the copy inside this program.
[[nodiscard]] std::vector<SuiteRow> read_suite(const std::string& request);

/// The rows with these names, in the suite's order; all when there are none. Throws Failure on an unknown name.
[[nodiscard]] std::vector<SuiteRow> select_rows(std::vector<SuiteRow> rows, const std::vector<std::string>& names);

}  // namespace fascore::cli
