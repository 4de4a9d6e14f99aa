// SPDX-License-Identifier: Apache-2.0
//
// Refusals by their exact text (refusals.h), what must not be refused, and the Problem that comes out.
#include "problem/validate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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
    CallMemory memory;
    ForwardCall packed(memory);
    packed.pack();
    EXPECT_EQ(text(packed), "");
    ForwardCall forward(memory);
    forward.quantise();
    EXPECT_EQ(text(forward), "");
    BackwardCall backward(memory);
    backward.quantise();
    EXPECT_EQ(text(backward), "");
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
    {"softcap", [](ForwardCall& c) { c.params.softcap = 30.0; }},
    {"mask_mode_5", [](ForwardCall& c) { c.params.sparse_mode = 5; }},
    {"mask_mode_5_prefix", [](ForwardCall& c) { c.params.sparse_mode = 5; c.params.prefix = test::prefixes; }},
    {"mask_mode_6", [](ForwardCall& c) { c.params.sparse_mode = 6; c.params.prefix = test::prefixes; reshape(c.in.atten_mask, {3072, 2048}); }},
    {"mask_mode_6_4d", [](ForwardCall& c) { c.params.sparse_mode = 6; c.params.prefix = test::prefixes; reshape(c.in.atten_mask, {1, 1, 3072, 2048}); }},
    {"prefix_ignored_in_mode_0", [](ForwardCall& c) { c.params.prefix = std::span(test::zeros, 9); }},
    {"mode_6_without_mask", [](ForwardCall& c) { c.params.sparse_mode = 6; c.in.atten_mask = {}; }},
    {"mode_7_without_mask", [](ForwardCall& c) { c.params.sparse_mode = 7; c.in.atten_mask = {}; }},
    {"packed_head_num", [](ForwardCall& c) { c.pack(); c.params.head_num = 4; }},
    {"packed_by_token", [](ForwardCall& c) { c.pack(); c.params.statistics_order = StatisticsOrder::by_token;
                                             c.out.softmax_max.stride = {50, 9, 1}; }},
    {"packed_statistics", [](ForwardCall& c) { c.pack(); reshape(c.out.softmax_max, {10, 4}); reshape(c.out.softmax_sum, {10, 4, 1}); }},
    {"packed_padded_statistics", [](ForwardCall& c) { c.pack(); c.out.softmax_max.stride = {36, 9, 1}; }},
    {"packed_trailing_zeros", [](ForwardCall& c) { c.pack(); static const std::int64_t ends[] = {3, 0, 0}; c.params.actual_seq_qlen = ends; }},
    {"packed_all_zeros", [](ForwardCall& c) { c.pack(); c.params.actual_seq_qlen = std::span(test::zeros, 3); }},
    {"packed_many", [](ForwardCall& c) { c.pack(); c.params.actual_seq_qlen = c.params.actual_seq_kvlen = std::span(test::zeros, 20000); }},
    {"packed_mask_ss", [](ForwardCall& c) { c.pack(); c.in.atten_mask = {c.memory->at(3), DType::u8, {7, 6}}; }},
    {"packed_mask_11ss", [](ForwardCall& c) { c.pack(); c.in.atten_mask = {c.memory->at(3), DType::u8, {1, 1, 7, 6}}; }},
    {"packed_mask_tt", [](ForwardCall& c) { c.pack(); c.in.atten_mask = {c.memory->at(3), DType::u8, {10, 12}}; }},
    {"packed_mask_b1ss", [](ForwardCall& c) { c.pack(); c.in.atten_mask = {c.memory->at(3), DType::u8, {3, 1, 7, 6}}; }},
    {"packed_mask_bnss", [](ForwardCall& c) { c.pack(); c.in.atten_mask = {c.memory->at(3), DType::u8, {3, 4, 7, 6}}; }},
    {"packed_mode_7", [](ForwardCall& c) { c.pack(); c.params.sparse_mode = 7; c.in.atten_mask = {c.memory->at(3), DType::u8, {2048, 2048}}; }},
    {"packed_slopes_in_mode_8", [](ForwardCall& c) { c.pack(); static const std::int64_t ends[] = {3, 3, 9}; static const std::int64_t others[] = {6, 6, 12};
         c.params.actual_seq_qlen = ends; c.params.actual_seq_kvlen = others; c.params.sparse_mode = 8; c.params.pse_type = 2; c.params.q_start_idx = 5;
         c.params.kv_start_idx = 2; c.in.atten_mask = {c.memory->at(3), DType::u8, {2048, 2048}}; c.in.pse = {c.memory->at(16), DType::f32, {3, 4}}; }},
    {"packed_pse_pairs", [](ForwardCall& c) { c.pack(); c.in.pse = {c.memory->at(16), DType::bf16, {184}}; }},
    {"packed_pse_keys", [](ForwardCall& c) { c.pack(); c.in.pse = {c.memory->at(16), DType::f32, {48}}; }},
    {"packed_dropout", [](ForwardCall& c) { c.pack(); c.params.keep_prob = 0.5; c.in.drop_mask = {c.memory->at(16), DType::u8, {23}}; }},
    {"packed_8bit", [](ForwardCall& c) { c.pack(); c.quantise(); c.in.d_scale_q = {c.memory->at(16), DType::f32, {3, 4, 1, 1}}; }},
    {"pse", [](ForwardCall& c) { c.in.pse = {c.memory->at(16), DType::bf16, {2, 4, 5, 6}}; }},
    {"pse_f32", [](ForwardCall& c) { c.params.pse_type = 0; c.in.pse = {c.memory->at(16), DType::f32, {1, 1, 1, 6}}; }},
    {"pse_rows", [](ForwardCall& c) { c.in.pse = {c.memory->at(16), DType::bf16, {2, 4, 1, 6}}; }},
    {"pse_without_data_is_absent", [](ForwardCall& c) { c.in.pse = {nullptr, DType::u8, {9}}; }},
    {"slopes_of_unequal_lengths", [](ForwardCall& c) { c.params.pse_type = 3; c.in.pse = {c.memory->at(16), DType::f32, {2, 4}}; }},
    {"slopes_backwards", [](ForwardCall& c) { c.params.pse_type = 2; c.in.pse = {c.memory->at(17), DType::f32, {4}}; c.in.pse.stride[0] = -1; }},
    {"dropout", [](ForwardCall& c) { c.params.keep_prob = 0.9; }},
    {"drop_mask_of_any_shape", [](ForwardCall& c) { c.params.keep_prob = 0.9; c.in.drop_mask = {c.memory->at(16), DType::u8, {2, 4, 5, 2}}; }},
    {"drop_mask_ignored", [](ForwardCall& c) { c.in.drop_mask = {c.memory->at(16), DType::f16, {1}}; c.in.drop_mask.rank = 77; }},
    {"keep_prob_rounds_to_1", [](ForwardCall& c) { c.params.keep_prob = 1.0 - 1e-12; }},
    {"sink", [](ForwardCall& c) { c.in.sink = {c.memory->at(16), DType::f32, {4}}; }},
    {"rope", [](ForwardCall& c) { c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 4, 5, 760}}; c.in.key_rope = {c.memory->at(20), DType::bf16, {2, 2, 6, 760}};
                                  c.in.key_rope.stride = {0, 0, 0, 1}; c.in.query_rope.stride = {0, 0, 0, 1}; }},
    {"rope_fused", [](ForwardCall& c) { c.fuse(); c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 5, 16}}; c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 6, 8}}; }},
    {"rope_of_no_columns", [](ForwardCall& c) { c.in.query_rope = {nullptr, DType::bf16, {2, 4, 5, 0}}; c.in.key_rope = {nullptr, DType::bf16, {2, 2, 6, 0}}; }},
    {"d_scale_rank_5", [](ForwardCall& c) { c.quantise(); c.in.d_scale_q = {c.memory->at(16), DType::f32, {2, 2, 2, 1, 1}}; c.in.d_scale_k = {c.memory->at(17), DType::f32, {2, 2, 1, 1, 1}}; }},
    {"f16_out_of_8bit", [](ForwardCall& c) { c.quantise(); c.out.attention_out.dtype = DType::f16; }},
    // Slices of one buffer interleave; a span inside a gap of another is no overlap.
    {"statistics_interleave", [](ForwardCall& c) { c.out.softmax_max.stride = {320, 80, 16, 2}; c.out.softmax_sum.stride = {320, 80, 16, 2};
                                                   c.out.softmax_sum.data = static_cast<float*>(c.out.softmax_max.data) + 1; }},
    // Empty tensors: no elements, no data needed.
    {"no_columns", [](ForwardCall& c) { reshape(c.in.query, {2, 4, 5, 0}); reshape(c.in.key, {2, 2, 6, 0}); reshape(c.in.value, {2, 2, 6, 0});
                                        reshape(c.out.attention_out, {2, 4, 5, 0}); }},
    {"no_columns_fused", [](ForwardCall& c) { c.fuse(); reshape(c.in.query, {2, 5, 0}); reshape(c.in.key, {2, 6, 0}); reshape(c.in.value, {2, 6, 0});
                                              reshape(c.out.attention_out, {2, 5, 0}); }},
    {"no_tokens", [](ForwardCall& c) { c.pack(); c.params.actual_seq_qlen = std::span(test::zeros, 2); c.params.actual_seq_kvlen = std::span(test::zeros, 2);
                                       reshape(c.in.query, {0, 4, 8}); reshape(c.in.key, {0, 2, 8}); reshape(c.in.value, {0, 2, 3});
                                       reshape(c.out.attention_out, {0, 4, 3}); reshape(c.out.softmax_max, {0, 4, 8}); reshape(c.out.softmax_sum, {0, 4}); }},
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
    {"dsink_only", [](BackwardCall& c) { c.out = {}; c.in.sink = {c.memory->at(16), DType::f32, {4}}; c.out.dsink = {c.memory->at(17), DType::f32, {4}}; }},
    {"dpse", [](BackwardCall& c) { c.in.pse = {c.memory->at(16), DType::bf16, {1, 4, 5, 6}}; c.out.dpse = {c.memory->at(17), DType::bf16, {1, 4, 5, 6}}; }},
    {"dpse_slopes", [](BackwardCall& c) { c.params.pse_type = 2; c.in.pse = {c.memory->at(16), DType::f32, {4}}; c.out.dpse = {c.memory->at(17), DType::f32, {4}}; }},
    {"dlse", [](BackwardCall& c) { c.in.dlse = {c.memory->at(16), DType::f32, {2, 4, 5}}; }},
    {"rope_gradients", [](BackwardCall& c) { c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 4, 5, 4}}; c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 2, 6, 4}};
         c.out = {}; c.out.dk_rope = {c.memory->at(18), DType::bf16, {2, 2, 6, 4}}; c.out.dq_rope = {c.memory->at(19), DType::bf16, {2, 4, 5, 4}}; }},
    {"gradients_of_8bit", [](BackwardCall& c) { c.quantise(); c.out.dq.dtype = DType::f32; c.out.dk.dtype = DType::f16; c.in.attention_out.dtype = DType::f32; }},
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
    EXPECT_EQ(text(backward),
              "dq: absent, and so are dk, dv, dq_rope, dk_rope, dpse and dsink, at least one must be given");
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

