// SPDX-License-Identifier: Apache-2.0
//
// Refusals by their exact text (refusals.h), what must not be refused, and the Problem that comes out.
#include "problem/validate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "problem/refusals.h"

namespace fascore {
namespace {

using test::BackwardCall;
using test::CallMemory;
using test::ForwardCall;
using test::reshape;

template <class Call>
Status check(const Call& call, Problem& problem, Audience audience = Audience::engine,
             Pointers pointers = Pointers::required) {
    return make_problem(call.params, call.in, call.out, pointers, audience, problem);
}

template <class Call>
std::string text(const Call& call, Audience audience = Audience::engine, Pointers pointers = Pointers::required) {
    Problem problem;
    return check(call, problem, audience, pointers).message();
}

template <class Call, std::size_t Count>
void expect_all_refused(const test::Refusal<Call> (&table)[Count]) {
    for (const test::Refusal<Call>& row : table) {
        CallMemory memory;
        Call call(memory);
        row.spoil(call);
        Problem problem;
        const Status status = check(call, problem);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument) << row.name;
        EXPECT_EQ(status.message(), row.text) << row.name;
        EXPECT_TRUE(memory.untouched()) << row.name;
    }
}

TEST(Refusals, ForwardByText) { expect_all_refused(test::forward_refusals); }
TEST(Refusals, BackwardByText) { expect_all_refused(test::backward_refusals); }

// docs/errors.md is what a person looks a text up in.
TEST(Refusals, AreAllInTheDocumentation) {
    std::ifstream file(FASCORE_SOURCE_DIR "/docs/errors.md");
    ASSERT_TRUE(file.is_open());
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    const auto expect_listed = [&](const char* text) {
        std::string entry = "`";
        entry.append(text).append("`");
        EXPECT_NE(page.find(entry), std::string::npos) << text;
    };
    for (const auto& row : test::forward_refusals) expect_listed(row.text);
    // Rows that stand for a rule of the forward need no entry of their own.
    bool own = false;
    for (const auto& row : test::backward_refusals) {
        own = own || std::string_view(row.name) == "dy_absent";
        if (own) expect_listed(row.text);
    }
}

TEST(Refusals, TheValidCallIsValid) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        CallMemory memory;
        EXPECT_EQ(text(ForwardCall(memory, dtype)), "") << name(dtype);
        EXPECT_EQ(text(BackwardCall(memory, dtype)), "") << name(dtype);
    }
}

// ---- what passes ---------------------------------------------------------------------------------------------------

template <class Call>
struct Pass {
    const char* name;
    void (*change)(Call&);
};

