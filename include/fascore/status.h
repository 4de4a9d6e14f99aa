// SPDX-License-Identifier: Apache-2.0
//
// Status: how every fascore call reports. The library never prints, never throws across its border and never
// aborts because of what a caller passed.
//
//   invalid_argument     a value, shape, dtype or combination is not allowed. The message reads
//                        "<parameter>: <what was given>, <what is allowed>" and no output was touched
//   workspace_too_small  the workspace has fewer bytes than the query function returned; no output was touched
//   out_of_memory        a convenience form could not allocate its workspace; no output was touched
//   unavailable          the request is valid but this build or this machine cannot serve it (an ISA, a backend)
//   cancelled            the cancel token was set while the call ran; the contents of the outputs are unspecified
//   internal_error       a fault of ours
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "fascore/export.h"

namespace fascore {

enum class StatusCode {
    ok,
    invalid_argument,
    workspace_too_small,
    out_of_memory,
    unavailable,
    cancelled,
    internal_error,
};

/// The name of a code as written above ("ok", "invalid_argument", ...).
FASCORE_EXPORT std::string_view name(StatusCode code) noexcept;

/// Result of a call: a code and, unless ok, a message for a person. An ok Status owns no memory.
class [[nodiscard]] Status {
  public:
    Status() noexcept = default;
    Status(StatusCode code, std::string message) noexcept : code_(code), message_(std::move(message)) {}

    [[nodiscard]] bool ok() const noexcept { return code_ == StatusCode::ok; }
    [[nodiscard]] StatusCode code() const noexcept { return code_; }
    [[nodiscard]] const std::string& message() const noexcept { return message_; }

  private:
    StatusCode code_ = StatusCode::ok;
    std::string message_;
};

}  // namespace fascore
