// SPDX-License-Identifier: Apache-2.0
//
// SHP: strides, views of wider buffers, head sizes off the grid, 32-bit offsets, empty extents, tails.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "cases/cases.h"

namespace fascore::test {
namespace {

TEST_P(Cases, SHP_02_key_and_value_are_halves_of_one_buffer) {
    for (const DType dtype : {f32, f16}) {
        for (const std::int64_t S1 : {1, 5}) {
            const Case problem{.name = "SHP_02",
                               .B = 2,
                               .N1 = 16,
                               .N2 = 1,
                               .S1 = S1,
                               .S2 = 16,
                               .D = 128,
                               .Dv = 128,
                               .dtype = dtype,
                               .mask = S1 == 1 ? MaskShape::one1ss : MaskShape::none,
                               .sparse_mode = 1};
            Scenario s = make_scenario(problem);
            const Results expected = run_both(s, options());
            // [B, S2, 2·D]: the left half of a row is a key, the right half a value.
            const auto memory = Memory::heap(static_cast<std::size_t>(2 * 16 * 256 * size_of(dtype)));
            Tensor key(dtype, Form::BNSD, {2, 1, 16, 128}, {16 * 256, 0, 256, 1}, memory, 0);
            Tensor value(dtype, Form::BNSD, {2, 1, 16, 128}, {16 * 256, 0, 256, 1}, memory, 128);
            s.key.copy_into(key), s.value.copy_into(value);
            s.key = key, s.value = value;
            expect_same_bits(run_both(s, options()), expected);
        }
    }
}

TEST_P(Cases, SHP_03_only_some_operands_are_transposed_views) {
    const Case problem{
        .name = "SHP_03", .B = 2, .N1 = 16, .N2 = 16, .S1 = 62, .S2 = 62, .D = 128, .Dv = 128, .dtype = bf16};
    const Scenario s = make_scenario(problem);
    const Results expected = run_both(s, options(2));
    const Extents extents = s.query.extents();
    // Steps of BSND and SBND memory, and row-major memory that starts 1 or 3 elements late.
    const Steps bsnd = packed_steps(Form::BSND, extents);
    const Steps sbnd = packed_steps(Form::SBH, extents);
    for (unsigned combination = 1; combination < 8; ++combination) {
        for (const Steps& steps : {bsnd, sbnd}) {
            SCOPED_TRACE(combination);
            Scenario view = s;
            if ((combination & 1U) != 0) view.query = s.query.copied_to(Form::BNSD, steps);
            if ((combination & 2U) != 0) view.key = s.key.copied_to(Form::BNSD, steps);
            if ((combination & 4U) != 0) view.value = s.value.copied_to(Form::BNSD, steps);
            expect_same_bits(run_both(view, options(2)), expected);
        }
    }
    for (const std::int64_t offset : {1, 3}) {
        const auto late = [&](const Tensor& tensor) {
            const auto memory = Memory::heap(static_cast<std::size_t>((tensor.extents().count() + offset) * 2));
            Tensor moved(bf16, Form::BNSD, extents, packed_steps(Form::BNSD, extents), memory, offset);
            tensor.copy_into(moved);
            return moved;
        };
        const Scenario view = make_scenario(late(s.query), late(s.key), late(s.value), late(s.dy), s.params.scale);
        expect_same_bits(run_both(view, options(2)), expected);
    }
}

TEST_P(Cases, SHP_05_layout_of_dy) {
    const Case problem{.name = "SHP_05", .B = 2, .N1 = 4, .N2 = 4, .S1 = 49, .S2 = 49, .D = 32, .Dv = 32};
    Scenario s = make_scenario(problem);
    const Results given = run_forward(s, options());
    const Results expected = run_backward(s, given, options());
    const Tensor dy = s.dy;
    const Extents extents = dy.extents();
    for (const Tensor& view : {dy.copied_to(Form::BNSD, packed_steps(Form::BSND, extents)),
                               dy.copied_to(Form::BNSD, packed_steps(Form::SBH, extents)),
                               dy.rearranged(Form::BNSD, Arrangement::column_slice)}) {
        s.dy = view;
        expect_same_gradients(run_backward(s, given, options()), expected);
    }
    // All ones by one element: as a materialised tensor of ones, and every column of dv is Σ_i P.
    Tensor one = bnsd(f32, 1, 1, 1, 1).fill(1.0);
    s.dy = Tensor(f32, Form::BNSD, extents, Steps{}, one.memory(), one.origin());
    const Results broadcast = run_backward(s, given, options());
    s.dy = bnsd(f32, 2, 4, 49, 32).fill(1.0);
    expect_same_gradients(broadcast, run_backward(s, given, options()));
    for (std::int64_t d = 1; d < 32; ++d) {
        for (std::int64_t j = 0; j < 49; ++j) {
            EXPECT_EQ(broadcast.dv.get(1, 2, j, d), broadcast.dv.get(1, 2, j, 0));
        }
    }
}

TEST_P(Cases, SHP_07_each_operand_has_its_own_row_stride) {
    // Every second row for one operand at a time; then every operand at the very end of its pages, so that one access
    // behind it ends the program.
    for (const DType dtype : {f32, bf16, f16, f64}) {
        const Case problem{.name = "SHP_07", .N1 = 2, .N2 = 2, .S1 = 17, .S2 = 70, .D = 19, .Dv = 19, .dtype = dtype};
        const Scenario s = make_scenario(problem);
        const Results expected = run_both(s, options());
        for (const auto member : {&Scenario::query, &Scenario::key, &Scenario::value, &Scenario::dy}) {
            Scenario view = s;
            view.*member = (s.*member).rearranged(Form::BNSD, Arrangement::second_rows);
            expect_same_bits(run_both(view, options()), expected);
        }
        const auto fenced = [&](const Tensor& tensor) {
            const Extents& extents = tensor.extents();
            const auto memory = Memory::fenced(static_cast<std::size_t>(extents.count() * size_of(dtype)));
            Tensor moved(dtype, Form::BNSD, extents, packed_steps(Form::BNSD, extents), memory, 0);
            tensor.copy_into(moved);
            return moved;
        };
        const Scenario edge =
            make_scenario(fenced(s.query), fenced(s.key), fenced(s.value), fenced(s.dy), s.params.scale);
        Results results = make_outputs(edge);
        results.attention_out = fenced(results.attention_out);
        results.dq = fenced(results.dq), results.dk = fenced(results.dk), results.dv = fenced(results.dv);
        ASSERT_TRUE(forward(edge, results, options()).ok());
        ASSERT_TRUE(backward(edge, results, options()).ok());
        expect_same_bits(results, expected);
    }
}

TEST_P(Cases, SHP_08_slices_of_one_fused_buffer) {
    // query, key and value are slices of one projection, and the gradients go into slices of one gradient buffer that
    // starts as NaN. Right: EXACT as from separate tensors; every element of the buffer written.
    constexpr std::int64_t T = 128, N = 2;
    for (const std::int64_t D : {64, 128, 256}) {
        const Case problem{.name = "SHP_08",
                           .N1 = N,
                           .N2 = N,
                           .S1 = T,
                           .S2 = T,
                           .D = D,
                           .Dv = D,
                           .dtype = bf16,
                           .layout = Layout::BSND};
        Scenario s = make_scenario(problem);
        const Results expected = run_both(s, options());
        const Scenario separate = s;
        struct Place {
            Steps steps;
            std::int64_t part;  // elements from one of the three to the next
        };
        for (const Place& place : {Place{{0, D, 3 * N * D, 1}, N * D},     // [T, 3, N, D]
                                   Place{{0, 3 * D, 3 * N * D, 1}, D}}) {  // [T, N, 3, D]
            const auto bytes = static_cast<std::size_t>(T * 3 * N * D * 2);
            const auto data = Memory::heap(bytes);
            const auto gradient = Memory::heap(bytes);
            std::fill_n(gradient->data(), bytes, std::byte{0xFF});
            const auto slice = [&](const std::shared_ptr<Memory>& memory, std::int64_t part) {
                return Tensor(bf16, Form::BSND, {1, N, T, D}, place.steps, memory, part * place.part);
            };
            s.query = slice(data, 0), s.key = slice(data, 1), s.value = slice(data, 2);
            separate.query.copy_into(s.query), separate.key.copy_into(s.key), separate.value.copy_into(s.value);
            Results results = make_outputs(s);
            results.dq = slice(gradient, 0), results.dk = slice(gradient, 1), results.dv = slice(gradient, 2);
            ASSERT_TRUE(forward(s, results, options()).ok());
            const Status status = backward(s, results, options());
            ASSERT_TRUE(status.ok()) << status.message();
            expect_same_bits(results, expected);
            EXPECT_TRUE(gradient->canaries_intact());
        }
    }
}

/// The largest error of each column is no larger than what the plain evaluation's largest of all columns allows: the
/// columns have one distribution, and a maximum over so few rows of one column would scatter.
void expect_columns(const char* what, const Tensor& got, const Tensor& exact, double allowed) {
    for (std::int64_t d = 0; d < got.extents().d; ++d) {
        for (std::int64_t s = 0; s < got.extents().s; ++s) {
            ASSERT_LE(std::abs(got.get(0, 0, s, d) - exact.get(0, 0, s, d)), allowed)
                << what << " row " << s << " column " << d;
        }
    }
}

std::vector<std::int64_t> head_sizes_off_the_grid() {
    std::vector<std::int64_t> sizes;
    for (std::int64_t D = 1; D <= 40; ++D) sizes.push_back(D);
    for (const std::int64_t D : {59, 63, 65, 72, 80, 96, 104, 120, 136, 160, 192, 200, 255, 256, 257, 768}) {
        sizes.push_back(D);
    }
    return sizes;
}

TEST_P(Cases, SHP_09_head_sizes_off_the_grid) {
    for (const DType dtype : {f32, bf16}) {
        for (const std::int64_t D : head_sizes_off_the_grid()) {
            SCOPED_TRACE(std::string(fascore::name(dtype)) + " D " + std::to_string(D));
            Case problem{.name = "SHP_09", .S1 = 37, .S2 = 53, .D = D, .Dv = D, .dtype = dtype};
            problem.arrangement = Arrangement::padded_rows;  // bytes beyond D are checked
            const Scenario s = make_scenario(problem);
            static std::map<std::pair<DType, std::int64_t>, Truth> known;  // shared by the instruction sets
            const auto [truth, fresh] = known.try_emplace({dtype, D});
            if (fresh) truth->second = truth_of(s);
            const Results& exact = truth->second.exact;
            const Results& plain = truth->second.plain;
            const Results got = run_both(s, options());
            expect_columns("out", got.attention_out, exact.attention_out,
                           budget(got.attention_out, exact.attention_out, plain.attention_out));
            expect_columns("dq", got.dq, exact.dq, budget(got.dq, exact.dq, plain.dq));
            expect_columns("dk", got.dk, exact.dk, budget(got.dk, exact.dk, plain.dk));
            expect_columns("dv", got.dv, exact.dv, budget(got.dv, exact.dv, plain.dv));
            if (HasFailure()) return;
        }
    }
}

TEST_P(Cases, SHP_09_all_signal_in_the_last_column) {
    // A kernel that drops the last columns sees nothing here. Columns without signal stay EXACT 0. The one that has
    // some holds so few numbers that the largest error is a single draw: the factor is the 6 of support/measure.h.
    for (const DType dtype : {f32, bf16}) {
        for (const std::int64_t D : head_sizes_off_the_grid()) {
            SCOPED_TRACE(std::string(fascore::name(dtype)) + " D " + std::to_string(D));
            Scenario s =
                make_scenario({.name = "SHP_09", .S1 = 37, .S2 = 53, .D = D, .Dv = D, .dtype = dtype, .scale = 1.0});
            for (Tensor* tensor : {&s.query, &s.key, &s.value}) {
                Tensor old = *tensor;
                tensor->fill([&](auto b, auto n, auto r, auto d) { return d + 1 == D ? old.get(b, n, r, d) : 0.0; });
            }
            const Results got = run_both(s, options());
            const Truth truth = truth_of(s);
            const auto check = [&](const char* what, const Tensor& result, const Tensor& exact, const Tensor& plain) {
                expect_columns(what, result, exact, 6.0 * measure(plain, exact).max_abs + ulp(exact.max_abs(), dtype));
            };
            check("out", got.attention_out, truth.exact.attention_out, truth.plain.attention_out);
            check("dq", got.dq, truth.exact.dq, truth.plain.dq);
            check("dk", got.dk, truth.exact.dk, truth.plain.dk);
            check("dv", got.dv, truth.exact.dv, truth.plain.dv);
            for (const Tensor* tensor : {&got.attention_out, &got.dq, &got.dk}) {
                for (std::int64_t r = 0; r < tensor->extents().s; ++r) {
                    for (std::int64_t d = 0; d + 1 < D; ++d) ASSERT_EQ(tensor->get(0, 0, r, d), 0.0);
                }
            }
            EXPECT_GT(got.dq.max_abs(), 0.0);
            EXPECT_GT(got.attention_out.max_abs(), 0.0);
            if (HasFailure()) return;
        }
    }
}

TEST_P(Cases, SHP_10_value_has_another_head_size) {
    for (const auto& [D, Dv] : {std::pair<std::int64_t, std::int64_t>{4, 2}, {32, 24}, {2, 4}, {1, 64}, {192, 128}}) {
        for (const DType dtype : {f32, bf16}) {
            const Case problem{.name = "SHP_10", .N1 = 2, .N2 = 2, .D = D, .Dv = Dv, .dtype = dtype};
            const Scenario s = make_scenario(problem);
            SCOPED_TRACE(describe(problem));
            Options run = options();
            const Results got = run_both(s, run);
            const Truth truth = truth_of(s);
            expect_budget(s, got, truth.exact, truth.plain);
            run.workspace_fill = std::byte{0x41};
            expect_same_bits(run_both(s, run), got);
        }
    }
}

TEST_P(Cases, SHP_12_offsets_beyond_32_bits) {
    // Rows (or batches) 2^30 + 1 elements apart, in address space of which only the pages in use exist. Right: EXACT as
    // from packed tensors.
    constexpr std::int64_t far = (std::int64_t{1} << 30) + 1;
    const auto memory = Memory::reserved(static_cast<std::size_t>(5 * far * 4));
    if (memory == nullptr) GTEST_SKIP() << "the system grants no 20 GiB of address space";
    for (const bool batches : {false, true}) {
        const std::int64_t B = batches ? 5 : 1, S = batches ? 3 : 5, D = 8;
        const Case problem{.name = "SHP_12", .B = B, .S1 = S, .S2 = S, .D = D, .Dv = D};
        Scenario s = make_scenario(problem);
        const Results expected = run_both(s, options());
        std::int64_t next = 0;  // tensors lie side by side in the gaps of each other
        const auto spread = [&] {
            next += 4096;
            return Tensor(f32, Form::BNSD, {B, 1, S, D}, batches ? Steps{far, 0, D, 1} : Steps{0, 0, far, 1}, memory,
                          next);
        };
        for (Tensor* tensor : {&s.query, &s.key, &s.value, &s.dy}) {
            Tensor target = spread();
            tensor->copy_into(target);
            *tensor = target;
        }
        Results results = make_outputs(s);
        for (Tensor* tensor : {&results.attention_out, &results.dq, &results.dk, &results.dv}) *tensor = spread();
        Status status = forward(s, results, options());
        ASSERT_TRUE(status.ok()) << status.message();
        status = backward(s, results, options());
        ASSERT_TRUE(status.ok()) << status.message();
        expect_same_bits(results, expected);
    }
}

TEST_P(Cases, SHP_14_every_extent_zero) {
    // Each extent 0 with the others 2: no crash, nothing left as it was. S2 = 0 (or N2 = 0): out = 0, dq = 0,
    // statistics 0. S1 = 0 (or N1 = 0, with its group): dk = dv = 0. D = 0 has no score and is refused.
    struct Extent {
        const char* name;
        std::int64_t Case::*member;
    };
    for (const Extent& zero :
         {Extent{"B", &Case::B}, Extent{"N1", &Case::N1}, Extent{"N2", &Case::N2}, Extent{"S1", &Case::S1},
          Extent{"S2", &Case::S2}, Extent{"D", &Case::D}, Extent{"Dv", &Case::Dv}, Extent{"all", nullptr}}) {
        for (const MaskRule rule : {MaskRule{}, causal_top_left, causal_bottom_right}) {
            for (const DType dtype : {f32, bf16}) {
                Case problem{
                    .name = "SHP_14", .B = 2, .N1 = 2, .N2 = 2, .S1 = 2, .S2 = 2, .D = 2, .Dv = 2, .dtype = dtype};
                problem.rule = rule;
                if (zero.member != nullptr) {
                    problem.*zero.member = 0;
                } else {
                    problem.B = problem.N1 = problem.N2 = problem.S1 = problem.S2 = problem.Dv = 0;
                }
                SCOPED_TRACE(zero.name);
                const Scenario s = make_scenario(problem);
                if (problem.D == 0) {
                    Results results = make_outputs(s);
                    const Status status = forward(s, results, options());
                    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
                    EXPECT_NE(status.message().find("head_dim is 0"), std::string::npos) << status.message();
                    EXPECT_TRUE(results.attention_out.still_poisoned());
                    continue;
                }
                const Results got = run_both(s, options());
                EXPECT_TRUE(got.attention_out.all_zero());
                EXPECT_TRUE(got.softmax_max.all_zero());
                EXPECT_TRUE(got.softmax_sum.all_zero());
                EXPECT_TRUE(got.dq.all_zero());
                EXPECT_TRUE(got.dk.all_zero());
                EXPECT_TRUE(got.dv.all_zero());
            }
        }
    }
}

void expect_no_bleeding(const Case& problem, const Options& run) {
    SCOPED_TRACE(describe(problem));
    Scenario s = make_scenario(problem);
    const std::int64_t batch = problem.B - 1, head = problem.N1 / 2;
    const Tensor dy = s.dy;
    s.dy = Tensor(problem.dtype, Form::BNSD, dy.extents());
    s.dy.fill([&](auto b, auto n, auto i, auto d) { return b == batch && n == head ? dy.get(b, n, i, d) : 0.0; });
    const Results got = run_both(s, run);
    for (std::int64_t b = 0; b < problem.B; ++b) {
        for (std::int64_t n = 0; n < problem.N1; ++n) {
            if (b == batch && n == head) continue;
            for (const Tensor* tensor : {&got.dq, &got.dk, &got.dv}) {
                EXPECT_TRUE(tensor->batches(b, 1).heads(n, 1).all_zero()) << "batch " << b << " head " << n;
            }
        }
    }
    const auto part = [&](const Tensor& tensor) { return tensor.batches(batch, 1).heads(head, 1); };
    Scenario one = make_scenario(part(s.query), part(s.key), part(s.value), part(s.dy), s.params.scale);
    one.params.rule = s.params.rule;
    const Results alone = run_both(one, run);
    EXPECT_TRUE(equal_bits("out", alone.attention_out, part(got.attention_out)));
    EXPECT_TRUE(equal_bits("dq", alone.dq, part(got.dq)));
    EXPECT_TRUE(equal_bits("dk", alone.dk, part(got.dk)));
    EXPECT_TRUE(equal_bits("dv", alone.dv, part(got.dv)));
}

TEST_P(Cases, SHP_15_tails_do_not_bleed_into_the_next_head) {
    // dy is non-zero in one head only. Right: the gradients of every other head are EXACT 0; this one's equal its run
    // alone, EXACT.
    for (const std::int64_t S : {1, 31, 33, 63, 65, 100, 127, 129}) {
        for (const std::int64_t D : {64, 128}) {
            expect_no_bleeding({.name = "SHP_15",
                                .B = 2,
                                .N1 = 4,
                                .N2 = 4,
                                .S1 = S,
                                .S2 = S,
                                .D = D,
                                .Dv = D,
                                .dtype = D == 64 ? f32 : bf16},
                               options(2));
        }
    }
    expect_no_bleeding({.name = "SHP_15_long",
                        .B = 1,
                        .N1 = 2,
                        .N2 = 2,
                        .S1 = 4250,
                        .S2 = 4250,
                        .D = 64,
                        .Dv = 64,
                        .dtype = bf16,
                        .rule = causal_top_left},
                       options(2));
}

TEST_P(Cases, SHP_17_masks_with_strange_strides) {
    const Case problem{.name = "SHP_17", .N1 = 2, .N2 = 2, .S1 = 6, .S2 = 43, .sparse_mode = 1};
    Scenario s = make_scenario(problem);
    Random random(17);
    Tensor wide(boolean, Form::SS, {1, 1, 43, 86});
    wide.fill([&](auto, auto, auto, auto) { return random.uniform() < 0.4 ? 1.0 : 0.0; });
    struct View {
        const char* name;
        Steps steps;
    };
    for (const View& view : {View{"transposed", {0, 0, 1, 86}}, View{"every second column", {0, 0, 86, 2}},
                             View{"one row for all", {0, 0, 0, 1}}, View{"one column for all", {0, 0, 86, 0}},
                             View{"one element for all", {0, 0, 0, 0}}}) {
        SCOPED_TRACE(view.name);
        const Tensor mask(boolean, Form::SS, {1, 1, 6, 43}, view.steps, wide.memory(), wide.origin());
        s.mask = mask.rearranged(Form::SS, Arrangement::packed);
        const Results expected = run_both(s, options());
        s.mask = mask;
        expect_same_bits(run_both(s, options()), expected);
    }
}

}  // namespace
}  // namespace fascore::test