TEST(Made, NumbersAreNarrowedWithTheDtype) {
    CallMemory memory;
    Problem p;
    for (const DType dtype : {DType::f64, DType::bf16}) {
        ForwardCall call(memory, dtype);
        call.params.softcap = 0.3;
        call.params.keep_prob = 0.7;
        ASSERT_EQ(check(call, p).message(), "");
        const bool wide = dtype == DType::f64;
        EXPECT_EQ(p.softcap, wide ? 0.3 : static_cast<double>(0.3F));
        EXPECT_EQ(p.dropout.keep_prob, wide ? 0.7 : static_cast<double>(0.7F));
        EXPECT_TRUE(p.dropout.active);
        EXPECT_TRUE(p.dropout.generated);
    }
    ForwardCall call(memory);
    call.params.keep_prob = 1.0 - 1e-12;
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_FALSE(p.dropout.active);  // 1 in f32
}

TEST(Made, DropoutThresholdAndFirstBlock) {
    struct Row {
        double keep_prob;
        std::uint32_t threshold;
        std::uint64_t offset, block;
    };
    CallMemory memory;
    for (const Row& row : {Row{0.9, 229, 0, 0}, Row{0.8, 204, 1, 1}, Row{0.5, 127, 16, 1}, Row{0.2, 51, 17, 2},
                           Row{0.001, 0, ~std::uint64_t{0}, std::uint64_t{1} << 60}}) {
        ForwardCall call(memory);
        call.params.keep_prob = row.keep_prob;
        call.params.offset = row.offset;
        call.params.seed = 77;
        Problem p;
        ASSERT_EQ(check(call, p).message(), "");
        EXPECT_EQ(p.dropout.threshold, row.threshold);
        EXPECT_EQ(p.dropout.block, row.block);
        EXPECT_EQ(p.dropout.seed, 77U);
    }
}

