// SPDX-License-Identifier: Apache-2.0
//
// Every feature of the operator together with every other: problems drawn from a seed, each with its own layout, mask,
// bias, dropout, softcap, sink, rope part, log-sum-exp gradient and head counts; engine against reference.
//
//   f64    the engine's logic and nothing else: f64 rounding is all that may be left. Scores are sums of up to 50
//          products of normal numbers, so |x| stays below 40 and P is off by at most a few hundred units of 2^-53;
//          gradients are sums of at most 300 · 4 such terms. 1e-11 of the largest element covers it tenfold.
//   f32    the same draws through the kernels of the accumulate type most problems run in. The same count in units of
//          2^-24 gives 1e-4 of the largest element; measured: 2e-6.
//   16 bit inputs are rounded before the reference sees them; P and dS are rounded to 8 (11) bits on the way where the
//          products take 16-bit operands, and results once more: 2 roundings of 2^-9 on terms that may cancel, 2e-2.
//   8 bit  the reference quantises as the engine does; where f32 rounding moves a number across a rounding boundary
//          one term changes by an eighth (a quarter) of itself: rare, so the bound is on the Frobenius norm, 2e-2.
//
// The seeds are fixed: what is tested is the same on every machine. Which pairs of features they cover is asserted.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "fascore/fascore.h"
#include "support/measure.h"
#include "support/random.h"
#include "support/targets.h"

namespace fascore::test {
namespace {

// A row-major tensor of any rank.
struct Block {
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;

