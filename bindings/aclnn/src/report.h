// SPDX-License-Identifier: Apache-2.0
//
// How a C function fails: it returns a code and leaves a text in its thread for aclGetRecentErrMsg. Nothing is thrown
// across the border, nothing is printed.
//
//   aclrtFree: devPtr: 0x7f00 was not allocated here, must be a block of aclrtMalloc that has not been freed
//   ^function  ^parameter ^given                     ^allowed
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "acl/acl_base.h"
#include "aclnn/aclnn_base.h"

namespace fascore::aclnn {

/// A refusal in the making: 0 and no text is success.
struct Verdict {
    int code = 0;
    std::string text{};  ///< "<parameter>: <given>, <allowed>"
    [[nodiscard]] bool ok() const noexcept { return code == 0; }
};

/// The refusal of a null pointer.
[[nodiscard]] inline Verdict null(int code, const char* parameter) {
    return {code, std::string(parameter) + ": null, must be given"};
}

/// Leaves "<function>: <text>" to this thread and returns the code. Out of memory, the code alone is returned.
int report(int code, std::string_view function, std::string_view text) noexcept;

inline int report(std::string_view function, const Verdict& verdict) noexcept {
    return verdict.ok() ? 0 : report(verdict.code, function, verdict.text);
}

/// "0x7f0012"
[[nodiscard]] std::string text_of(const void* address);

/// body() with what it throws turned into a code: the only cause there is, is a system without memory or threads.
template <class Body>
[[nodiscard]] int guarded(std::string_view function, int code, const Body& body) noexcept {
    try {
        return body();
    } catch (...) {
        return report(code, function, "the system has no memory or no thread for it");
    }
}

/// The runtime's functions: their body refuses with a Verdict.
template <class Body>
[[nodiscard]] aclError runtime_call(std::string_view function, const Body& body) noexcept {
    return guarded(function, ACL_ERROR_BAD_ALLOC, [&] { return report(function, body()); });
}

/// The same for functions that return an aclnnStatus.
template <class Body>
[[nodiscard]] aclnnStatus operator_call(std::string_view function, const Body& body) noexcept {
    return guarded(function, ACLNN_ERR_INNER_CREATE_EXECUTOR, [&] { return report(function, body()); });
}

}  // namespace fascore::aclnn