TEST(Made, SinkMayBeF64WhereTheTensorsAre) {
    CallMemory memory;
    for (const DType dtype : {DType::f32, DType::f64}) {
        BackwardCall call(memory, DType::f64);
        call.in.sink = {memory.at(16), dtype, {4}};
        call.in.sink.stride[0] = 3;
        call.out.dsink = {memory.at(17), dtype, {4}};
        Problem p;
        ASSERT_EQ(check(call, p).message(), "");
        EXPECT_TRUE(p.sink.present);
        EXPECT_EQ(p.sink.dtype, dtype);
        EXPECT_EQ(p.sink.stride, 3);
        EXPECT_EQ(p.dsink.dtype, dtype);
    }
}

TEST(Made, RopeColumnsBelongToD) {
    CallMemory memory;
    ForwardCall call(memory, DType::bf16);
    call.quantise();
    call.in.query_rope = {memory.at(16), DType::f8e4m3, {2, 4, 5, 4}};
    call.in.key_rope = {memory.at(17), DType::f8e4m3, {2, 2, 6, 4}};
    call.in.d_scale_q = {memory.at(18), DType::f32, {2, 4, 1, 1}};
    Problem p;
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_EQ(p.D, 12);
    EXPECT_EQ(p.Dr, 4);
    EXPECT_EQ(p.query_rope.stride.n, 20);
    EXPECT_EQ(p.key_rope.data, memory.at(17));
    EXPECT_EQ(p.query_rope.scale.data, memory.at(18));  // as if appended
    EXPECT_EQ(p.key_rope.scale.data, nullptr);
}