// clang-format off
const Pass<ForwardCall> passes[] = {
    {"head_num_agrees", [](ForwardCall& c) { c.params.head_num = 4; }},
    {"fused", [](ForwardCall& c) { c.fuse(); }},
    {"fused_sbh", [](ForwardCall& c) { c.fuse(); c.params.layout = Layout::SBH; reshape(c.in.query, {5, 2, 32});
                                       reshape(c.in.key, {6, 2, 16}); reshape(c.in.value, {6, 2, 6});
                                       reshape(c.out.attention_out, {5, 2, 12}); }},
    {"no_mask", [](ForwardCall& c) { c.in.atten_mask = {}; }},
    {"mask_without_data_is_absent", [](ForwardCall& c) { c.in.atten_mask = {nullptr, DType::f32, {1, 2, 3}}; }},
    {"no_statistics", [](ForwardCall& c) { c.out.softmax_max = {}; c.out.softmax_sum = {}; }},
    {"one_statistic", [](ForwardCall& c) { c.out.softmax_sum = {}; reshape(c.out.softmax_max, {2, 4, 5}); }},
    {"statistics_without_data_are_absent", [](ForwardCall& c) { c.out.softmax_max.data = nullptr; }},
    {"f32_out", [](ForwardCall& c) { c.out.attention_out.dtype = DType::f32; }},
    {"mask_u8", [](ForwardCall& c) { c.in.atten_mask.dtype = DType::u8; }},
    {"mask_b1ss", [](ForwardCall& c) { reshape(c.in.atten_mask, {2, 1, 5, 6}); }},
    {"mask_11ss", [](ForwardCall& c) { reshape(c.in.atten_mask, {1, 1, 5, 6}); }},
    {"mask_ss", [](ForwardCall& c) { reshape(c.in.atten_mask, {5, 6}); }},
    {"mask_compressed", [](ForwardCall& c) { c.params.sparse_mode = 3; reshape(c.in.atten_mask, {2048, 2048}); }},
    {"mask_compressed_4d", [](ForwardCall& c) { c.params.sparse_mode = 4; reshape(c.in.atten_mask, {1, 1, 2048, 2048}); }},
    {"mode_without_mask", [](ForwardCall& c) { c.params.sparse_mode = 4; c.params.pre_tokens = -9;
                                               c.params.next_tokens = -9; c.in.atten_mask = {}; }},
    {"tokens_ignored_in_mode_1", [](ForwardCall& c) { c.params.sparse_mode = 1; c.params.pre_tokens = -9;
                                                      c.params.next_tokens = -9; }},
    {"band_that_misses_the_matrix", [](ForwardCall& c) { c.params.pre_tokens = -1000; c.params.next_tokens = 2000; }},
    {"tokens_at_the_ends", [](ForwardCall& c) { c.params.pre_tokens = std::numeric_limits<std::int64_t>::max();
                                                c.params.next_tokens = std::numeric_limits<std::int64_t>::max(); }},
    {"inner_precise_2", [](ForwardCall& c) { c.params.inner_precise = 2; }},
    {"pse_type_0", [](ForwardCall& c) { c.params.pse_type = 0; }},
    {"scale_zero", [](ForwardCall& c) { c.params.scale = 0.0; }},
    {"scale_negative", [](ForwardCall& c) { c.params.scale = -3.5; }},
    {"wide_value", [](ForwardCall& c) { reshape(c.in.value, {2, 2, 6, 64}); reshape(c.out.attention_out, {2, 4, 5, 64}); }},
    {"inputs_broadcast", [](ForwardCall& c) { c.in.key.stride = {0, 0, 0, 0}; c.in.value.stride = {0, -18, 3, 1}; }},
    {"inputs_shared", [](ForwardCall& c) { c.in.key.data = c.in.query.data; }},
    {"stride_0_on_one_element", [](ForwardCall& c) { reshape(c.in.query, {1, 4, 5, 8}); reshape(c.in.key, {1, 2, 6, 8});
                                                     reshape(c.in.value, {1, 2, 6, 3}); reshape(c.out.attention_out, {1, 4, 5, 3});
                                                     reshape(c.out.softmax_max, {1, 4, 5}); reshape(c.out.softmax_sum, {1, 4, 5});
                                                     reshape(c.in.atten_mask, {5, 6}); c.out.attention_out.stride[0] = 0; }},
    // Empty tensors: no elements, no data needed.
    {"no_batch", [](ForwardCall& c) { c.in = {}; c.in.query = {nullptr, DType::f32, {0, 4, 5, 8}};
                                      c.in.key = {nullptr, DType::f32, {0, 2, 6, 8}}; c.in.value = {nullptr, DType::f32, {0, 2, 6, 3}};
                                      c.out = {}; c.out.attention_out = {nullptr, DType::f32, {0, 4, 5, 3}}; }},
    {"no_keys", [](ForwardCall& c) { reshape(c.in.key, {2, 2, 0, 8}); reshape(c.in.value, {2, 2, 0, 3}); c.in.key.data = nullptr;
                                     reshape(c.in.atten_mask, {5, 0}); }},
    {"no_kv_heads", [](ForwardCall& c) { reshape(c.in.key, {2, 0, 6, 8}); reshape(c.in.value, {2, 0, 6, 3}); }},
    {"no_kv_heads_fused", [](ForwardCall& c) { c.fuse(); reshape(c.in.key, {2, 6, 0}); reshape(c.in.value, {2, 6, 0}); }},
    {"no_value_columns", [](ForwardCall& c) { reshape(c.in.value, {2, 2, 6, 0}); reshape(c.out.attention_out, {2, 4, 5, 0}); }},
};

