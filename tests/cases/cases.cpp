// SPDX-License-Identifier: Apache-2.0
//
// What several cases share, and the one place that lets them run on every instruction set.
#include "cases/cases.h"

#include <algorithm>
#include <cmath>

namespace fascore::test {

FASCORE_FOR_EACH_ISA(Cases);

Tensor bnsd(DType dtype, std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d) {
    return Tensor(dtype, Form::BNSD, {b, n, s, d});
}

Tensor& fill_dyadic(Tensor& tensor, Random& random) {
    return tensor.fill([&random](auto, auto, auto, auto) { return static_cast<double>(random.below(33) - 16) / 8.0; });
}

Tensor identity_value(DType dtype, std::int64_t S2) {
    Tensor value = bnsd(dtype, 1, 1, S2, S2);
    value.fill([](auto, auto, auto j, auto d) { return j == d ? 1.0 : 0.0; });
    return value;
}

std::string visible_pairs(const AttentionParams& params, const Tensor& mask, std::int64_t S1, std::int64_t S2,
                          const Options& options) {
    Scenario scenario = make_scenario(bnsd(f32, 1, 1, S1, 4).fill(0.0), bnsd(f32, 1, 1, S2, 4).fill(1.0),
                                      identity_value(f32, S2), bnsd(f32, 1, 1, S1, S2).fill(1.0), 1.0);
    const Layout layout = scenario.params.layout;
    scenario.params = params;
    scenario.params.layout = layout;
    scenario.mask = mask;
    const Results results = run_both(scenario, options);
    EXPECT_TRUE(results.dq.all_finite() && results.dk.all_finite() && results.dv.all_finite());
    std::string picture;
    for (std::int64_t i = 0; i < S1; ++i) {
        if (i > 0) picture += '/';
        double weight = 0.0;
        for (std::int64_t j = 0; j < S2; ++j) {
            const double p = results.attention_out.get(0, 0, i, j);
            picture += p > 0.0 ? '1' : '0';
            weight += p;
        }
        // All scores are equal, so what is visible shares the weight 1 equally; an empty row has none.
        EXPECT_TRUE(weight == 0.0 || std::abs(weight - 1.0) < 1e-5) << "row " << i << " has weight " << weight;
    }
    return picture;
}

Tensor mask_where(std::int64_t S1, std::int64_t S2, const std::function<bool(std::int64_t, std::int64_t)>& visible,
                  DType dtype) {
    Tensor mask(dtype, Form::SS, {1, 1, S1, S2});
    mask.fill([&visible](auto, auto, auto i, auto j) { return visible(i, j) ? 0.0 : 1.0; });
    return mask;
}

::testing::AssertionResult all_equal(const Tensor& tensor, double value) {
    for (const double element : tensor.values()) {
        if (element != value) return ::testing::AssertionFailure() << "an element is " << element << ", not " << value;
    }
    return ::testing::AssertionSuccess();
}

namespace {

/// Copies `part` into `whole` with its first row and head at (s, n).
void place_at(const Tensor& part, Tensor& whole, std::int64_t s, std::int64_t n) {
    Tensor window = whole.rows(s, part.extents().s).heads(n, part.extents().n);
    part.copy_into(window);
}

}  // namespace

Tensor stack_rows(const std::vector<Tensor>& parts) {
    Extents extents = parts.front().extents();
    extents.s = 0;
    for (const Tensor& part : parts) extents.s += part.extents().s;
    Tensor whole(parts.front().dtype(), Form::BNSD, extents);
    std::int64_t row = 0;
    for (const Tensor& part : parts) {
        place_at(part, whole, row, 0);
        row += part.extents().s;
    }
    return whole;
}

Tensor stack_heads(const std::vector<Tensor>& parts) {
    Extents extents = parts.front().extents();
    extents.n = 0;
    for (const Tensor& part : parts) extents.n += part.extents().n;
    Tensor whole(parts.front().dtype(), Form::BNSD, extents);
    std::int64_t head = 0;
    for (const Tensor& part : parts) {
        place_at(part, whole, 0, head);
        head += part.extents().n;
    }
    return whole;
}

Tensor sum_of(const std::vector<Tensor>& parts) {
    Tensor sum(f64, Form::BNSD, parts.front().extents());
    return sum.fill([&parts](auto b, auto n, auto s, auto d) {
        double total = 0.0;
        for (const Tensor& part : parts) total += part.get(b, n, s, d);
        return total;
    });
}

Tensor as_f64(const Tensor& tensor) { return sum_of({tensor}); }

Tensor as_dtype(const Tensor& tensor, DType dtype) {
    Tensor copy(dtype, tensor.form(), tensor.extents());
    return copy.fill([&tensor](auto b, auto n, auto s, auto d) { return tensor.get(b, n, s, d); });
}

Truth truth_of(const Scenario& scenario) { return {reference(scenario), reference(scenario, Evaluation::plain)}; }

void expect_i5(const Scenario& scenario, const Results& got, const Truth& truth) {
    const Case& c = scenario.problem;
    const std::int64_t group = c.N1 / c.N2;
    const double off_dq = budget(got.dq, truth.exact.dq, truth.plain.dq);
    const double off_dk = budget(got.dk, truth.exact.dk, truth.plain.dk);
    for (std::int64_t b = 0; b < c.B; ++b) {
        for (std::int64_t h = 0; h < c.N2; ++h) {
            double left = 0.0;
            double right = 0.0;
            double allowed = 0.0;
            for (std::int64_t n = h * group; n < (h + 1) * group; ++n) {
                for (std::int64_t i = 0; i < c.S1; ++i) {
                    for (std::int64_t d = 0; d < c.D; ++d) {
                        left += scenario.query.get(b, n, i, d) * got.dq.get(b, n, i, d);
                        allowed += std::abs(scenario.query.get(b, n, i, d)) * off_dq;
                    }
                }
            }
            for (std::int64_t j = 0; j < c.S2; ++j) {
                for (std::int64_t d = 0; d < c.D; ++d) {
                    right += scenario.key.get(b, h, j, d) * got.dk.get(b, h, j, d);
                    allowed += std::abs(scenario.key.get(b, h, j, d)) * off_dk;
                }
            }
            EXPECT_LE(std::abs(left - right), allowed) << "I5 of batch " << b << ", kv head " << h;
        }
    }
}

void expect_i2(const Scenario& scenario, const Results& got, double tolerance) {
    const Case& c = scenario.problem;
    const std::int64_t group = c.N1 / c.N2;
    for (std::int64_t b = 0; b < c.B; ++b) {
        for (std::int64_t h = 0; h < c.N2; ++h) {
            for (std::int64_t d = 0; d < c.Dv; ++d) {
                double left = 0.0;
                double right = 0.0;
                double size = 0.0;
                for (std::int64_t j = 0; j < c.S2; ++j) left += got.dv.get(b, h, j, d);
                for (std::int64_t n = h * group; n < (h + 1) * group; ++n) {
                    for (std::int64_t i = 0; i < c.S1; ++i) {
                        right += scenario.dy.get(b, n, i, d);
                        size += std::abs(scenario.dy.get(b, n, i, d));
                    }
                }
                ASSERT_LE(std::abs(left - right), tolerance * size) << "I2 of batch " << b << ", kv head " << h;
            }
        }
    }
}

}  // namespace fascore::test