TEST(Made, BiasByForm) {
    struct Row {
        std::vector<std::int64_t> shape;
        Bias::Kind kind;
        std::vector<std::int64_t> stride;
        bool over_batches, over_heads, over_rows;
    };
    const std::int64_t S = 2000;
    for (const Row& row : {
             Row{{2, 4, S, S}, Bias::Kind::tensor, {4 * S * S, S * S, S, 1}, false, false, false},
             Row{{2, 4, 1, S}, Bias::Kind::tensor, {4 * S, S, 0, 1}, false, false, true},
             Row{{1, 4, S, S}, Bias::Kind::tensor, {0, S * S, S, 1}, true, false, false},
             Row{{1, 1, 1, S}, Bias::Kind::tensor, {0, 0, 0, 1}, true, true, true},
             Row{{2, 1, S, S}, Bias::Kind::tensor, {S * S, 0, S, 1}, false, true, false},
             Row{{2, 4, 1024, S}, Bias::Kind::tail, {4096 * S, 1024 * S, S, 1}, false, false, false},
             Row{{1, 4, 1024, S}, Bias::Kind::tail, {0, 1024 * S, S, 1}, true, false, false},
         }) {
        CallMemory memory;
        ForwardCall call(memory);
        call.square(S);
        call.params.rule.kind = MaskRule::Kind::causal_top_left;
        call.params.scale = 0.5;
        call.in.pse = {memory.at(16), DType::f32, {row.shape[0], row.shape[1], row.shape[2], row.shape[3]}};
        Problem p;
        ASSERT_EQ(check(call, p, Audience::engine, Pointers::ignored).message(), "");
        EXPECT_EQ(p.bias.kind, row.kind);
        const Strides& stride = p.bias.stride;
        EXPECT_EQ((std::vector<std::int64_t>{stride.b, stride.n, stride.s, stride.d}), row.stride);
        EXPECT_EQ((std::vector<bool>{p.bias.over_batches, p.bias.over_heads, p.bias.over_rows}),
                  (std::vector<bool>{row.over_batches, row.over_heads, row.over_rows}));
        EXPECT_EQ(p.bias.factor, 0.5);
        call.params.pse_type = 0;
        ASSERT_TRUE(check(call, p, Audience::engine, Pointers::ignored).ok());
        EXPECT_EQ(p.bias.factor, 1.0);
    }
}

