// SPDX-License-Identifier: Apache-2.0
//
// What every sub-command shares: how it is added to the command line, how it fails, and its exit status.
//
//   0    done, and the answer is yes
//   1    done, and the answer is no (a check failed, a gradient is not good enough)
//   2    bad input or a request that this build cannot serve; a message on stderr says what was given and what is
//        allowed
//   130  stopped by Ctrl-C
//
// A sub-command's file defines one add_<name>(parent, chosen): it declares the options and, when the user picked it,
// leaves the work in `chosen`. main() runs that after the whole command line has been understood, so nothing starts
// on a line that is wrong further right.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "fascore/status.h"

namespace fascore::cli {

inline constexpr int exit_right = 0;
inline constexpr int exit_wrong = 1;
inline constexpr int exit_bad_input = 2;
inline constexpr int exit_interrupted = 130;

/// Ends the command: main() prints "fascore: <message>" on stderr and returns the status.
class Failure : public std::runtime_error {
  public:
    explicit Failure(const std::string& message, int exit_status = exit_bad_input)
        : std::runtime_error(message), exit_status_(exit_status) {}
    [[nodiscard]] int exit_status() const noexcept { return exit_status_; }

  private:
    int exit_status_;
};

/// CLI11's complaint, with a value that is no number said as all refusals are: "LEVEL: x, must be a number".
[[nodiscard]] std::string parse_error_text(const CLI::ParseError& error);

/// Turns a library refusal into a Failure; a cancelled call is an interruption, not a mistake.
void require(const Status& status);

using Work = std::function<int()>;

void add_check(CLI::App& parent, Work& chosen);
void add_score(CLI::App& parent, Work& chosen);
void add_grad(CLI::App& parent, Work& chosen);
void add_verify(CLI::App& parent, Work& chosen);
void add_bench(CLI::App& parent, Work& chosen);
void add_dropout(CLI::App& parent, Work& chosen);
void add_info(CLI::App& parent, Work& chosen);

}  // namespace fascore::cli
