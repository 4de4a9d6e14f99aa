// SPDX-License-Identifier: Apache-2.0
//
// AttentionParams, as far as it can be judged without a tensor.
#include <cmath>

#include "problem/rules.h"

namespace fascore {

namespace {

Status layout_rule(const AttentionParams& p) {
    switch (p.layout) {
        case Layout::BNSD:
        case Layout::BSND:
        case Layout::BSH:
        case Layout::SBH:
        case Layout::TND: return {};
    }
    return refuse("layout", "given " + text(p.layout), "must be BNSD, BSND, BSH, SBH or TND");
}

Status head_num_rule(const AttentionParams& p) {
    if (p.head_num > 0 || (p.head_num == 0 && !heads_are_fused(p.layout))) return {};
    return refuse("head_num", "given " + text(p.head_num),
                  heads_are_fused(p.layout) ? "must be 1 to 256 for layout " + text(p.layout)
                                            : "must be query's head count, or 0 for not given");
}

struct Choice {
    const char* parameter;
    int given;
    int least;
    int most;
    const char* allowed;
};

Status choice_rules(const AttentionParams& p) {
    const Choice choices[] = {
        {"sparse_mode", p.sparse_mode, 0, 8, "must be 0 to 8"},
        {"pse_type", p.pse_type, 0, 3, "must be 0 to 3"},
        {"inner_precise", p.inner_precise, 0, 2, "must be 0, 1 or 2"},
    };
    for (const Choice& choice : choices) {
        if (choice.given < choice.least || choice.given > choice.most) {
            return refuse(choice.parameter, "given " + text(std::int64_t{choice.given}), choice.allowed);
        }
    }
    return {};
}

Status window_bound(const AttentionParams& p, std::string_view parameter, std::int64_t bound) {
    if (p.rule.kind != MaskRule::Kind::window && bound != -1) {
        return refuse(parameter, "given " + text(bound), "must be -1 unless rule.kind is window");
    }
    if (bound < -1) return refuse(parameter, "given " + text(bound), "must be 0 or more, or -1 for no bound");
    return {};
}

Status mask_rule_rule(const AttentionParams& p) {
    if (p.rule.kind > MaskRule::Kind::window) {
        return refuse("rule.kind", "given value " + text(static_cast<std::int64_t>(p.rule.kind)),
                      "must be none, causal_top_left, causal_bottom_right or window");
    }
    return in_order([&] { return window_bound(p, "rule.left", p.rule.left); },
                    [&] { return window_bound(p, "rule.right", p.rule.right); });
}

Status number_rules(const AttentionParams& p) {
    if (!std::isfinite(p.scale)) return refuse("scale", "given " + text(p.scale), "must be a finite number");
    if (!(p.keep_prob > 0.0 && p.keep_prob <= 1.0)) {
        return refuse("keep_prob", "given " + text(p.keep_prob), "must be more than 0 and at most 1");
    }
    if (!std::isfinite(p.softcap) || p.softcap < 0.0) {
        return refuse("softcap", "given " + text(p.softcap), "must be a finite number, 0 (none) or more");
    }
    return {};
}

// What only a packed call can mean.
Status packed_only(const AttentionParams& p) {
    if (p.statistics_order > StatisticsOrder::by_token) {
        return refuse("statistics_order", "given value " + text(static_cast<std::int64_t>(p.statistics_order)),
                      "must be by_sequence or by_token");
    }
    if (p.layout == Layout::TND) return {};
    if (p.statistics_order == StatisticsOrder::by_token) {
        return refuse("statistics_order", "given by_token", "must be by_sequence unless layout is TND");
    }
    struct Ends {
        const char* parameter;
        std::size_t entries;
    };
    for (const Ends& ends :
         {Ends{"actual_seq_qlen", p.actual_seq_qlen.size()}, Ends{"actual_seq_kvlen", p.actual_seq_kvlen.size()}}) {
        if (ends.entries != 0) {
            return refuse(ends.parameter, text(static_cast<std::int64_t>(ends.entries)) + " entries",
                          "must be absent unless layout is TND");
        }
    }
    return {};
}

}  // namespace

Status parameter_rules(const Call& call) {
    const AttentionParams& p = call.params;
    return in_order([&] { return layout_rule(p); }, [&] { return head_num_rule(p); }, [&] { return choice_rules(p); },
                    [&] { return mask_rule_rule(p); }, [&] { return number_rules(p); }, [&] { return packed_only(p); });
}

}  // namespace fascore
