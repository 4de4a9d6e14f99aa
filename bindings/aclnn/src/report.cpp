// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <array>
#include <charconv>
#include <vector>

#include "acl/acl.h"

namespace fascore::aclnn {

namespace {

// A program that never asks must not grow.
constexpr std::size_t most_texts = 16;

// What the thread has not asked for yet, oldest first, and the text it was given last.
struct Failures {
    std::vector<std::string> texts;
    std::string given;
};

Failures& failures() {
    thread_local Failures kept;
    return kept;
}

}  // namespace

int report(int code, std::string_view function, std::string_view text) noexcept {
    try {
        std::vector<std::string>& texts = failures().texts;
        if (texts.size() == most_texts) texts.erase(texts.begin());
        texts.push_back(std::string(function) + ": " + std::string(text));
    } catch (...) {  // the code says enough
    }
    return code;
}

std::string text_of(const void* address) {
    std::array<char, 24> digits{};
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), reinterpret_cast<std::uintptr_t>(address), 16).ptr;
    return "0x" + std::string(digits.data(), end);
}

}  // namespace fascore::aclnn

extern "C" const char* aclGetRecentErrMsg(void) {
    using namespace fascore::aclnn;
    try {
        Failures& kept = failures();
        if (kept.texts.empty()) return nullptr;
        kept.given.clear();
        for (auto text = kept.texts.rbegin(); text != kept.texts.rend(); ++text) {
            if (!kept.given.empty()) kept.given += '\n';
            kept.given += *text;
        }
        kept.texts.clear();
        return kept.given.c_str();
    } catch (...) {
        return "no memory for the text of a failure";
    }
}
