// SPDX-License-Identifier: Apache-2.0
//
// The gradient is the gradient: every element of every gradient against differences of the forward in float64, over
// problems that meet every two of these features (pairwise, the rows drawn greedily from a fixed seed):
//
//   layout · heads and lengths · mask · bias · dropout · soft cap · sink · rope parts · dlse
//
//   L = Σ attention_out ∘ dy + Σ dlse ∘ (softmax_max + log softmax_sum)
//   L' ≈ (8·(L(h) − L(−h)) − (L(2h) − L(−2h))) / 12h
//
// wrong by h⁴·L⁽⁵⁾/30 and by 1.5·2^-53·|L|/h from rounding. Values are O(1), |L| below a few hundred; with h = 2^-10
// (exact in f32 where pse and sink are multiples of 2^-8) the second is 2^-53·2^10·300 = 3e-11 and the first
// 3e-14·L⁽⁵⁾, below 1e-9 while L⁽⁵⁾ stays below 3e4: a fifth derivative along one input multiplies five factors of
// size 3.
#include <algorithm>
#include <functional>

#include "reference/problem.h"

namespace fascore::test {
namespace {

constexpr double step = 0x1p-10;
constexpr double allowed = 2e-9;

// The log-sum-exp of a row that sees nothing is its sink; without one it is no number and no part of L.
double loss(Attention& a) {
    const Status status = a.forward();
    EXPECT_TRUE(status.ok()) << status.message();
    const std::vector<double> out = a.attention_out.values();
    const std::vector<double> dy = a.dy.values();
    double sum = 0;
    for (std::size_t k = 0; k < out.size(); ++k) sum += out[k] * dy[k];
    if (!a.dlse.present()) return sum;
    for (std::int64_t b = 0; b < a.sizes.B; ++b) {
        for (std::int64_t n = 0; n < a.sizes.N1; ++n) {
            for (std::int64_t i = 0; i < a.sizes.S1; ++i) {
                const double weight = a.dlse.get(b, n, i, 0);
                const double lse = a.softmax_max.get(b, n, i, 0) + std::log(a.softmax_sum.get(b, n, i, 0));
                if (weight != 0.0) sum += weight * lse;
            }
        }
    }
    return sum;
}

// dlse = 0 where the forward saw nothing and there is no sink: there softmax_sum is FLT_MAX.
void no_dlse_on_empty_rows(Attention& a) {
    ASSERT_TRUE(a.forward().ok());
    a.dlse.fill([&](auto b, auto n, auto i, auto) {
        return a.softmax_sum.get(b, n, i, 0) > 1e38 ? 0.0 : a.dlse.get(b, n, i, 0);
    });
}

void check(Attention& a, Tensor& x, const Tensor& gradient, const char* what) {
    if (!gradient.present()) return;
    const Extents e = x.extents();
    for (std::int64_t b = 0; b < e.b; ++b) {
        for (std::int64_t n = 0; n < e.n; ++n) {
            for (std::int64_t s = 0; s < e.s; ++s) {
                for (std::int64_t d = 0; d < e.d; ++d) {
                    const double here = x.get(b, n, s, d);
                    const auto at = [&](double moved) {
                        x.set(b, n, s, d, here + moved);
                        return loss(a);
                    };
                    const double near = at(step) - at(-step);
                    const double far = at(2 * step) - at(-2 * step);
                    x.set(b, n, s, d, here);
                    ASSERT_NEAR(gradient.get(b, n, s, d), (8 * near - far) / (12 * step), allowed)
                        << what << " " << b << " " << n << " " << s << " " << d;
                }
            }
        }
    }
}

void check_all(Attention& a) {
    if (a.dlse.present()) no_dlse_on_empty_rows(a);
    ASSERT_NO_FATAL_FAILURE(a.run());
    check(a, a.query, a.dq, "dq");
    check(a, a.key, a.dk, "dk");
    check(a, a.value, a.dv, "dv");
    check(a, a.query_rope, a.dq_rope, "dq_rope");
    check(a, a.key_rope, a.dk_rope, "dk_rope");
    check(a, a.pse, a.dpse, "dpse");
    check(a, a.sink, a.dsink, "dsink");
}

// ---- the features ---------------------------------------------------------------------------------------------------

struct Choice {
    const char* name;
    std::function<void(Attention&)> apply;
};

struct Shape {
    const char* name;
    Sizes sizes;
    std::vector<std::int64_t> q_ends, k_ends;  // TND: of the same sizes as B batches
};

// B batches, or sequences that add up to as many rows; square where slopes outside TND ask for it.
const Shape shapes[] = {
    {"grouped", {2, 4, 2, 3, 5, 2, 3, 0}, {2, 2, 6}, {4, 7, 10}},
    {"square", {2, 2, 2, 4, 4, 2, 2, 0}, {3, 4, 8}, {3, 4, 8}},
    {"more_queries_than_keys", {1, 3, 1, 5, 3, 3, 2, 0}, {1, 5}, {2, 3}},
};

const Layout layouts[] = {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH, Layout::TND};

void random_mask(Attention& a, int sparse_mode, bool per_head) {
    a.params.sparse_mode = sparse_mode;
    Random random(99);
    const auto hide = [&](auto, auto, auto, auto) { return random.uniform() < 0.4 ? 1.0 : 0.0; };
    if (a.packed()) {  // one mask of [T1, T2] for all sequences
        a.atten_mask = Tensor(DType::boolean, Form::SS, {1, 1, a.sizes.S1, a.sizes.S2});
    } else {
        a.atten_mask =
            Tensor(DType::boolean, Form::BNSD, {a.sizes.B, per_head ? a.sizes.N1 : 1, a.sizes.S1, a.sizes.S2});
    }
    a.atten_mask.fill(hide);
}

std::int64_t sequences(const Attention& a) {
    return a.packed() ? static_cast<std::int64_t>(a.q_ends.size()) : a.sizes.B;
}

std::int64_t pairs(const Attention& a) {
    std::int64_t sum = 0;
    for (std::size_t b = 0; b < a.q_ends.size(); ++b) {
        sum += (a.q_ends[b] - (b > 0 ? a.q_ends[b - 1] : 0)) * (a.k_ends[b] - (b > 0 ? a.k_ends[b - 1] : 0));
    }
    return sum;
}

const Choice masks[] = {
    {"no_mask", [](Attention&) {}},
    {"mode_0", [](Attention& a) { random_mask(a, 0, true), a.params.pre_tokens = 2, a.params.next_tokens = 1; }},
    {"mode_1", [](Attention& a) { random_mask(a, 1, false); }},
    {"mode_3", [](Attention& a) { a.compressed(3); }},
    {"mode_4", [](Attention& a) { a.compressed(4, 1, 1); }},
    {"mode_6",
     [](Attention& a) {
         a.compressed(6);
         // the largest prefix that is one: all keys; for the first batch the smallest
         for (std::int64_t b = 0; b < sequences(a); ++b) {
             const auto at = static_cast<std::size_t>(b);
             const std::int64_t S1 = a.packed() ? a.q_ends[at] - (b > 0 ? a.q_ends[at - 1] : 0) : a.sizes.S1;
             const std::int64_t S2 = a.packed() ? a.k_ends[at] - (b > 0 ? a.k_ends[at - 1] : 0) : a.sizes.S2;
             const std::int64_t least = S1 == 0 ? 0 : std::max<std::int64_t>(0, S2 - S1);
             a.prefix.push_back(std::min(S2, least + b));
         }
     }},
    {"window",
     [](Attention& a) {
         a.params.rule = {MaskRule::Kind::window, 1, 2};
     }},
};

// A broadcast axis is a 1.
void bias(Attention& a, int type, bool batches, bool heads, bool rows, DType dtype = DType::f64) {
    if (!a.packed()) {
        const Sizes& s = a.sizes;
        a.with_pse(type, dtype, {batches ? s.B : 1, heads ? s.N1 : 1, rows ? s.S1 : 1, s.S2});
    } else if (rows) {
        a.with_pse(type, dtype, {1, 1, 1, a.sizes.N1 * pairs(a)}, 1);
    } else {
        a.with_pse(type, dtype, {1, 1, 1, a.sizes.N1 * a.sizes.S2}, 1);
    }
}

void slopes(Attention& a, int type, bool per_batch) {
    a.with_pse(type, DType::f32, {1, 1, per_batch ? sequences(a) : 1, a.sizes.N1}, per_batch ? 2 : 1);
    a.params.q_start_idx = 1;
    a.params.kv_start_idx = per_batch ? -2 : 0;
}

const Choice biases[] = {
    {"no_bias", [](Attention&) {}},
    {"bias_full", [](Attention& a) { bias(a, 1, true, true, true); }},
    {"bias_of_rows", [](Attention& a) { bias(a, 0, true, true, false); }},
    {"bias_of_heads", [](Attention& a) { bias(a, 1, false, true, true, DType::f32); }},
    {"bias_of_batches", [](Attention& a) { bias(a, 0, true, false, true); }},
    {"bias_of_columns", [](Attention& a) { bias(a, 1, false, false, false); }},
    {"slopes", [](Attention& a) { slopes(a, 2, false); }},
    {"slopes_per_batch", [](Attention& a) { slopes(a, 2, true); }},
    {"root_slopes", [](Attention& a) { slopes(a, 3, false); }},
    {"root_slopes_per_batch", [](Attention& a) { slopes(a, 3, true); }},
};

const Choice dropouts[] = {
    {"no_dropout", [](Attention&) {}},
    {"drop_mask",
     [](Attention& a) {
         a.params.keep_prob = 0.7;
         Random random(5);
         std::vector<std::uint8_t> bytes(80);  // more than any of these problems has pairs
         for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.bits());
         a.with_drop_mask(bytes);
     }},
    {"drawn_dropout", [](Attention& a) { a.params.keep_prob = 0.6, a.params.seed = 7, a.params.offset = 33; }},
};

const Choice caps[] = {{"no_cap", [](Attention&) {}}, {"cap", [](Attention& a) { a.params.softcap = 1.5; }}};
const Choice sinks[] = {{"no_sink", [](Attention&) {}}, {"sink", [](Attention& a) {
                                                             a.with_sink({0.25, -0.5, 1.0, 0.0});
                                                         }}};
const Choice ropes[] = {{"no_rope", [](Attention&) {}}, {"rope", [](Attention&) {}}};  // part of the sizes
const Choice dlses[] = {{"no_dlse", [](Attention&) {}}, {"dlse", [](Attention& a) { a.with_dlse(); }}};

// One choice a feature.
using Row = std::array<std::size_t, 9>;
constexpr Row counts = {std::size(layouts), std::size(shapes), std::size(masks), std::size(biases), std::size(dropouts),
                        std::size(caps),    std::size(sinks),  std::size(ropes), std::size(dlses)};

// Slopes outside TND ask for S1 = S2.
bool possible(const Row& row) { return row[3] < 6 || layouts[row[0]] == Layout::TND || row[1] == 1; }

std::string words(const Row& row) {
    std::string text(name(layouts[row[0]]));
    for (const char* word : {shapes[row[1]].name, masks[row[2]].name, biases[row[3]].name, dropouts[row[4]].name,
                             caps[row[5]].name, sinks[row[6]].name, ropes[row[7]].name, dlses[row[8]].name}) {
        text += std::string("_") + word;
    }
    return text;
}

// Rows until every possible pair of choices has been met: of 20 random rows the one that meets most new pairs.
std::vector<Row> pairwise_rows() {
    std::vector<std::array<std::size_t, 4>> missing;
    for (std::size_t f = 0; f < counts.size(); ++f) {
        for (std::size_t g = f + 1; g < counts.size(); ++g) {
            for (std::size_t u = 0; u < counts[f]; ++u) {
                for (std::size_t v = 0; v < counts[g]; ++v) missing.push_back({f, u, g, v});
            }
        }
    }
    Random random(2026);
    std::vector<Row> rows;
    while (!missing.empty()) {
        Row best{};
        std::ptrdiff_t most = 0;
        for (int attempt = 0; attempt < 200 && (attempt < 20 || most == 0); ++attempt) {
            Row row{};
            for (std::size_t f = 0; f < row.size(); ++f) {
                row[f] = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(counts[f])));
            }
            row[missing[0][0]] = missing[0][1];
            row[missing[0][2]] = missing[0][3];
            if (!possible(row)) continue;
            const std::ptrdiff_t met = std::count_if(missing.begin(), missing.end(), [&](const auto& pair) {
                return row[pair[0]] == pair[1] && row[pair[2]] == pair[3];
            });
            if (met > most) best = row;
            most = std::max(most, met);
        }
        if (most == 0) {  // the pair itself is impossible
            missing.erase(missing.begin());
            continue;
        }
        std::erase_if(missing, [&](const auto& pair) { return best[pair[0]] == pair[1] && best[pair[2]] == pair[3]; });
        rows.push_back(best);
    }
    return rows;
}