    Block() = default;
    Block(DType type, std::vector<std::int64_t> extents) : dtype(type), shape(std::move(extents)) {
        bytes.assign(static_cast<std::size_t>(count() * size_of(dtype)), std::byte{0xFF});
    }
    [[nodiscard]] bool present() const { return !shape.empty(); }
    [[nodiscard]] std::int64_t count() const {
        if (!present()) return 0;
        std::int64_t elements = 1;
        for (const std::int64_t extent : shape) elements *= extent;
        return elements;
    }
    [[nodiscard]] double get(std::int64_t k) const { return load_scalar(bytes.data() + k * size_of(dtype), dtype); }
    void set(std::int64_t k, double value) { store_scalar(bytes.data() + k * size_of(dtype), dtype, value); }
    template <class Make>
    Block& fill(Make make) {
        for (std::int64_t k = 0; k < count(); ++k) set(k, make());
        return *this;
    }
    [[nodiscard]] TensorView view() {
        TensorView view;
        if (!present()) return view;
        view.data = bytes.data();
        view.dtype = dtype;
        view.rank = static_cast<int>(shape.size());
        std::int64_t step = 1;
        for (std::size_t axis = shape.size(); axis-- > 0;) {
            view.shape[axis] = shape[axis];
            view.stride[axis] = step;
            step *= shape[axis];
        }
        return view;
    }
};

enum class Pse { none, full, one_row, one_head, shared, tail, slopes, root_slopes };
enum class Drop { none, bits, generated };

// What a draw is made of; `tags` names it for the pair count and the failure text.
struct Draw {
    AttentionParams params;
    std::int64_t B = 1, N1 = 1, N2 = 1, S1 = 1, S2 = 1, D = 1, Dr = 0, Dv = 1;
    std::vector<std::int64_t> q_ends, k_ends, prefix;
    Pse pse = Pse::none;
    Drop drop = Drop::none;
    bool full_mask = false, template_mask = false, sink = false, dlse = false, hides = false;
    std::set<std::string> tags;
};

constexpr Layout layouts[] = {Layout::BNSD, Layout::BSND, Layout::BSH, Layout::SBH, Layout::TND};

Draw draw(std::uint64_t seed, DType dtype) {
    Random random(seed * 7919 + 17);
    const auto pick = [&](std::initializer_list<std::int64_t> values) {
        return values.begin()[random.below(static_cast<std::int64_t>(values.size()))];
    };
    const bool eight = dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
    Draw d;
    AttentionParams& p = d.params;
    p.layout = layouts[eight ? random.below(4) : random.below(5)];
    const bool packed = p.layout == Layout::TND;
    d.tags.insert("layout " + std::string(name(p.layout)));
    d.N2 = pick({1, 2, 3});
    d.N1 = d.N2 * pick({1, 1, 2, 3});
    p.head_num = d.N1;
    d.B = pick({1, 2, 3});
    d.S1 = pick({1, 7, 33, 64, 130, 200, 300});
    d.S2 = pick({1, 5, 48, 64, 129, 210, 290});
    // Tiles that take pairs of bf16 are up to 256 × 512: some draws have several of them, and fewer heads.
    const bool large = dtype == DType::bf16 && seed % 8 == 3;
    if (large) {
        d.B = 1;
        d.N1 /= d.N2;
        d.N2 = 1;
        p.head_num = d.N1;
        d.S1 += 300;
        d.S2 += 600;
    }
    if (d.N1 != d.N2) d.tags.insert("groups");
    d.D = pick({1, 16, 24, 40, 50});
    d.Dv = pick({1, 16, 30, 40});
    if (random.below(4) == 0 && !eight) {
        d.Dr = pick({1, 8, 16});
        d.tags.insert("rope");
    }
    p.scale = random.below(5) == 0 ? -0.3 : 1.0 / std::sqrt(static_cast<double>(d.D + d.Dr));
    const std::int64_t kind = random.below(8);
    d.pse = static_cast<Pse>(kind);
    p.pse_type = static_cast<int>(random.below(2));
    if (d.pse == Pse::slopes) p.pse_type = 2;
    if (d.pse == Pse::root_slopes) p.pse_type = 3;
    if (d.pse == Pse::slopes || d.pse == Pse::root_slopes) {
        p.q_start_idx = random.below(9) - 4;
        p.kv_start_idx = random.below(9) - 4;
        if (!packed) d.S2 = d.S1;
    }
    if (d.pse == Pse::tail && (packed || seed % 8 != 0)) d.pse = Pse::full;  // S ≥ 1024: few
    if (d.pse == Pse::tail) {
        d.S1 = d.S2 = 1024 + pick({6, 130});
        d.B = pick({1, 2});
        d.N2 = 1;
        d.N1 = 2;
        p.head_num = 2;
    }
    if (packed) {
        d.S1 = d.S2 = 0;
        std::int64_t q = 0;
        std::int64_t k = 0;
        for (std::int64_t b = 0; b < d.B; ++b) {
            q += pick({0, 1, 9, 60, 140}) + (large ? 300 : 0);
            k += pick({0, 3, 20, 64, 150}) + (large ? 600 : 0);
            d.q_ends.push_back(q);
            d.k_ends.push_back(k);
        }
        if (q == 0) d.q_ends.back() = q = 5;
        if (k == 0) d.k_ends.back() = k = 11;
        d.S1 = q + random.below(3);
        d.S2 = k;
        p.statistics_order = random.below(2) == 0 ? StatisticsOrder::by_sequence : StatisticsOrder::by_token;
    }
    if (d.pse == Pse::one_head || d.pse == Pse::shared || d.pse == Pse::full || d.pse == Pse::one_row) {
        if (packed && d.pse != Pse::one_row) d.pse = Pse::full;
    }
    d.tags.insert("pse " + std::to_string(static_cast<int>(d.pse)));

    // Masks and rules.
    std::int64_t rule = random.below(9);
    if (packed && random.below(3) == 0) rule = 6;  // modes 7 and 8 exist there alone
    p.pre_tokens = pick({3, 40, 200});
    p.next_tokens = pick({0, 5, 90});
    switch (d.pse == Pse::tail ? 2 : rule) {
        case 0:
        case 1:
            p.sparse_mode = static_cast<int>(rule);
            d.full_mask = !packed;
            break;
        case 2:
        case 3:
        case 4:
            p.sparse_mode = static_cast<int>(d.pse == Pse::tail ? 2 : rule);
            d.template_mask = true;
            break;
        case 5:
            p.sparse_mode = 6;
            d.template_mask = true;
            for (std::int64_t b = 0; b < d.B; ++b) {
                std::int64_t s1 = d.S1;
                std::int64_t s2 = d.S2;
                if (packed) {
                    const auto at = static_cast<std::size_t>(b);
                    s1 = d.q_ends[at] - (b > 0 ? d.q_ends[at - 1] : 0);
                    s2 = d.k_ends[at] - (b > 0 ? d.k_ends[at - 1] : 0);
                }
                const std::int64_t least = std::max<std::int64_t>(0, s2 - s1);
                d.prefix.push_back(least + random.below(s2 - least + 1));
            }
            break;
        case 6:
            if (packed) {
                p.sparse_mode = pick({7, 8}) == 7 ? 7 : 8;
                p.pre_tokens = 400;
                p.next_tokens = 0;
                d.template_mask = true;
                if (d.pse != Pse::none && d.pse != Pse::slopes && d.pse != Pse::root_slopes) d.pse = Pse::none;
                if (d.pse != Pse::none) {  // both ask for rules the draw does not follow
                    d.pse = Pse::none;
                    p.pse_type = 1;
                }
            } else {
                p.rule = {MaskRule::Kind::window, pick({-1, 0, 30}), pick({-1, 0, 30})};
            }
            break;
        case 7: p.rule.kind = MaskRule::Kind::causal_bottom_right; break;
        default: break;
    }
    d.tags.insert("mode " + std::to_string(d.full_mask || d.template_mask ? p.sparse_mode : -1));

    d.drop = static_cast<Drop>(random.below(3));
    if (d.drop != Drop::none) {
        p.keep_prob = random.below(2) == 0 ? 0.9 : 0.5;
        p.seed = random.bits();
        p.offset = static_cast<std::uint64_t>(random.below(40));
    }
    d.tags.insert("drop " + std::to_string(static_cast<int>(d.drop)));
    if (random.below(3) == 0) {
        p.softcap = 3.0;
        d.tags.insert("softcap");
    }
    if ((d.sink = random.below(3) == 0)) d.tags.insert("sink");
    if ((d.dlse = random.below(3) == 0)) d.tags.insert("dlse");
    d.hides = random.below(3) == 0 && (d.pse == Pse::full || d.pse == Pse::one_row);
    if (d.hides) d.tags.insert("-inf");
    return d;
}

std::vector<std::int64_t> data_shape(const Draw& d, std::int64_t N, std::int64_t S, std::int64_t D) {
    switch (d.params.layout) {
        case Layout::BNSD: return {d.B, N, S, D};
        case Layout::BSND: return {d.B, S, N, D};
        case Layout::BSH: return {d.B, S, N * D};
        case Layout::SBH: return {S, d.B, N * D};
        case Layout::TND: break;
    }
    return {S, N, D};
}

// The tensors of a draw, and everything that comes out.
struct Call {
    Draw d;
    DType dtype;
    Block query, key, value, dy, query_rope, key_rope, mask, pse, drop, sink, dlse, scale_q, scale_k, scale_v, scale_dy;
    Block out, max, sum, dq, dk, dv, dq_rope, dk_rope, dpse, dsink;

