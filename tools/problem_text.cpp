// SPDX-License-Identifier: Apache-2.0
//
// The words of the problem syntax: shapes, dtypes, layouts and rules from text, or a refusal that says what is allowed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "problem_options.h"

namespace fascore::cli {
namespace {

constexpr std::string_view shape_syntax = "must be B,N1[:N2],S1[:S2],D[:Dv], like 2,8,1024,64 or 1,32:8,4096,128";

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts(1);
    for (const char letter : text) {
        if (letter == separator) {
            parts.emplace_back();
        } else {
            parts.back() += letter;
        }
    }
    return parts;
}

std::optional<std::int64_t> as_integer(const std::string& text) {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
    return value;
}

std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
    return text;
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return text;
}

}  // namespace

Extents parse_shape(const std::string& text) {
    const auto refuse = [&]() -> Failure { return Failure(fmt::format("--shape: {}, {}", text, shape_syntax)); };
    const std::vector<std::string> fields = split(text, ',');
    if (fields.size() != 4) throw refuse();
    std::array<std::int64_t, 4> first{};
    std::array<std::int64_t, 4> second{};
    for (std::size_t field = 0; field < 4; ++field) {
        const std::vector<std::string> parts = split(fields[field], ':');
        if (parts.size() > (field == 0 ? 1U : 2U)) throw refuse();
        const auto one = as_integer(parts[0]);
        const auto two = parts.size() == 2 ? as_integer(parts[1]) : one;
        if (!one || !two || *one < 0 || *two < 0) throw refuse();
        first[field] = *one;
        second[field] = *two;
    }
    return {first[0], first[1], second[1], first[2], second[2], first[3], second[3]};
}

DType parse_dtype(const std::string& text) {
    const std::string wanted = lower(text);
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        if (wanted == name(dtype)) return dtype;
    }
    throw Failure(fmt::format("--dtype: {}, must be f64, f32, bf16 or f16", text));
}

Layout parse_layout(const std::string& text) {
    const std::string wanted = upper(text);
    for (const Layout layout : {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH}) {
        if (wanted == name(layout)) return layout;
    }
    throw Failure(fmt::format("--layout: {}, must be BNSD, BSND, BSH or SBH", text));
}

MaskRule parse_rule(const std::string& causal, const std::string& window) {
    MaskRule rule;
    if (!causal.empty()) {
        if (causal == "bottom-right" || causal == "true") {  // "true": the flag without a value
            rule.kind = MaskRule::Kind::causal_bottom_right;
        } else if (causal == "top-left") {
            rule.kind = MaskRule::Kind::causal_top_left;
        } else {
            throw Failure(fmt::format("--causal: {}, must be bottom-right or top-left", causal));
        }
    }
    if (window.empty()) return rule;

    const std::vector<std::string> parts = split(window, ',');
    const auto left = as_integer(parts[0]);
    const auto right = parts.size() == 2 ? as_integer(parts[1]) : std::nullopt;
    if (!left || !right || *left < -1 || *right < -1) {
        throw Failure(fmt::format("--window: {}, must be LEFT,RIGHT, two integers from -1 (no bound) up", window));
    }
    if (rule.kind == MaskRule::Kind::causal_top_left) {
        throw Failure(
            "--causal: top-left cannot be combined with --window, which is measured from the bottom-right "
            "corner; must be bottom-right");
    }
    const bool capped = rule.kind == MaskRule::Kind::causal_bottom_right;
    return {MaskRule::Kind::window, *left, capped ? 0 : *right};
}

}  // namespace fascore::cli