// 1024 rows of a 1024 × 1024 problem are all of it: no rule is asked for.
TEST(Made, ACompressedBiasOf1024RowsIsTheFullTensor) {
    CallMemory memory;
    ForwardCall call(memory);
    call.square(1024);
    call.in.pse = {memory.at(16), DType::bf16, {1, 4, 1024, 1024}};
    Problem p;
    ASSERT_EQ(check(call, p, Audience::engine, Pointers::ignored).message(), "");
    EXPECT_EQ(p.bias.kind, Bias::Kind::tensor);
}

TEST(Made, Slopes) {
    CallMemory memory;
    BackwardCall call(memory);
    call.params.pse_type = 3;
    call.params.q_start_idx = -7;
    call.params.kv_start_idx = 9;
    call.in.pse = {memory.at(16), DType::f32, {4}};
    call.out.dpse = {memory.at(17), DType::f32, {4}};
    call.out.dpse.stride[0] = 2;
    Problem p;
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_EQ(p.bias.kind, Bias::Kind::root_slope);
    EXPECT_EQ(p.bias.q_start, -7);
    EXPECT_EQ(p.bias.k_start, 9);
    EXPECT_TRUE(p.bias.over_batches);
    EXPECT_EQ(p.bias.stride.b, 0);
    EXPECT_EQ(p.bias.stride.n, 1);
    EXPECT_EQ(p.dpse.stride.n, 2);
    EXPECT_TRUE(p.dpse.wanted);
    reshape(call.in.pse, {2, 4});
    reshape(call.out.dpse, {2, 4});
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_FALSE(p.bias.over_batches);
    EXPECT_EQ(p.bias.stride.b, 4);
}

TEST(Made, ABandForEveryPrefix) {
    CallMemory memory;
    ForwardCall call(memory);
    call.params.sparse_mode = 6;
    call.params.prefix = test::prefixes;
    reshape(call.in.atten_mask, {3072, 2048});
    Problem p;
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_FALSE(p.packed);
    EXPECT_FALSE(p.mask.present);
    ASSERT_EQ(p.sequences.size(), 2U);
    for (std::int64_t b = 0; b < 2; ++b) {
        const Batch batch = p.batch(b);
        EXPECT_EQ(batch.band.prefix, test::prefixes[b]);
        EXPECT_EQ(batch.band.upper, 1);
        EXPECT_EQ(batch.band.cap, 11);
        EXPECT_EQ(batch.S1, 5);
        EXPECT_EQ(batch.S2, 6);
        EXPECT_EQ(batch.query.data, memory.at(0) + b * 160 * 2);
    }
}