    Call(const Draw& draw_, DType type, std::uint64_t seed) : d(draw_), dtype(type) {
        Random random(seed + 4711);
        const auto normal = [&] { return random.normal(); };
        const bool eight = dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
        query = Block(dtype, data_shape(d, d.N1, d.S1, d.D)).fill(normal);
        key = Block(dtype, data_shape(d, d.N2, d.S2, d.D)).fill(normal);
        value = Block(dtype, data_shape(d, d.N2, d.S2, d.Dv)).fill(normal);
        dy = Block(dtype, data_shape(d, d.N1, d.S1, d.Dv)).fill(normal);
        if (d.Dr > 0) {
            query_rope = Block(dtype, data_shape(d, d.N1, d.S1, d.Dr)).fill(normal);
            key_rope = Block(dtype, data_shape(d, d.N2, d.S2, d.Dr)).fill(normal);
        }
        if (d.full_mask)
            mask = Block(DType::u8, {d.B, 1, d.S1, d.S2}).fill([&] { return random.below(4) == 0 ? 1.0 : 0.0; });
        if (d.template_mask) {
            mask = Block(DType::u8, {d.params.sparse_mode == 6 ? 3072 : 2048, 2048}).fill([] { return 1.0; });
        }
        const DType pse_dtype = eight ? DType::f32 : random.below(2) == 0 && dtype != DType::f64 ? DType::f32 : dtype;
        const double hidden = d.hides ? 0.2 : 0.0;
        const auto bias = [&] { return random.uniform() < hidden ? -INFINITY : random.normal(); };
        std::int64_t pairs = 0;
        for (std::size_t b = 0; b < d.q_ends.size(); ++b) {
            pairs += (d.q_ends[b] - (b > 0 ? d.q_ends[b - 1] : 0)) * (d.k_ends[b] - (b > 0 ? d.k_ends[b - 1] : 0));
        }
        const bool packed = d.params.layout == Layout::TND;
        switch (d.pse) {
            case Pse::none: break;
            case Pse::full:
                pse = Block(pse_dtype,
                            packed ? std::vector<std::int64_t>{d.N1 * pairs}
                                   : std::vector<std::int64_t>{random.below(2) == 0 ? d.B : 1, d.N1, d.S1, d.S2})
                          .fill(bias);
                break;
            case Pse::one_row:
                pse =
                    Block(pse_dtype, packed ? std::vector<std::int64_t>{d.N1 * d.S2}
                                            : std::vector<std::int64_t>{random.below(2) == 0 ? d.B : 1, d.N1, 1, d.S2})
                        .fill(bias);
                break;
            case Pse::one_head: pse = Block(pse_dtype, {d.B, 1, d.S1, d.S2}).fill(bias); break;
            case Pse::shared: pse = Block(pse_dtype, {1, 1, d.S1, d.S2}).fill(bias); break;
            case Pse::tail:
                pse = Block(pse_dtype, {random.below(2) == 0 ? d.B : 1, d.N1, 1024, d.S2}).fill(normal);
                break;
            case Pse::slopes:
            case Pse::root_slopes:
                pse = Block(DType::f32, random.below(2) == 0 ? std::vector<std::int64_t>{d.N1}
                                                             : std::vector<std::int64_t>{d.B, d.N1})
                          .fill([&] { return random.uniform(0.0, 0.5); });
                break;
        }
        if (d.drop == Drop::bits) {
            const std::int64_t bits = d.N1 * (packed ? pairs : d.B * d.S1 * d.S2);
            drop = Block(DType::u8, {bits / 8 + 1}).fill([&] { return static_cast<double>(random.below(256)); });
        }
        const DType statistic = dtype == DType::f64 ? DType::f64 : DType::f32;
        if (d.sink) sink = Block(statistic, {d.N1}).fill(normal);
        std::vector<std::int64_t> rows{d.B, d.N1, d.S1};
        if (packed) rows = {d.S1, d.N1};
        if (d.dlse) dlse = Block(statistic, rows).fill(normal);
        if (eight) {
            const auto factor = [&] { return random.uniform(0.5, 1.5); };
            scale_q = Block(DType::f32, {d.B, d.N1, (d.S1 + 127) / 128, 1}).fill(factor);
            scale_k = Block(DType::f32, {d.B, d.N2, (d.S2 + 127) / 128, 1}).fill(factor);
            scale_v = Block(DType::f32, {d.B, d.N2, (d.S2 + 127) / 128, 1}).fill(factor);
            scale_dy = Block(DType::f32, {d.B, d.N1, (d.S1 + 127) / 128, 1}).fill(factor);
        }
        // attention_out in f32 for narrow inputs: Δ is dy·attention_out, and an O rounded to 16 bits moves a whole row
        // of dx by its error, which a sum over a long row (a slope's gradient: times the distance) makes large. That is
        // the operator's own, not the engine's: the reference keeps O in f64.
        make_outputs(eight ? DType::f32 : dtype, statistic, pse.dtype);
        if (dtype == DType::bf16 || dtype == DType::f16) out = Block(DType::f32, dy.shape);
    }

