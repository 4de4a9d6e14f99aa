// SPDX-License-Identifier: Apache-2.0
#include "reference/visible.h"

namespace fascore::reference {

namespace {

// A token count, kept where i ± tokens cannot overflow; S1 and S2 are at most 2^20.
std::int64_t bounded(std::int64_t tokens) {
    constexpr std::int64_t far = 2147483647;
    if (tokens > far) return far;
    if (tokens < -far) return -far;
    return tokens;
}

bool masked_out(const Problem& problem, std::int64_t b, std::int64_t n, std::int64_t i, std::int64_t j) {
    const MaskTensor& mask = problem.mask;
    return mask.data[b * mask.stride_b + n * mask.stride_n + i * mask.stride_i + j * mask.stride_j] != 0;
}

bool by_sparse_mode(const Problem& problem, std::int64_t b, std::int64_t n, std::int64_t i, std::int64_t j) {
    if (!problem.mask_given) return true;
    const std::int64_t delta = problem.S2 - problem.S1;
    const std::int64_t pre = bounded(problem.stated.pre_tokens);
    const std::int64_t next = bounded(problem.stated.next_tokens);
    switch (problem.stated.sparse_mode) {
        case 0: return i - pre <= j && j <= i + next && !masked_out(problem, b, n, i, j);
        case 1: return !masked_out(problem, b, n, i, j);
        case 2: return j <= i;
        case 3: return j <= i + delta;
        case 4: return i + delta - pre <= j && j <= i + delta + next;
        default: return false;  // refused before it comes here
    }
}

bool by_rule(const Problem& problem, std::int64_t i, std::int64_t j) {
    const std::int64_t delta = problem.S2 - problem.S1;
    const MaskRule& rule = problem.stated.rule;
    switch (rule.kind) {
        case MaskRule::Kind::none: return true;
        case MaskRule::Kind::causal_top_left: return j <= i;
        case MaskRule::Kind::causal_bottom_right: return j <= i + delta;
        case MaskRule::Kind::window:
            return (rule.left == -1 || i + delta - bounded(rule.left) <= j) &&
                   (rule.right == -1 || j <= i + delta + bounded(rule.right));
    }
    return false;
}

}  // namespace

bool visible(const Problem& problem, std::int64_t b, std::int64_t n, std::int64_t i, std::int64_t j) {
    return by_sparse_mode(problem, b, n, i, j) && by_rule(problem, i, j);
}

}  // namespace fascore::reference