TEST(Made, TheTemplateIsReadOnRequest) {
    std::vector<std::uint8_t> bytes(3072 * 2048);
    for (std::size_t i = 0; i < 3072; ++i) {
        for (std::size_t j = 0; j < 2048; ++j) bytes[i * 2048 + j] = i < 2048 ? (j > i ? 1 : 0) : (j >= 1024 ? 200 : 0);
    }
    CallMemory memory;
    ForwardCall call(memory);
    call.params.sparse_mode = 6;
    call.params.prefix = test::prefixes;
    call.params.check_mask = true;
    call.in.atten_mask = {bytes.data(), DType::u8, {1, 1, 3072, 2048}};
    EXPECT_EQ(text(call), "");
    bytes[2500 * 2048 + 1023] = 1;
    EXPECT_EQ(text(call), "atten_mask: element [2500, 1023] is not 0, must be 0 in sparse_mode 6");
    EXPECT_EQ(text(call, Audience::engine, Pointers::ignored), "");
    call.params.sparse_mode = 2;
    call.in.atten_mask = {bytes.data(), DType::u8, {2048, 2048}};
    EXPECT_EQ(text(call), "");
    bytes[2047] = 0;
    EXPECT_EQ(text(call), "atten_mask: element [0, 2047] is 0, must be 1 in sparse_mode 2");
    call.params.check_mask = false;
    EXPECT_EQ(text(call), "");
}

// ---- packed calls --------------------------------------------------------------------------------------------------

