// SPDX-License-Identifier: Apache-2.0
//
// The words of the problem syntax: shapes, lists, dtypes, layouts, rules and forms from text, or a refusal that says
// what is allowed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "problem_options.h"

namespace fascore::cli {
namespace {

constexpr std::string_view shape_syntax =
    "must be B,N1[:N2],S1[:S2],D[:Dv], like 2,8,1024,64 or 1,32:8,4096,128, in layout TND also 64,8,16..2048,128";

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

struct Range {
    std::int64_t least = 0;
    std::int64_t most = 0;
};

/// "128", or "16..2048" where ranges are allowed; not negative.
std::optional<Range> as_range(const std::string& text, bool may_range) {
    const auto dots = text.find("..");
    if (dots == std::string::npos || !may_range) {
        const auto one = as_integer(text);
        if (!one || *one < 0) return std::nullopt;
        return Range{*one, *one};
    }
    const auto least = as_integer(text.substr(0, dots));
    const auto most = as_integer(text.substr(dots + 2));
    if (!least || !most || *least < 0 || *most < *least) return std::nullopt;
    return Range{*least, *most};
}

std::string folded(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char letter) { return letter == '-' ? '_' : static_cast<char>(std::tolower(letter)); });
    return text;
}

/// "a, b or c"
std::string enumeration(const std::vector<std::string_view>& words) {
    std::string text;
    for (std::size_t word = 0; word < words.size(); ++word) {
        if (word > 0) text += word + 1 == words.size() ? " or " : ", ";
        text += words[word];
    }
    return text;
}

template <class T>
struct Word {
    std::string_view text;
    T value;
    bool shown = true;  ///< in refusals; other spellings are not
};

/// The value of a word in any case, '-' and '_' alike.
template <class T>
T value_of(const char* option, const std::string& text, std::span<const Word<T>> words) {
    std::vector<std::string_view> shown;
    for (const Word<T>& word : words) {
        if (folded(text) == folded(std::string(word.text))) return word.value;
        if (word.shown) shown.push_back(word.text);
    }
    throw Failure(fmt::format("{}: {}, must be {}", option, text, enumeration(shown)));
}

constexpr Word<DType> data_dtypes[] = {
    {"f64", DType::f64},
    {"f32", DType::f32},
    {"bf16", DType::bf16},
    {"f16", DType::f16},
    {"f8e4m3", DType::f8e4m3},
    {"f8e5m2", DType::f8e5m2},
    {"e4m3", DType::f8e4m3, false},
    {"e5m2", DType::f8e5m2, false},
};

constexpr Word<DType> wide_dtypes[] = {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};

constexpr Word<Layout> layouts[] = {
    {"BNSD", Layout::BNSD}, {"BSND", Layout::BSND}, {"BSH", Layout::BSH}, {"SBH", Layout::SBH}, {"TND", Layout::TND},
};

// The operator's own words for the two orders are "" and "same_as_input".
constexpr Word<StatisticsOrder> statistics_orders[] = {
    {"by_sequence", StatisticsOrder::by_sequence},
    {"by_token", StatisticsOrder::by_token},
    {"same_as_input", StatisticsOrder::by_token, false},
};

constexpr Form bias_forms[] = {
    {"full", "BNSK", "[B,N1,S1,S2]"},
    {"heads", "1NSK", "[1,N1,S1,S2]"},
    {"row", "BN1K", "[B,N1,1,S2]"},
    {"BNSS", "BNSK", ""},
    {"1NSS", "1NSK", ""},
    {"BN1S", "BN1K", ""},
    {"1N1S", "1N1K", ""},
    {"B1SS", "B1SK", ""},
    {"11SS", "11SK", ""},
    {"B11S", "B11K", ""},
    {"111S", "111K", ""},
    {"BNHS", "BNHK", "compressed, 1024 rows"},
    {"1NHS", "1NHK", ""},
    {"NSS", "P", "TND: every pair of every sequence"},
    {"N1S", "V", "TND: one row a sequence"},
    {"N", "N", "slopes"},
    {"BN", "BN", "slopes"},
};

