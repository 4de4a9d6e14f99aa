// SPDX-License-Identifier: Apache-2.0
//
// Merging of partial attention results.
#include "support/merge.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace fascore::test {

Results merge_parts(const std::vector<Results>& parts) {
    Results whole;
    const Extents& extents = parts.front().attention_out.extents();
    whole.attention_out = Tensor(parts.front().attention_out.dtype(), Form::BNSD, extents);
    whole.softmax_max = Tensor(parts.front().softmax_max.dtype(), Form::BNSD, {extents.b, extents.n, extents.s, 8});
    whole.softmax_sum = Tensor(parts.front().softmax_sum.dtype(), Form::BNSD, {extents.b, extents.n, extents.s, 8});
    for (std::int64_t b = 0; b < extents.b; ++b) {
        for (std::int64_t n = 0; n < extents.n; ++n) {
            for (std::int64_t i = 0; i < extents.s; ++i) {
                double max = -FLT_MAX;
                for (const Results& part : parts) max = std::max(max, part.softmax_max.get(b, n, i, 0));
                double sum = 0.0;
                std::vector<double> out(static_cast<std::size_t>(extents.d), 0.0);
                for (const Results& part : parts) {
                    const double part_max = part.softmax_max.get(b, n, i, 0);
                    if (part_max <= -FLT_MAX) continue;
                    const double weight = std::exp(part_max - max) * part.softmax_sum.get(b, n, i, 0);
                    sum += weight;
                    for (std::int64_t d = 0; d < extents.d; ++d) {
                        out[static_cast<std::size_t>(d)] += weight * part.attention_out.get(b, n, i, d);
                    }
                }
                for (std::int64_t d = 0; d < extents.d; ++d) {
                    const double value = sum > 0.0 ? out[static_cast<std::size_t>(d)] / sum : 0.0;
                    whole.attention_out.set(b, n, i, d, value);
                }
                for (std::int64_t copy = 0; copy < 8; ++copy) {
                    whole.softmax_max.set(b, n, i, copy, max);
                    whole.softmax_sum.set(b, n, i, copy, sum > 0.0 ? sum : FLT_MAX);
                }
            }
        }
    }
    return whole;
}

}  // namespace fascore::test