class Gradients : public ::testing::TestWithParam<Row> {};

TEST_P(Gradients, EveryElement) {
    const Row& row = GetParam();
    const Shape& shape = shapes[row[1]];
    Sizes sizes = shape.sizes;
    if (row[7] == 1) sizes.Dr = 2;
    const bool packed = layouts[row[0]] == Layout::TND;
    if (packed) {
        sizes.S1 = shape.q_ends.back();
        sizes.S2 = shape.k_ends.back();
    }
    Attention a(sizes, DType::f64, layouts[row[0]]);
    if (packed) {
        a.q_ends = shape.q_ends;
        a.k_ends = shape.k_ends;
        a.params.statistics_order = StatisticsOrder::by_token;  // rows where L looks for them
    }
    a.params.scale = 0.7;
    masks[row[2]].apply(a);
    biases[row[3]].apply(a);
    dropouts[row[4]].apply(a);
    caps[row[5]].apply(a);
    sinks[row[6]].apply(a);
    dlses[row[8]].apply(a);
    a.normal(seed_of(words(row)));
    check_all(a);
    if (HasFatalFailure()) return;
    // Plain evaluation of f64 inputs is the exact one.
    const std::vector<double> exact = a.dk.values();
    ASSERT_TRUE(a.backward(Attention::Statistics::own, Evaluation::plain).ok());
    EXPECT_EQ(a.dk.values(), exact);
    // Outputs given (again: the last ones are those of a moved input) change no more than the rounding of Δ.
    const std::vector<double> out = a.dq.values();
    ASSERT_TRUE(a.forward().ok());
    ASSERT_TRUE(a.backward(Attention::Statistics::given).ok());
    for (std::size_t k = 0; k < out.size(); ++k) EXPECT_NEAR(a.dq.values()[k], out[k], 1e-13);
}

INSTANTIATE_TEST_SUITE_P(Pairwise, Gradients, ::testing::ValuesIn(pairwise_rows()),
                         [](const auto& row) { return words(row.param); });

TEST(Gradients, EverythingAtOnce) {
    for (const int type : {0, 1, 2, 3}) {
        Attention a({2, 4, 2, 4, 4, 2, 3, 2}, DType::f64);
        a.params.scale = -0.6;
        a.compressed(4, 2, 1);
        type < 2 ? bias(a, type, false, true, true) : slopes(a, type, false);
        a.params.keep_prob = 0.8;
        a.params.softcap = 2.0;
        a.with_sink({0.25, -0.5, 1.0, 0.0}).with_dlse().normal(static_cast<std::uint64_t>(type) + 40);
        check_all(a);
    }
}

}  // namespace
}  // namespace fascore::test