    void make_outputs(DType type, DType statistic, DType pse_type) {
        std::vector<std::int64_t> rows{d.B, d.N1, d.S1, 8};
        if (d.params.layout == Layout::TND) rows = {d.S1, d.N1, 8};
        max = Block(statistic, rows);
        sum = Block(statistic, rows);
        out = Block(type, dy.shape);
        dq = Block(type, query.shape);
        dk = Block(type, key.shape);
        dv = Block(type, value.shape);
        if (d.Dr > 0) {
            dq_rope = Block(type, query_rope.shape);
            dk_rope = Block(type, key_rope.shape);
        }
        if (pse.present()) dpse = Block(pse_type, pse.shape);
        if (sink.present()) dsink = Block(statistic, sink.shape);
    }

    [[nodiscard]] AttentionParams params() const {
        AttentionParams p = d.params;
        if (p.layout == Layout::TND) {
            p.actual_seq_qlen = d.q_ends;
            p.actual_seq_kvlen = d.k_ends;
        }
        p.prefix = d.prefix;
        return p;
    }
    template <class In>
    void inputs(In& in) {
        in.query = query.view();
        in.key = key.view();
        in.value = value.view();
        in.query_rope = query_rope.view();
        in.key_rope = key_rope.view();
        in.atten_mask = mask.view();
        in.pse = pse.view();
        in.drop_mask = drop.view();
        in.sink = sink.view();
        in.d_scale_q = scale_q.view();
        in.d_scale_k = scale_k.view();
        in.d_scale_v = scale_v.view();
    }