// The call of pack() with everything that has a place of its own in a sequence, against offsets written out by hand.
TEST(Packed, EverySequenceAtItsPlace) {
    CallMemory memory;
    ForwardCall call(memory);
    call.pack();
    call.in.atten_mask = {memory.at(3), DType::u8, {3, 4, 7, 6}};
    call.in.pse = {memory.at(16), DType::f32, {184}};
    call.params.keep_prob = 0.5;
    Problem p;
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_TRUE(p.packed);
    EXPECT_FALSE(p.empty());
    EXPECT_EQ((std::vector<std::int64_t>{p.B, p.T1, p.T2, p.S1, p.S2}), (std::vector<std::int64_t>{3, 10, 12, 7, 6}));

    struct Row {
        std::int64_t S1, S2, q, k, pairs, padded;
    };
    const Row rows[] = {{3, 6, 0, 0, 0, 0}, {0, 2, 3, 6, 18, 48}, {7, 4, 3, 8, 18, 48}};
    for (std::int64_t b = 0; b < 3; ++b) {
        const Row& row = rows[b];
        const Batch batch = p.batch(b);
        EXPECT_EQ(batch.index, b);
        EXPECT_EQ(batch.S1, row.S1);
        EXPECT_EQ(batch.S2, row.S2);
        EXPECT_EQ(batch.query.data, memory.at(0) + row.q * 32 * 2);
        EXPECT_EQ(batch.key.data, memory.at(1) + row.k * 16 * 2);
        EXPECT_EQ(batch.value.data, memory.at(2) + row.k * 6 * 2);
        EXPECT_EQ(batch.attention_out.data, memory.at(4) + row.q * 12 * 2);
        // by_sequence: rows of a head are neighbours
        EXPECT_EQ(batch.softmax_max.data, memory.at(5) + row.q * 4 * 8 * 4);
        EXPECT_EQ(batch.softmax_max.stride.s, 8);
        EXPECT_EQ(batch.softmax_max.stride.n, 8 * row.S1);
        EXPECT_EQ(batch.softmax_max.stride.d, 1);
        EXPECT_EQ(batch.mask.data, reinterpret_cast<std::uint8_t*>(memory.at(3)) + 4 * row.pairs);
        EXPECT_EQ(batch.mask.stride_i, row.S2);
        EXPECT_EQ(batch.mask.stride_n, row.S1 * row.S2);
        EXPECT_EQ(batch.mask.stride_j, 1);
        EXPECT_EQ(batch.bias.data, memory.at(16) + 4 * row.pairs * 4);
        EXPECT_EQ(batch.bias.stride.n, row.S1 * row.S2);
        EXPECT_EQ(batch.bias.stride.s, row.S2);
        EXPECT_EQ(batch.dropout.first, 4 * row.padded);
        EXPECT_EQ(batch.dropout.pitch, 16);
    }

    // The other forms.
    call.params.statistics_order = StatisticsOrder::by_token;
    call.in.atten_mask = {memory.at(3), DType::u8, {10, 12}};
    call.in.pse = {memory.at(16), DType::f32, {48}};
    call.in.drop_mask = {memory.at(17), DType::u8, {23}};
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_TRUE(p.bias.over_rows);
    for (std::int64_t b = 0; b < 3; ++b) {
        const Row& row = rows[b];
        const Batch batch = p.batch(b);
        EXPECT_EQ(batch.softmax_max.data, memory.at(5) + row.q * 4 * 8 * 4);
        EXPECT_EQ(batch.softmax_max.stride.s, 32);
        EXPECT_EQ(batch.softmax_max.stride.n, 8);
        EXPECT_EQ(batch.mask.data, reinterpret_cast<std::uint8_t*>(memory.at(3)) + row.q * 12 + row.k);
        EXPECT_EQ(batch.mask.stride_i, 12);
        EXPECT_EQ(batch.mask.stride_n, 0);
        EXPECT_EQ(batch.bias.data, memory.at(16) + 4 * row.k * 4);
        EXPECT_EQ(batch.bias.stride.n, row.S2);
        EXPECT_EQ(batch.bias.stride.s, 0);
        EXPECT_EQ(batch.dropout.first, 4 * row.pairs);
        EXPECT_EQ(batch.dropout.pitch, row.S2);
    }

    // One corner for all, and 1 or N1 heads packed.
    call.in.atten_mask = {memory.at(3), DType::u8, {7, 6}};
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_EQ(p.batch(2).mask.data, reinterpret_cast<std::uint8_t*>(memory.at(3)));
    EXPECT_EQ(p.batch(2).mask.stride_i, 6);
    call.in.atten_mask = {memory.at(3), DType::u8, {3, 1, 7, 6}};
    ASSERT_EQ(check(call, p).message(), "");
    EXPECT_EQ(p.batch(2).mask.data, reinterpret_cast<std::uint8_t*>(memory.at(3)) + 18);
    EXPECT_EQ(p.batch(2).mask.stride_n, 0);
    EXPECT_EQ(p.batch(2).mask.stride_i, 4);
}

TEST(Packed, CompressedBiasIsReadByDiagonals) {
    CallMemory memory;
    ForwardCall call(memory);
    call.pack();
    call.params.actual_seq_kvlen = test::query_ends;
    call.params.rule.kind = MaskRule::Kind::causal_bottom_right;
    call.in.pse = {memory.at(16), DType::bf16, {1, 4, 1024, 7}};
    Problem p;
    ASSERT_EQ(check(call, p, Audience::engine, Pointers::ignored).message(), "");
    EXPECT_EQ(p.bias.kind, Bias::Kind::diagonal);
    EXPECT_EQ(p.bias.longest, 7);
    EXPECT_TRUE(p.bias.over_batches);
    EXPECT_EQ(p.batch(2).bias.data, memory.at(16));
    EXPECT_EQ(p.batch(2).bias.stride.s, 7);
}