const Pass<BackwardCall> backward_passes[] = {
    {"dq_only", [](BackwardCall& c) { c.out.dk = {}; c.out.dv = {}; }},
    {"dv_without_data_is_absent", [](BackwardCall& c) { c.out.dv.data = nullptr; }},
    {"f32_attention_out", [](BackwardCall& c) { c.in.attention_out.dtype = DType::f32; }},
    {"statistics_rank_3", [](BackwardCall& c) { reshape(c.in.softmax_max, {2, 4, 5}); reshape(c.in.softmax_sum, {2, 4, 5, 1}); }},
    {"statistics_broadcast", [](BackwardCall& c) { c.in.softmax_max.stride = {0, 0, 0, 0}; }},
    // Slices of one fused gradient buffer [B, S, 3, N, D] interleave legally; only equal base pointers are refused.
    {"fused_gradient_buffer", [](BackwardCall& c) { c.params.layout = Layout::BSND;
         for (auto* view : {&c.in.query, &c.in.key, &c.in.value, &c.in.dy, &c.in.attention_out}) reshape(*view, {2, 5, 4, 8});
         c.in.atten_mask = {};
         auto* base = static_cast<std::byte*>(c.out.dq.data);
         int slice = 0;
         for (auto* view : {&c.out.dq, &c.out.dk, &c.out.dv}) {
             reshape(*view, {2, 5, 4, 8});
             view->stride = {5 * 96, 96, 8, 1};
             view->data = base + 64 * slice++;
         } }},
    {"no_queries", [](BackwardCall& c) { reshape(c.in.query, {2, 4, 0, 8}); reshape(c.in.dy, {2, 4, 0, 3}); c.in.dy.data = nullptr;
         reshape(c.in.attention_out, {2, 4, 0, 3}); reshape(c.in.softmax_max, {2, 4, 0, 8}); reshape(c.in.softmax_sum, {2, 4, 0});
         reshape(c.out.dq, {2, 4, 0, 8}); c.out.dq.data = nullptr; c.in.atten_mask = {}; }},
};
// clang-format on

TEST(Passes, ForwardCalls) {
    for (const Pass<ForwardCall>& row : passes) {
        CallMemory memory;
        ForwardCall call(memory);
        row.change(call);
        EXPECT_EQ(text(call), "") << row.name;
    }
}

TEST(Passes, BackwardCalls) {
    for (const Pass<BackwardCall>& row : backward_passes) {
        CallMemory memory;
        BackwardCall call(memory);
        row.change(call);
        EXPECT_EQ(text(call), "") << row.name;
    }
}

// ---- who asks, and for what ----------------------------------------------------------------------------------------

TEST(Pointers, AreNotLookedAtInAQuery) {
    CallMemory memory;
    ForwardCall forward(memory);
    for (ConstTensorView* view : {&forward.in.query, &forward.in.key, &forward.in.value, &forward.in.atten_mask}) {
        view->data = nullptr;
    }
    for (TensorView* view : {&forward.out.attention_out, &forward.out.softmax_max, &forward.out.softmax_sum}) {
        view->data = nullptr;
    }
    Problem problem;
    EXPECT_TRUE(check(forward, problem, Audience::engine, Pointers::ignored).ok());
    EXPECT_TRUE(problem.mask.present);
    EXPECT_TRUE(problem.mask_given);
    EXPECT_TRUE(problem.softmax_max.wanted);
    // but shapes are
    reshape(forward.in.atten_mask, {5, 5});
    EXPECT_NE(text(forward, Audience::engine, Pointers::ignored), "");

    BackwardCall backward(memory);
    backward.out.dq.data = backward.out.dk.data = backward.out.dv.data = nullptr;
    EXPECT_TRUE(check(backward, problem, Audience::engine, Pointers::ignored).ok());
    EXPECT_TRUE(problem.dv.wanted);
    EXPECT_EQ(text(backward), "dq: absent, and so are dk and dv, at least one of the three must be given");
}

TEST(ReferenceAudience, WritesF64AndNeedsNoStatistics) {
    CallMemory memory;
    ForwardCall forward(memory);
    EXPECT_EQ(text(forward, Audience::reference), "attention_out: dtype is bf16, must be f64 for the reference");
    forward.out.attention_out.dtype = DType::f64;
    EXPECT_EQ(text(forward, Audience::reference), "softmax_max: dtype is f32, must be f64 for the reference");
    forward.out.softmax_max.dtype = forward.out.softmax_sum.dtype = DType::f64;
    EXPECT_EQ(text(forward, Audience::reference), "");

    BackwardCall backward(memory);
    EXPECT_EQ(text(backward, Audience::reference), "dq: dtype is bf16, must be f64 for the reference");
    backward.out.dq.dtype = backward.out.dk.dtype = backward.out.dv.dtype = DType::f64;
    EXPECT_EQ(text(backward, Audience::reference), "");
    backward.in.attention_out.dtype = DType::f64;
    backward.in.softmax_max.dtype = DType::f64;
    EXPECT_EQ(text(backward, Audience::reference), "");
    backward.in.softmax_max.dtype = DType::f16;
    EXPECT_EQ(text(backward, Audience::reference), "softmax_max: dtype is f16, must be f32 or f64 for the reference");
    backward.in.softmax_max = {};
    EXPECT_EQ(text(backward, Audience::reference), "softmax_max: absent, must be given when softmax_sum is");
    backward.in.softmax_sum = {};
    backward.in.attention_out = {};
    EXPECT_EQ(text(backward, Audience::reference), "");
}

// ---- the problem that comes out ------------------------------------------------------------------------------------