    // Runs forward and gradient by two callables of the public calls' form.
    template <class Forward, class Backward>
    Status run(Forward forward, Backward backward) {
        ForwardInputs in;
        inputs(in);
        ForwardOutputs to;
        to.attention_out = out.view();
        to.softmax_max = max.view();
        to.softmax_sum = sum.view();
        if (Status s = forward(params(), in, to); !s.ok()) return s;
        BackwardInputs back;
        inputs(back);
        back.dy = dy.view();
        back.softmax_max = max.view();
        back.softmax_sum = sum.view();
        back.attention_out = out.view();
        back.dlse = dlse.view();
        back.d_scale_dy = scale_dy.view();
        BackwardOutputs gradients;
        gradients.dq = dq.view();
        gradients.dk = dk.view();
        gradients.dv = dv.view();
        gradients.dq_rope = dq_rope.view();
        gradients.dk_rope = dk_rope.view();
        gradients.dpse = dpse.view();
        gradients.dsink = dsink.view();
        return backward(params(), back, gradients);
    }
    std::vector<std::pair<const char*, Block*>> outputs() {
        return {{"attention_out", &out},
                {"softmax_max", &max},
                {"softmax_sum", &sum},
                {"dq", &dq},
                {"dk", &dk},
                {"dv", &dv},
                {"dq_rope", &dq_rope},
                {"dk_rope", &dk_rope},
                {"dpse", &dpse},
                {"dsink", &dsink}};
    }
};

Status run_engine(Call& call, const std::string& isa, int threads) {
    Execution execution;
    execution.isa = isa;
    execution.threads = threads;
    return call.run([&](const AttentionParams& p, const ForwardInputs& in,
                        const ForwardOutputs& out) { return attention_forward(p, in, out, execution); },
                    [&](const AttentionParams& p, const BackwardInputs& in, const BackwardOutputs& out) {
                        return attention_backward(p, in, out, execution);
                    });
}

Status run_reference(Call& call) {
    return call.run([&](const AttentionParams& p, const ForwardInputs& in,
                        const ForwardOutputs& out) { return reference_forward(p, in, out); },
                    [&](const AttentionParams& p, const BackwardInputs& in, const BackwardOutputs& out) {
                        return reference_backward(p, in, out);
                    });
}

struct Bound {
    double largest;    // max |error| / max |exact|
    double frobenius;  // ‖error‖ / ‖exact‖
};

void expect_close(const Block& got, const Block& exact, const Bound& bound, double scale, const std::string& what) {
    double error = 0;
    double largest = 0;
    double error_2 = 0;
    double exact_2 = 0;
    for (std::int64_t k = 0; k < exact.count(); ++k) {
        const double e = exact.get(k);
        const double g = got.get(k);
        ASSERT_FALSE(std::isnan(g)) << what << " element " << k << " is NaN, exact " << e;
        if (g == e || std::fabs(e) > 1e38) {  // the statistics of a row that sees nothing
            ASSERT_FLOAT_EQ(static_cast<float>(g), static_cast<float>(e)) << what << " element " << k;
            continue;
        }
        error = std::max(error, std::fabs(g - e));
        largest = std::max(largest, std::fabs(e));
        error_2 += (g - e) * (g - e);
        exact_2 += e * e;
    }
    // Gradients that cancel entirely (one visible key: P = 1, dS = 0 but for rounding) are compared on the scale given.
    largest = std::max(largest, scale);
    exact_2 = std::max(exact_2, scale > 1 ? scale * scale * static_cast<double>(exact.count()) : 1.0);
    // What is stored in another dtype than the inputs is rounded to it once more.
    const double stored = unit_roundoff(got.dtype);
    EXPECT_LE(error, std::max(bound.largest, stored) * largest) << what;
    EXPECT_LE(std::sqrt(error_2), std::max(bound.frobenius, stored) * std::sqrt(exact_2)) << what;
}

class Features : public ForEachIsa {
  protected:
    void check(DType dtype, std::uint64_t first, std::uint64_t count, const Bound& bound) {
        // The best table takes every draw; the others, which share the engine with it, a third.
        const std::uint64_t step = isa() == runnable_isas().front() ? 1 : 3;
        for (std::uint64_t seed = first; seed < first + count; seed += step) {
            const Draw d = draw(seed, dtype);
            std::string words = "seed " + std::to_string(seed) + " " + std::string(name(dtype)) + ":";
            for (const std::string& tag : d.tags) words += " [" + tag + "]";
            words += " B" + std::to_string(d.B) + " N" + std::to_string(d.N1) + "/" + std::to_string(d.N2) + " S" +
                     std::to_string(d.S1) + "/" + std::to_string(d.S2) + " D" + std::to_string(d.D) + "+" +
                     std::to_string(d.Dr) + "/" + std::to_string(d.Dv);
            SCOPED_TRACE(words);
            Call got(d, dtype, seed);
            Call exact(d, dtype, seed);
            exact.make_outputs(DType::f64, DType::f64, DType::f64);
            const Status status = run_engine(got, isa(), 1);
            ASSERT_TRUE(status.ok()) << status.message();
            const Status by_reference = run_reference(exact);
            ASSERT_TRUE(by_reference.ok()) << by_reference.message();
            const auto results = got.outputs();
            const auto wanted = exact.outputs();
            for (std::size_t k = 0; k < results.size(); ++k) {
                // A slope's gradient adds up every pair of its heads, in which Σ_j dx = 0 has cancelled but for the
                // error of Δ: as many of those as there are rows, at random signs.
                const bool sums_rows = results[k].second == &got.dpse && d.params.pse_type >= 2;
                const double scale = sums_rows ? std::sqrt(static_cast<double>(d.B * d.S1)) : 1.0;
                expect_close(*results[k].second, *wanted[k].second, bound, scale, results[k].first);
            }
            // The same bits from several threads.
            Call again(d, dtype, seed);
            ASSERT_TRUE(run_engine(again, isa(), seed % 2 == 0 ? 3 : 2).ok());
            const auto repeated = again.outputs();
            for (std::size_t k = 0; k < results.size(); ++k) {
                EXPECT_EQ(results[k].second->bytes, repeated[k].second->bytes) << results[k].first;
            }
            if (HasFailure()) return;
        }
    }
};

TEST_P(Features, Float64) { check(DType::f64, 0, 150, {1e-11, 1e-11}); }
TEST_P(Features, Float32) { check(DType::f32, 150, 120, {1e-4, 1e-4}); }
TEST_P(Features, Bfloat16) { check(DType::bf16, 270, 60, {4e-2, 2e-2}); }
TEST_P(Features, Float16) { check(DType::f16, 330, 40, {4e-2, 2e-2}); }
TEST_P(Features, Float8E4m3) { check(DType::f8e4m3, 370, 40, {0.5, 2e-2}); }
TEST_P(Features, Float8E5m2) { check(DType::f8e5m2, 410, 40, {0.5, 2e-2}); }

FASCORE_FOR_EACH_ISA(Features);

// Every two tags that can meet do so in some draw of the list above.
TEST(FeaturesCoverage, EveryPairMeets) {
    std::set<std::string> tags;
    std::set<std::pair<std::string, std::string>> pairs;
    for (std::uint64_t seed = 0; seed < 370; ++seed) {
        const Draw d = draw(seed, seed < 150   ? DType::f64
                                  : seed < 270 ? DType::f32
                                  : seed < 330 ? DType::bf16
                                               : DType::f16);
        tags.insert(d.tags.begin(), d.tags.end());
        for (const std::string& a : d.tags) {
            for (const std::string& b : d.tags) pairs.emplace(a, b);
        }
    }
    const auto kind = [](const std::string& tag) { return tag.substr(0, tag.find(' ')); };
    // What cannot meet: two values of one kind, and what the rules of a form exclude.
    const auto excluded = [&](const std::string& a, const std::string& b) {
        if (kind(a) == kind(b)) return true;
        const auto both = [&](const char* x, const char* y) { return (a == x && b == y) || (a == y && b == x); };
        const bool packed = a == "layout TND" || b == "layout TND";
        const bool outer = a == "mode 7" || a == "mode 8" || b == "mode 7" || b == "mode 8";
        if (packed && (both("layout TND", "mode 0") || both("layout TND", "mode 1"))) return true;
        if (outer && !packed && (kind(a) == "layout" || kind(b) == "layout")) return true;
        if (kind(a) == "pse" || kind(b) == "pse" || a == "-inf" || b == "-inf") {
            const std::string& pse = kind(a) == "pse" ? a : b;
            if (outer || pse == "pse 5" || a == "-inf" || b == "-inf") return true;
            return packed && (pse == "pse 3" || pse == "pse 4");
        }
        return false;
    };
    std::string missing;
    for (const std::string& a : tags) {
        for (const std::string& b : tags) {
            if (a < b && !excluded(a, b) && pairs.count({a, b}) == 0) missing += a + " with " + b + "; ";
        }
    }
    EXPECT_EQ(missing, "");
    EXPECT_GE(tags.size(), 25U);
}

}  // namespace
}  // namespace fascore::test