constexpr Form mask_forms[] = {
    {"SS", "SK", "[S1,S2]"},
    {"11SS", "11SK", ""},
    {"B1SS", "B1SK", "[B,1,S1,S2]"},
    {"BNSS", "BNSK", ""},
    {"TT", "TU", "TND: [T1,T2]"},
    {"template", "CC", "[2048,2048]"},
    {"prefix-template", "XC", "[3072,2048]"},
};

/// The form a sparse mode takes when none is named; a mode that is none takes the first and is the library's to refuse.
constexpr std::string_view mask_of_mode[] = {
    "SS", "SS", "template", "template", "template", "B1SS", "prefix-template", "template", "template"};

std::string described(std::span<const Form> forms) {
    std::vector<std::string> texts;
    for (const Form& form : forms) {
        texts.emplace_back(form.what.empty() ? fmt::format("{}", form.word)
                                             : fmt::format("{} ({})", form.word, form.what));
    }
    return enumeration({texts.begin(), texts.end()});
}

const Form& form_of(const char* option, const std::string& text, std::span<const Form> forms) {
    std::vector<std::string_view> words;
    for (const Form& form : forms) {
        if (folded(text) == folded(std::string(form.word))) return form;
        words.push_back(form.word);
    }
    throw Failure(fmt::format("{}: {}, must be {}", option, text, enumeration(words)));
}

}  // namespace

Shape parse_shape(const std::string& text) {
    const auto refuse = [&]() -> Failure { return Failure(fmt::format("--shape: {}, {}", text, shape_syntax)); };
    constexpr std::size_t lengths = 2;  // the field of S1 and S2
    const std::vector<std::string> fields = split(text, ',');
    if (fields.size() != 4) throw refuse();
    std::array<Range, 4> first{};
    std::array<Range, 4> second{};
    bool own_S2 = false;
    for (std::size_t field = 0; field < 4; ++field) {
        const std::vector<std::string> parts = split(fields[field], ':');
        if (parts.size() > (field == 0 ? 1U : 2U)) throw refuse();
        const auto one = as_range(parts[0], field == lengths);
        const auto two = parts.size() == 2 ? as_range(parts[1], field == lengths) : one;
        if (!one || !two) throw refuse();
        first[field] = *one;
        second[field] = *two;
        if (field == lengths) own_S2 = parts.size() == 2;
    }
    Shape shape;
    shape.most.B = first[0].most;
    shape.most.N1 = first[1].most;
    shape.most.N2 = second[1].most;
    shape.most.S1 = first[2].most;
    shape.most.S2 = second[2].most;
    shape.most.D = first[3].most;
    shape.most.Dv = second[3].most;
    shape.least_S1 = first[2].least;
    shape.least_S2 = second[2].least;
    shape.own_S2 = own_S2;
    return shape;
}

DType parse_dtype(const std::string& text) { return value_of<DType>("--dtype", text, data_dtypes); }

DType parse_wide_dtype(const char* option, const std::string& text) {
    return value_of<DType>(option, text, wide_dtypes);
}

Layout parse_layout(const std::string& text) { return value_of<Layout>("--layout", text, layouts); }

StatisticsOrder parse_statistics_order(const std::string& text) {
    return value_of<StatisticsOrder>("--statistics-order", text, statistics_orders);
}

std::vector<std::int64_t> parse_list(const char* option, const std::string& text) {
    std::vector<std::int64_t> values;
    for (const std::string& part : split(text, ',')) {
        const auto value = as_integer(part);
        if (!value) {
            throw Failure(fmt::format("{}: {}, must be integers separated by commas, like 2,5,9", option, text));
        }
        values.push_back(*value);
    }
    return values;
}

const Form& parse_bias_form(const std::string& text) { return form_of("--bias", text, bias_forms); }

const Form& parse_mask_form(const std::string& text, int sparse_mode) {
    if (!text.empty() && text != "true")
        return form_of("--mask", text, mask_forms);  // "true": the flag without a value
    const bool known = sparse_mode >= 0 && sparse_mode < static_cast<int>(std::size(mask_of_mode));
    return form_of("--mask", std::string(mask_of_mode[known ? sparse_mode : 0]), mask_forms);
}

std::string bias_words() { return described(bias_forms); }
std::string mask_words() { return described(mask_forms); }

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