TEST(Made, ExtentsStridesAndStatistics) {
    CallMemory memory;
    BackwardCall call(memory);
    reshape(call.in.softmax_sum, {2, 4, 5});
    call.in.query.stride = {1000, 200, 20, 2};
    Problem p;
    ASSERT_TRUE(check(call, p).ok());
    EXPECT_EQ(p.direction, Direction::backward);
    EXPECT_EQ(p.dtype, DType::bf16);
    EXPECT_EQ((std::vector<std::int64_t>{p.B, p.N1, p.N2, p.G, p.S1, p.S2, p.D, p.Dv}),
              (std::vector<std::int64_t>{2, 4, 2, 2, 5, 6, 8, 3}));
    EXPECT_EQ(p.query.stride.n, 200);
    EXPECT_EQ(p.query.stride.d, 2);
    EXPECT_EQ(p.query.data, memory.at(0));
    EXPECT_EQ(p.softmax_max.copies, 8);
    EXPECT_EQ(p.softmax_max.stride.s, 8);
    EXPECT_EQ(p.softmax_max.stride.d, 1);
    EXPECT_EQ(p.softmax_sum.copies, 1);
    EXPECT_EQ(p.softmax_sum.stride.s, 1);
    EXPECT_FALSE(p.empty());
}

TEST(Made, MaskStridesAreZeroWhereItIsBroadcast) {
    struct Row {
        std::vector<std::int64_t> shape;
        std::int64_t b, n;
    };
    for (const Row& row :
         {Row{{2, 4, 5, 6}, 120, 30}, Row{{2, 1, 5, 6}, 30, 0}, Row{{1, 1, 5, 6}, 0, 0}, Row{{5, 6}, 0, 0}}) {
        CallMemory memory;
        ForwardCall call(memory);
        if (row.shape.size() == 4) {
            reshape(call.in.atten_mask, {row.shape[0], row.shape[1], row.shape[2], row.shape[3]});
        } else {
            reshape(call.in.atten_mask, {row.shape[0], row.shape[1]});
        }
        Problem p;
        ASSERT_TRUE(check(call, p).ok());
        EXPECT_TRUE(p.mask.present);
        EXPECT_EQ(p.mask.stride_b, row.b);
        EXPECT_EQ(p.mask.stride_n, row.n);
        EXPECT_EQ(p.mask.stride_i, 6);
        EXPECT_EQ(p.mask.stride_j, 1);
    }
}

TEST(Made, ACompressedMaskIsARule) {
    CallMemory memory;
    ForwardCall call(memory);
    call.params.sparse_mode = 2;
    reshape(call.in.atten_mask, {2048, 2048});
    Problem p;
    ASSERT_TRUE(check(call, p).ok());
    EXPECT_TRUE(p.mask_given);
    EXPECT_FALSE(p.mask.present);
    EXPECT_EQ(p.band.upper, 0);
    EXPECT_EQ(p.band.lower, -11);
}

TEST(Made, ScaleIsNarrowedUnlessF64) {
    CallMemory memory;
    Problem p;
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        ForwardCall call(memory, dtype);
        call.params.scale = 0.1;
        ASSERT_TRUE(check(call, p).ok());
        EXPECT_EQ(p.scale, dtype == DType::f64 ? 0.1 : static_cast<double>(0.1F)) << name(dtype);
        EXPECT_EQ(p.stated.scale, 0.1);
    }
}

TEST(Made, EmptinessBySize) {
    for (int axis = 0; axis < 3; ++axis) {
        CallMemory memory;
        ForwardCall call(memory);
        call.in.atten_mask = {};
        const std::int64_t S2 = axis == 0 ? 0 : 6;
        const std::int64_t N2 = axis == 1 ? 0 : 2;
        const std::int64_t Dv = axis == 2 ? 0 : 3;
        reshape(call.in.key, {2, N2, S2, 8});
        reshape(call.in.value, {2, N2, S2, Dv});
        reshape(call.out.attention_out, {2, 4, 5, Dv});
        Problem p;
        ASSERT_EQ(check(call, p).message(), "");
        EXPECT_TRUE(p.empty());
        EXPECT_EQ(p.Dv, Dv);
    }
    // BSH without kv heads: value cannot tell its head size, the output does.
    CallMemory memory;
    ForwardCall call(memory);
    call.fuse();
    reshape(call.in.key, {2, 6, 0});
    reshape(call.in.value, {2, 6, 0});
    Problem p;
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_EQ(p.N2, 0);
    EXPECT_EQ(p.D, 8);
    EXPECT_EQ(p.Dv, 3);
}

}  // namespace
}  // namespace fascore
