// SPDX-License-Identifier: Apache-2.0
//
// The predicates of visible.h, a line each.
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

// The sequence that modes 7 and 8 treat as a band: the last or the first one that has queries.
std::int64_t band_sequence(const Problem& problem, bool last) {
    std::int64_t found = -1;
    std::int64_t b = 0;
    for (const Sequence& sequence : problem.sequences) {
        if (sequence.S1 > 0 && (last || found < 0)) found = b;
        ++b;
    }
    return found;
}

int mode_of(const Problem& problem, const Batch& batch) {
    switch (problem.stated.sparse_mode) {
        case 7: return batch.index == band_sequence(problem, true) ? 4 : 3;
        case 8: return batch.index == band_sequence(problem, false) ? 4 : 2;
        default: return problem.stated.sparse_mode;
    }
}

}  // namespace

Visibility::Visibility(const Problem& problem, const Batch& batch)
    : mask_(batch.mask),
      rule_(problem.stated.rule),
      mask_given_(problem.mask_given),
      mode_(mode_of(problem, batch)),
      delta_(batch.S2 - batch.S1),
      pre_(bounded(problem.stated.pre_tokens)),
      next_(bounded(problem.stated.next_tokens)) {
    if (mask_given_ && mode_ == 6) prefix_ = problem.stated.prefix[static_cast<std::size_t>(batch.index)];
}

bool Visibility::masked_out(std::int64_t n, std::int64_t i, std::int64_t j) const {
    return mask_.data[n * mask_.stride_n + i * mask_.stride_i + j * mask_.stride_j] != 0;
}

bool Visibility::by_sparse_mode(std::int64_t n, std::int64_t i, std::int64_t j) const {
    if (!mask_given_) return true;
    switch (mode_) {
        case 0: return i - pre_ <= j && j <= i + next_ && !masked_out(n, i, j);
        case 1:
        case 5: return !masked_out(n, i, j);
        case 2: return j <= i;
        case 3: return j <= i + delta_;
        case 4: return i + delta_ - pre_ <= j && j <= i + delta_ + next_;
        case 6: return j < prefix_ || j <= i + delta_;
        default: return false;  // refused before it comes here
    }
}

bool Visibility::by_rule(std::int64_t i, std::int64_t j) const {
    switch (rule_.kind) {
        case MaskRule::Kind::none: return true;
        case MaskRule::Kind::causal_top_left: return j <= i;
        case MaskRule::Kind::causal_bottom_right: return j <= i + delta_;
        case MaskRule::Kind::window:
            return (rule_.left == -1 || i + delta_ - bounded(rule_.left) <= j) &&
                   (rule_.right == -1 || j <= i + delta_ + bounded(rule_.right));
    }
    return false;
}

bool Visibility::operator()(std::int64_t n, std::int64_t i, std::int64_t j) const {
    return by_rule(i, j) && by_sparse_mode(n, i, j);
}

}  // namespace fascore::reference