TEST(Packed, TheCutSequenceHasTheBand) {
    static const std::int64_t ends[] = {0, 3, 5, 5, 5};  // lengths 0, 3, 2, 0, 0
    for (const int mode : {7, 8}) {
        CallMemory memory;
        ForwardCall call(memory);
        call.pack();
        call.params.actual_seq_qlen = call.params.actual_seq_kvlen = ends;
        call.params.sparse_mode = mode;
        call.params.pre_tokens = 1;
        call.params.next_tokens = 2;
        call.in.atten_mask = {memory.at(3), DType::u8, {2048, 2048}};
        Problem p;
        ASSERT_EQ(check(call, p).message(), "");
        const std::int64_t cut = mode == 7 ? 2 : 1;
        for (const std::int64_t b : {1, 2}) {
            EXPECT_EQ(p.batch(b).band.upper, b == cut ? 2 : 0) << mode << " " << b;
            EXPECT_EQ(p.batch(b).band.lower, b == cut ? -1 : -2 * p.batch(b).S1) << mode << " " << b;
        }
    }
}

TEST(Packed, FactorsOfEightBitTensorsCountSequences) {
    CallMemory memory;
    ForwardCall call(memory);
    call.pack();
    call.quantise();
    call.in.d_scale_q = {memory.at(16), DType::f32, {3, 2, 2, 1, 1}};
    call.in.d_scale_k = {memory.at(17), DType::f32, {3, 2, 1, 1}};
    Problem p;
    ASSERT_EQ(check(call, p).message(), "");
    const Batch batch = p.batch(2);
    EXPECT_EQ(batch.query.scale.data, memory.at(16) + 2 * 4 * 4);
    EXPECT_EQ(batch.query.scale.stride.n, 1);
    EXPECT_EQ(batch.key.scale.data, memory.at(17) + 2 * 2 * 4);
    EXPECT_EQ(batch.value.scale.data, nullptr);
}

// Two million batches, a million rows, more than 2^31 elements: numbers alone.
TEST(Made, LargeProblems) {
    const std::int64_t B = 2097152;
    ForwardCall call = [] {
        static CallMemory memory;
        return ForwardCall(memory);
    }();
    reshape(call.in.query, {B, 256, 4, 768});
    reshape(call.in.key, {B, 256, 4, 768});
    reshape(call.in.value, {B, 256, 4, 768});
    reshape(call.out.attention_out, {B, 256, 4, 768});
    call.out.softmax_max = call.out.softmax_sum = {};
    call.in.atten_mask = {};
    Problem p;
    EXPECT_EQ(check(call, p, Audience::engine, Pointers::ignored).message(), "");
    EXPECT_EQ(p.B, B);
    EXPECT_TRUE(p.sequences.empty());
    const std::int64_t S = 1048576;
    reshape(call.in.query, {2, 256, S, 768});
    reshape(call.in.key, {2, 2, S, 768});
    reshape(call.in.value, {2, 2, S, 3});
    reshape(call.out.attention_out, {2, 256, S, 3});
    call.params.keep_prob = 0.5;
    call.in.drop_mask = {nullptr, DType::u8, {2 * 256 * S / 8 * S}};
    EXPECT_EQ(check(call, p, Audience::engine, Pointers::ignored).message(), "");
    // 2^21 batches of 2^40 pairs and 4 heads have no number in 63 bits.
    reshape(call.in.query, {B, 4, S, 1});
    reshape(call.in.key, {B, 1, S, 1});
    reshape(call.in.value, {B, 1, S, 1});
    reshape(call.out.attention_out, {B, 4, S, 1});
    EXPECT_EQ(check(call, p, Audience::engine, Pointers::ignored).message(),
              "keep_prob: given 0.5, must be 1 for more than 2^62 pairs of rows and columns");
}

}  // namespace
}  // namespace fascore
