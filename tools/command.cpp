// SPDX-License-Identifier: Apache-2.0
//
// From a library Status, or a complaint of CLI11, to our own way of failing.
#include "command.h"

#include <string_view>

namespace fascore::cli {

std::string parse_error_text(const CLI::ParseError& error) {
    // CLI11 says "Could not convert: NAME = VALUE", or several values "[a,b]".
    constexpr std::string_view opening = "Could not convert: ";
    const std::string text = error.what();
    const auto equals = text.find(" = ");
    if (text.rfind(opening, 0) != 0 || equals == std::string::npos) return text;
    return text.substr(opening.size(), equals - opening.size()) + ": " + text.substr(equals + 3) +
           ", must be a number in range";
}

void require(const Status& status) {
    if (status.ok()) return;
    if (status.code() == StatusCode::cancelled) throw Failure("interrupted", exit_interrupted);
    throw Failure(status.message(), exit_bad_input);
}

}  // namespace fascore::cli
