// SPDX-License-Identifier: Apache-2.0
//
// Every way to be refused, as data: a valid call, one thing broken, the exact text. problem/validate_test.cpp runs the
// table against the validator, api/refusals_test.cpp against the public functions.
//
//   the valid call   BNSD, bf16, B = 2, N1 = 4, N2 = 2, S1 = 5, S2 = 6, D = 8, Dv = 3, mask [2, 4, 5, 6] in mode 0
//   pack()           TND, three sequences: T1 = 10 in 3, 0, 7 rows, T2 = 12 in 6, 2, 4 rows, no mask
//   optional tensors lie in slots 16 and on
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "fascore/attention.h"

namespace fascore::test {

/// Sequences of the packed call: query lengths 3, 0, 7, key lengths 6, 2, 4.
inline constexpr std::int64_t query_ends[] = {3, 3, 10};
inline constexpr std::int64_t key_ends[] = {6, 8, 12};
inline constexpr std::int64_t prefixes[] = {4, 1};
inline constexpr std::int64_t zeros[20001] = {};

/// Memory for every tensor of a call, each of its own; outputs hold 0xA5.
struct CallMemory {
    static constexpr std::size_t bytes = 16384;
    static constexpr std::size_t tensors = 32;
    std::vector<std::byte> memory = std::vector<std::byte>(bytes * tensors, std::byte{0xA5});

    std::byte* at(std::size_t tensor) { return memory.data() + tensor * bytes; }
    [[nodiscard]] bool untouched() const {
        for (const std::byte byte : memory) {
            if (byte != std::byte{0xA5}) return false;
        }
        return true;
    }
};

struct ForwardCall {
    AttentionParams params;
    ForwardInputs in;
    ForwardOutputs out;

    explicit ForwardCall(CallMemory& m, DType dtype = DType::bf16) : memory(&m) {
        const DType statistics = dtype == DType::f64 ? DType::f64 : DType::f32;
        in.query = {m.at(0), dtype, {2, 4, 5, 8}};
        in.key = {m.at(1), dtype, {2, 2, 6, 8}};
        in.value = {m.at(2), dtype, {2, 2, 6, 3}};
        in.atten_mask = {m.at(3), DType::boolean, {2, 4, 5, 6}};
        out.attention_out = {m.at(4), dtype, {2, 4, 5, 3}};
        out.softmax_max = {m.at(5), statistics, {2, 4, 5, 8}};
        out.softmax_sum = {m.at(6), statistics, {2, 4, 5, 8}};
    }

    /// The same problem as BSH.
    void fuse() {
        params.layout = Layout::BSH;
        params.head_num = 4;
        const auto with = [](auto& view, std::initializer_list<std::int64_t> shape) {
            view = {view.data, view.dtype, shape};
        };
        with(in.query, {2, 5, 32});
        with(in.key, {2, 6, 16});
        with(in.value, {2, 6, 6});
        with(out.attention_out, {2, 5, 12});
    }

    /// Packed sequences.
    void pack() {
        params.layout = Layout::TND;
        params.actual_seq_qlen = query_ends;
        params.actual_seq_kvlen = key_ends;
        const auto with = [](auto& view, std::initializer_list<std::int64_t> shape) {
            view = {view.data, view.dtype, shape};
        };
        with(in.query, {10, 4, 8});
        with(in.key, {12, 2, 8});
        with(in.value, {12, 2, 3});
        with(out.attention_out, {10, 4, 3});
        with(out.softmax_max, {10, 4, 8});
        with(out.softmax_sum, {10, 4, 8});
        in.atten_mask = {};
    }

    /// Lengths that agree, as position bias by slopes has it, or S of any size.
    void square(std::int64_t S) {
        const auto with = [](auto& view, std::initializer_list<std::int64_t> shape) {
            view = {view.data, view.dtype, shape};
        };
        with(in.query, {2, 4, S, 8});
        with(in.key, {2, 2, S, 8});
        with(in.value, {2, 2, S, 3});
        with(out.attention_out, {2, 4, S, 3});
        out.softmax_max = {};
        out.softmax_sum = {};
        in.atten_mask = {};
    }

    /// The valid call with 8-bit inputs.
    void quantise() {
        for (ConstTensorView* view : {&in.query, &in.key, &in.value}) view->dtype = DType::f8e4m3;
    }

    CallMemory* memory;
};

struct BackwardCall {
    AttentionParams params;
    BackwardInputs in;
    BackwardOutputs out;

    CallMemory* memory;

    explicit BackwardCall(CallMemory& m, DType dtype = DType::bf16) : memory(&m) {
        const DType statistics = dtype == DType::f64 ? DType::f64 : DType::f32;
        in.query = {m.at(0), dtype, {2, 4, 5, 8}};
        in.key = {m.at(1), dtype, {2, 2, 6, 8}};
        in.value = {m.at(2), dtype, {2, 2, 6, 3}};
        in.atten_mask = {m.at(3), DType::boolean, {2, 4, 5, 6}};
        in.dy = {m.at(4), dtype, {2, 4, 5, 3}};
        in.softmax_max = {m.at(5), statistics, {2, 4, 5, 8}};
        in.softmax_sum = {m.at(6), statistics, {2, 4, 5, 8}};
        in.attention_out = {m.at(7), dtype, {2, 4, 5, 3}};
        out.dq = {m.at(8), dtype, {2, 4, 5, 8}};
        out.dk = {m.at(9), dtype, {2, 2, 6, 8}};
        out.dv = {m.at(10), dtype, {2, 2, 6, 3}};
    }

    /// The valid call with 8-bit inputs.
    void quantise() {
        for (ConstTensorView* view : {&in.query, &in.key, &in.value, &in.dy}) view->dtype = DType::f8e5m2;
    }
};

/// Another shape (and its row-major strides) for a view.
template <class View>
void reshape(View& view, std::initializer_list<std::int64_t> shape) {
    view = {view.data, view.dtype, shape};
}

template <class Call>
struct Refusal {
    const char* name;
    void (*spoil)(Call&);
    const char* text;
};

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// clang-format off
inline const Refusal<ForwardCall> forward_refusals[] = {
    // parameters
    {"layout_unknown", [](ForwardCall& c) { c.params.layout = static_cast<Layout>(9); },
     "layout: given value 9, must be BNSD, BSND, BSH, SBH or TND"},
    {"head_num_negative", [](ForwardCall& c) { c.params.head_num = -1; },
     "head_num: given -1, must be query's head count, or 0 for not given"},
    {"head_num_missing", [](ForwardCall& c) { c.fuse(); c.params.head_num = 0; },
     "head_num: given 0, must be 1 to 256 for layout BSH"},
    {"head_num_contradicts", [](ForwardCall& c) { c.params.head_num = 16; },
     "head_num: given 16, must be query's head count 4 (layout BNSD [B, N, S, D]) or 0"},
    {"sparse_mode_unknown", [](ForwardCall& c) { c.params.sparse_mode = 9; },
     "sparse_mode: given 9, must be 0 to 8"},
    {"sparse_mode_negative", [](ForwardCall& c) { c.params.sparse_mode = -1; },
     "sparse_mode: given -1, must be 0 to 8"},
    {"pse_type_unknown", [](ForwardCall& c) { c.params.pse_type = 4; }, "pse_type: given 4, must be 0 to 3"},
    {"inner_precise", [](ForwardCall& c) { c.params.inner_precise = 3; },
     "inner_precise: given 3, must be 0, 1 or 2"},
    {"rule_unknown", [](ForwardCall& c) { c.params.rule.kind = static_cast<MaskRule::Kind>(4); },
     "rule.kind: given value 4, must be none, causal_top_left, causal_bottom_right or window"},
    {"window_left_negative", [](ForwardCall& c) { c.params.rule = {MaskRule::Kind::window, -5, 0}; },
     "rule.left: given -5, must be 0 or more, or -1 for no bound"},
    {"window_right_negative", [](ForwardCall& c) { c.params.rule = {MaskRule::Kind::window, -1, -3}; },
     "rule.right: given -3, must be 0 or more, or -1 for no bound"},
    {"window_bound_without_window", [](ForwardCall& c) { c.params.rule = {MaskRule::Kind::causal_top_left, 3, -1}; },
     "rule.left: given 3, must be -1 unless rule.kind is window"},
    {"scale_nan", [](ForwardCall& c) { c.params.scale = std::numeric_limits<double>::quiet_NaN(); },
     "scale: given nan, must be a finite number"},
    {"scale_infinite", [](ForwardCall& c) { c.params.scale = -infinity; },
     "scale: given -inf, must be a finite number"},
    {"keep_prob_zero", [](ForwardCall& c) { c.params.keep_prob = 0.0; },
     "keep_prob: given 0, must be more than 0 and at most 1"},
    {"keep_prob_above_1", [](ForwardCall& c) { c.params.keep_prob = 1.5; },
     "keep_prob: given 1.5, must be more than 0 and at most 1"},
    {"keep_prob_nan", [](ForwardCall& c) { c.params.keep_prob = std::numeric_limits<double>::quiet_NaN(); },
     "keep_prob: given nan, must be more than 0 and at most 1"},
    {"softcap_negative", [](ForwardCall& c) { c.params.softcap = -30.0; },
     "softcap: given -30, must be a finite number, 0 (none) or more"},
    {"softcap_infinite", [](ForwardCall& c) { c.params.softcap = infinity; },
     "softcap: given inf, must be a finite number, 0 (none) or more"},
    {"statistics_order_unknown",
     [](ForwardCall& c) { c.params.statistics_order = static_cast<StatisticsOrder>(2); },
     "statistics_order: given value 2, must be by_sequence or by_token"},
    {"statistics_order_not_packed", [](ForwardCall& c) { c.params.statistics_order = StatisticsOrder::by_token; },
     "statistics_order: given by_token, must be by_sequence unless layout is TND"},
    {"ends_not_packed", [](ForwardCall& c) { c.params.actual_seq_kvlen = key_ends; },
     "actual_seq_kvlen: 3 entries, must be absent unless layout is TND"},
    // tensors on their own
    {"query_absent", [](ForwardCall& c) { c.in.query = {}; }, "query: absent, must be given"},
    {"key_absent", [](ForwardCall& c) { c.in.key = {}; }, "key: absent, must be given"},
    {"value_absent", [](ForwardCall& c) { c.in.value = {}; }, "value: absent, must be given"},
    {"attention_out_absent", [](ForwardCall& c) { c.out.attention_out = {}; }, "attention_out: absent, must be given"},
    {"query_null", [](ForwardCall& c) { c.in.query.data = nullptr; },
     "query: data is null, must point to shape [2, 4, 5, 8]"},
    {"value_null", [](ForwardCall& c) { c.in.value.data = nullptr; },
     "value: data is null, must point to shape [2, 2, 6, 3]"},
    {"attention_out_null", [](ForwardCall& c) { c.out.attention_out.data = nullptr; },
     "attention_out: data is null, must point to shape [2, 4, 5, 3]"},
    {"query_rank", [](ForwardCall& c) { reshape(c.in.query, {8, 5, 8}); },
     "query: rank is 3, must be 4 for layout BNSD [B, N, S, D]"},
    {"key_rank_fused", [](ForwardCall& c) { c.fuse(); reshape(c.in.key, {2, 2, 6, 8}); },
     "key: rank is 4, must be 3 for layout BSH [B, S, N*D]"},
    {"rank_out_of_range", [](ForwardCall& c) { c.in.key.rank = 9; }, "key: rank is 9, must be 0 to 8"},
    {"rank_negative", [](ForwardCall& c) { c.in.key.rank = -1; }, "key: rank is -1, must be 0 to 8"},
    {"extent_negative", [](ForwardCall& c) { c.in.key.shape[2] = -6; },
     "key: shape is [2, 2, -6, 8], every extent must be 0 to 281474976710656"},
    {"strides_out_of_reach", [](ForwardCall& c) { c.in.key.stride[0] = std::int64_t{1} << 62; },
     "key: strides are [4611686018427387904, 48, 8, 1], every element must lie within 2^62 bytes of the first"},
    {"stride_smallest", [](ForwardCall& c) { c.in.key.stride[2] = std::numeric_limits<std::int64_t>::min(); },
     "key: strides are [96, 48, -9223372036854775808, 1], every element must lie within 2^62 bytes of the first"},
    {"query_dtype", [](ForwardCall& c) { c.in.query.dtype = DType::u8; },
     "query: dtype is u8, must be f64, f32, bf16, f16, f8e4m3 or f8e5m2"},
    {"query_dtype_unknown", [](ForwardCall& c) { c.in.query.dtype = static_cast<DType>(77); },
     "query: dtype is value 77, must be f64, f32, bf16, f16, f8e4m3 or f8e5m2"},
    {"key_dtype", [](ForwardCall& c) { c.in.key.dtype = DType::f16; }, "key: dtype is f16, must equal query's bf16"},
    {"value_dtype", [](ForwardCall& c) { c.in.value.dtype = DType::f32; },
     "value: dtype is f32, must equal query's bf16"},
    // together
    {"key_batch", [](ForwardCall& c) { reshape(c.in.key, {3, 2, 6, 8}); }, "key: batch is 3, must equal query's 2"},
    {"value_batch", [](ForwardCall& c) { reshape(c.in.value, {1, 2, 6, 3}); },
     "value: batch is 1, must equal query's 2"},
    {"key_head_dim", [](ForwardCall& c) { reshape(c.in.key, {2, 2, 6, 7}); },
     "key: head_dim is 7, must equal query's 8"},
    {"value_heads", [](ForwardCall& c) { reshape(c.in.value, {2, 1, 6, 3}); },
     "value: head count is 1, must equal key's 2"},
    {"value_length", [](ForwardCall& c) { reshape(c.in.value, {2, 2, 5, 3}); },
     "value: length is 5, must equal key's 6"},
    {"heads_do_not_divide", [](ForwardCall& c) { reshape(c.in.key, {2, 3, 6, 8}); reshape(c.in.value, {2, 3, 6, 3}); },
     "key: head count is 3, must divide query's 4"},
    {"more_kv_heads", [](ForwardCall& c) { reshape(c.in.key, {2, 8, 6, 8}); reshape(c.in.value, {2, 8, 6, 3}); },
     "key: head count is 8, must divide query's 4"},
    {"query_last_axis", [](ForwardCall& c) { c.fuse(); reshape(c.in.query, {2, 5, 30}); },
     "query: last axis is 30, must be a multiple of head_num 4 (layout BSH [B, S, N*D])"},
    {"key_last_axis", [](ForwardCall& c) { c.fuse(); reshape(c.in.key, {2, 6, 15}); },
     "key: last axis is 15, must be a multiple of query's head_dim 8 (layout BSH [B, S, N*D])"},
    {"value_last_axis", [](ForwardCall& c) { c.fuse(); reshape(c.in.value, {2, 6, 7}); },
     "value: last axis is 7, must be a multiple of key's head count 2 (layout BSH [B, S, N*D])"},
    {"attention_out_last_axis", [](ForwardCall& c) { c.fuse(); reshape(c.out.attention_out, {2, 5, 32}); },
     "attention_out: last axis is 32, must be 12 (query's head count 4 times value's head_dim 3)"},
    {"batch_limit", [](ForwardCall& c) { reshape(c.in.query, {2097153, 4, 5, 8}); reshape(c.in.key, {2097153, 2, 6, 8});
                                         reshape(c.in.value, {2097153, 2, 6, 3}); },
     "query: batch is 2097153, must be at most 2097152"},
    {"query_length_limit", [](ForwardCall& c) { reshape(c.in.query, {2, 4, 1048577, 8}); },
     "query: length is 1048577, must be at most 1048576"},
    {"key_length_limit", [](ForwardCall& c) { reshape(c.in.key, {2, 2, 1048577, 8});
                                              reshape(c.in.value, {2, 2, 1048577, 3}); },
     "key: length is 1048577, must be at most 1048576"},
    {"query_heads_limit", [](ForwardCall& c) { reshape(c.in.query, {2, 258, 5, 8}); },
     "query: head count is 258, must be at most 256"},
    {"key_heads_limit", [](ForwardCall& c) { reshape(c.in.query, {2, 0, 5, 8}); reshape(c.in.key, {2, 257, 6, 8});
                                             reshape(c.in.value, {2, 257, 6, 3}); },
     "key: head count is 257, must be at most 256"},
    {"head_dim_limit", [](ForwardCall& c) { reshape(c.in.query, {2, 4, 5, 769}); reshape(c.in.key, {2, 2, 6, 769}); },
     "query: head_dim is 769, must be at most 768"},
    {"value_head_dim_limit", [](ForwardCall& c) { reshape(c.in.value, {2, 2, 6, 769}); },
     "value: head_dim is 769, must be at most 768"},
    {"head_dim_zero", [](ForwardCall& c) { reshape(c.in.query, {2, 4, 5, 0}); reshape(c.in.key, {2, 2, 6, 0}); },
     "query: head_dim is 0, must be 1 to 768, or value's must be 0 too"},
    {"rank_packed", [](ForwardCall& c) { c.params.layout = Layout::TND; },
     "query: rank is 4, must be 3 for layout TND [T, N, D]"},
    {"head_num_packed", [](ForwardCall& c) { c.pack(); c.params.head_num = 10; },
     "head_num: given 10, must be query's head count 4 (layout TND [T, N, D]) or 0"},
    {"rows_limit", [](ForwardCall& c) { c.pack(); reshape(c.in.query, {1048577, 4, 8}); },
     "query: length is 1048577, must be at most 1048576"},
    {"query_rope_alone", [](ForwardCall& c) { c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 4, 5, 4}}; },
     "key_rope: absent, must be given when query_rope is"},
    {"key_rope_alone", [](ForwardCall& c) { c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 2, 6, 4}}; },
     "query_rope: absent, must be given when key_rope is"},
    {"query_rope_dtype", [](ForwardCall& c) { c.in.query_rope = {c.memory->at(16), DType::f16, {2, 4, 5, 4}};
                                              c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 2, 6, 4}}; },
     "query_rope: dtype is f16, must equal query's bf16"},
    {"query_rope_length", [](ForwardCall& c) { c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 4, 6, 4}};
                                               c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 2, 6, 4}}; },
     "query_rope: length is 6, must equal query's 5"},
    {"key_rope_columns", [](ForwardCall& c) { c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 4, 5, 4}};
                                              c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 2, 6, 2}}; },
     "key_rope: head_dim is 2, must equal query_rope's 4"},
    {"query_rope_last_axis", [](ForwardCall& c) { c.fuse();
                                                  c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 5, 14}};
                                                  c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 6, 8}}; },
     "query_rope: last axis is 14, must be a multiple of query's head count 4 (layout BSH [B, S, N*D])"},
    {"rope_limit", [](ForwardCall& c) { c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 4, 5, 761}};
                                        c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 2, 6, 761}}; },
     "query_rope: head_dim is 761, must be at most 760 beside query's head_dim 8"},
    // sequences
    {"qlen_absent", [](ForwardCall& c) { c.pack(); c.params.actual_seq_qlen = {}; },
     "actual_seq_qlen: absent, must be given in layout TND"},
    {"kvlen_absent", [](ForwardCall& c) { c.pack(); c.params.actual_seq_kvlen = {}; },
     "actual_seq_kvlen: absent, must be given in layout TND"},
    {"ends_disagree", [](ForwardCall& c) { c.pack(); c.params.actual_seq_kvlen = std::span(key_ends, 2); },
     "actual_seq_kvlen: 2 entries, must be 3 as in actual_seq_qlen"},
    {"sequences_limit", [](ForwardCall& c) { c.pack(); c.params.actual_seq_qlen = zeros; },
     "actual_seq_qlen: 20001 entries, must be at most 20000"},
    {"ends_negative", [](ForwardCall& c) { c.pack(); static const std::int64_t ends[] = {3, -1, 10};
                                           c.params.actual_seq_qlen = ends; },
     "actual_seq_qlen: entry 1 is -1, must be 0 or more"},
    {"ends_fall", [](ForwardCall& c) { c.pack(); static const std::int64_t ends[] = {6, 5, 12};
                                       c.params.actual_seq_kvlen = ends; },
     "actual_seq_kvlen: entry 1 is 5, must be at least entry 0's 6, or 0 (not there)"},
    {"ends_rise_after_0", [](ForwardCall& c) { c.pack(); static const std::int64_t ends[] = {3, 0, 10};
                                               c.params.actual_seq_qlen = ends; },
     "actual_seq_qlen: entry 2 is 10, must be 0 after entry 1, which is 0"},
    {"ends_beyond_rows", [](ForwardCall& c) { c.pack(); static const std::int64_t ends[] = {3, 3, 11};
                                              c.params.actual_seq_qlen = ends; },
     "actual_seq_qlen: ends at 11, must be at most query's 10"},
    // numbers narrowed with the dtype
    {"scale_beyond_f32", [](ForwardCall& c) { c.params.scale = 1e300; },
     "scale: given 1e+300, must be finite in f32 unless the tensors are f64"},
    {"softcap_beyond_f32", [](ForwardCall& c) { c.params.softcap = 1e300; },
     "softcap: given 1e+300, must be 0, or a normal number in f32 unless the tensors are f64"},
    {"softcap_below_f32", [](ForwardCall& c) { c.params.softcap = 1e-40; },
     "softcap: given 1e-40, must be 0, or a normal number in f32 unless the tensors are f64"},
    {"keep_prob_below_f32", [](ForwardCall& c) { c.params.keep_prob = 1e-50; },
     "keep_prob: given 1e-50, must be a normal number in f32 unless the tensors are f64"},
    // dequantisation factors
    {"d_scale_without_8bit", [](ForwardCall& c) { c.in.d_scale_q = {c.memory->at(16), DType::f32, {2, 4, 1, 1}}; },
     "d_scale_q: shape is [2, 4, 1, 1], must be absent unless query is f8e4m3 or f8e5m2"},
    {"d_scale_q_shape", [](ForwardCall& c) { c.quantise(); c.in.d_scale_q = {c.memory->at(16), DType::f32, {2, 4, 1}}; },
     "d_scale_q: shape is [2, 4, 1], must be [2, 4, 1, 1] or [2, 2, 2, 1, 1]"},
    {"d_scale_v_shape", [](ForwardCall& c) { c.quantise(); c.in.d_scale_v = {c.memory->at(16), DType::f32, {2, 4, 1, 1}}; },
     "d_scale_v: shape is [2, 4, 1, 1], must be [2, 2, 1, 1] or [2, 2, 1, 1, 1]"},
    {"d_scale_k_dtype", [](ForwardCall& c) { c.quantise(); c.in.d_scale_k = {c.memory->at(16), DType::f16, {2, 2, 1, 1}}; },
     "d_scale_k: dtype is f16, must be f32"},
    {"d_scale_q_strides", [](ForwardCall& c) { c.quantise();
                                               c.in.d_scale_q = {c.memory->at(16), DType::f32, {2, 2, 2, 1, 1}};
                                               c.in.d_scale_q.stride[1] = 7; },
     "d_scale_q: strides are [4, 7, 1, 1, 1], axes 1 and 2 must be one row of heads"},
    // outputs
    {"attention_out_dtype_8bit", [](ForwardCall& c) { c.quantise(); c.out.attention_out.dtype = DType::f8e4m3; },
     "attention_out: dtype is f8e4m3, must be bf16, f16 or f32 for query's f8e4m3"},
    {"attention_out_dtype", [](ForwardCall& c) { c.out.attention_out.dtype = DType::f16; },
     "attention_out: dtype is f16, must be query's bf16 or f32"},
    {"attention_out_batch", [](ForwardCall& c) { reshape(c.out.attention_out, {3, 4, 5, 3}); },
     "attention_out: batch is 3, must equal query's 2"},
    {"attention_out_heads", [](ForwardCall& c) { reshape(c.out.attention_out, {2, 2, 5, 3}); },
     "attention_out: head count is 2, must equal query's 4"},
    {"attention_out_length", [](ForwardCall& c) { reshape(c.out.attention_out, {2, 4, 6, 3}); },
     "attention_out: length is 6, must equal query's 5"},
    {"attention_out_columns", [](ForwardCall& c) { reshape(c.out.attention_out, {2, 4, 5, 8}); },
     "attention_out: head_dim is 8, must equal value's 3"},
    {"attention_out_stride_0", [](ForwardCall& c) { c.out.attention_out.stride[2] = 0; },
     "attention_out: stride of axis 2 is 0, elements of an output must not share an address"},
    {"attention_out_strides_alike", [](ForwardCall& c) { c.out.attention_out.stride[1] = 60; },
     "attention_out: strides are [60, 60, 3, 1], elements of an output must not share an address"},
    {"attention_out_strides_opposite", [](ForwardCall& c) { c.out.attention_out.stride[1] = -60; },
     "attention_out: strides are [60, -60, 3, 1], elements of an output must not share an address"},
    {"softmax_max_shape", [](ForwardCall& c) { reshape(c.out.softmax_max, {2, 5, 4, 8}); },
     "softmax_max: shape is [2, 5, 4, 8], must be [2, 4, 5, 8], [2, 4, 5, 1] or [2, 4, 5]"},
    {"softmax_sum_rank", [](ForwardCall& c) { reshape(c.out.softmax_sum, {40}); },
     "softmax_sum: shape is [40], must be [2, 4, 5, 8], [2, 4, 5, 1] or [2, 4, 5]"},
    {"softmax_max_dtype", [](ForwardCall& c) { c.out.softmax_max.dtype = DType::bf16; },
     "softmax_max: dtype is bf16, must be f32 for query's bf16"},
    {"softmax_sum_stride_0", [](ForwardCall& c) { c.out.softmax_sum.stride[3] = 0; },
     "softmax_sum: stride of axis 3 is 0, elements of an output must not share an address"},
    {"softmax_max_shape_packed", [](ForwardCall& c) { c.pack(); reshape(c.out.softmax_max, {4, 10, 8}); },
     "softmax_max: shape is [4, 10, 8], must be [10, 4, 8], [10, 4, 1] or [10, 4]"},
    {"softmax_max_strides_packed", [](ForwardCall& c) { c.pack(); c.out.softmax_max.stride[0] = 40; },
     "softmax_max: strides are [40, 8, 1], axes 0 and 1 must be one row of rows in statistics_order by_sequence"},
    {"sink_shape", [](ForwardCall& c) { c.in.sink = {c.memory->at(16), DType::f32, {2}}; },
     "sink: shape is [2], must be [4]"},
    {"sink_dtype", [](ForwardCall& c) { c.in.sink = {c.memory->at(16), DType::bf16, {4}}; },
     "sink: dtype is bf16, must be f32"},
    {"attention_out_is_query", [](ForwardCall& c) { c.out.attention_out.data = const_cast<void*>(c.in.query.data); },
     "attention_out: data is query's, must not overlap an input"},
    {"softmax_sum_is_softmax_max", [](ForwardCall& c) { c.out.softmax_sum.data = c.out.softmax_max.data; },
     "softmax_sum: data is softmax_max's, must not overlap another output"},
    {"softmax_sum_in_softmax_max",
     [](ForwardCall& c) { c.out.softmax_sum.data = static_cast<std::byte*>(c.out.softmax_max.data) + 4; },
     "softmax_sum: data is shared with softmax_max's, must not overlap another output"},
    {"statistics_with_gaps_begin_alike",
     [](ForwardCall& c) { c.out.softmax_max.stride = c.out.softmax_sum.stride = {320, 80, 16, 2};
                          c.out.softmax_sum.data = c.out.softmax_max.data; },
     "softmax_sum: data is softmax_max's, must not overlap another output"},
    {"attention_out_over_key", [](ForwardCall& c) { c.out.attention_out.data = c.memory->at(1) - 2; },
     "attention_out: data is shared with key's, must not overlap an input"},
    // mask and band
    {"mask_dtype", [](ForwardCall& c) { c.in.atten_mask.dtype = DType::f32; },
     "atten_mask: dtype is f32, must be bool or u8"},
    {"mask_key_padding", [](ForwardCall& c) { reshape(c.in.atten_mask, {2, 1, 1, 6}); },
     "atten_mask: shape is [2, 1, 1, 6], must be [2, 4, 5, 6], [2, 1, 5, 6], [1, 1, 5, 6] or [5, 6] in sparse_mode 0"},
    {"mask_one_batch_all_heads", [](ForwardCall& c) { reshape(c.in.atten_mask, {1, 4, 5, 6}); },
     "atten_mask: shape is [1, 4, 5, 6], must be [2, 4, 5, 6], [2, 1, 5, 6], [1, 1, 5, 6] or [5, 6] in sparse_mode 0"},
    {"mask_rank", [](ForwardCall& c) { c.params.sparse_mode = 1; reshape(c.in.atten_mask, {4, 5, 6}); },
     "atten_mask: shape is [4, 5, 6], must be [2, 4, 5, 6], [2, 1, 5, 6], [1, 1, 5, 6] or [5, 6] in sparse_mode 1"},
    {"mask_not_compressed", [](ForwardCall& c) { c.params.sparse_mode = 2; },
     "atten_mask: shape is [2, 4, 5, 6], must be [2048, 2048] or [1, 1, 2048, 2048] in sparse_mode 2"},
    {"mask_compressed_in_mode_0", [](ForwardCall& c) { reshape(c.in.atten_mask, {2048, 2048}); },
     "atten_mask: shape is [2048, 2048], must be [2, 4, 5, 6], [2, 1, 5, 6], [1, 1, 5, 6] or [5, 6] in sparse_mode 0"},
    {"tokens_both_negative", [](ForwardCall& c) { c.params.pre_tokens = -1; c.params.next_tokens = -2; },
     "pre_tokens: given -1 with next_tokens -2, must not both be negative in sparse_mode 0"},
    {"tokens_cross", [](ForwardCall& c) { c.params.pre_tokens = 2; c.params.next_tokens = -3; },
     "pre_tokens: given 2 with next_tokens -3, must add up to 0 or more in sparse_mode 0"},
    {"tokens_cross_in_mode_4",
     [](ForwardCall& c) { c.params.sparse_mode = 4; reshape(c.in.atten_mask, {2048, 2048});
                          c.params.pre_tokens = -4; c.params.next_tokens = 3; },
     "pre_tokens: given -4 with next_tokens 3, must add up to 0 or more in sparse_mode 4"},
    {"mask_not_prefix_template", [](ForwardCall& c) { c.params.sparse_mode = 6; c.params.prefix = prefixes;
                                                      reshape(c.in.atten_mask, {2048, 2048}); },
     "atten_mask: shape is [2048, 2048], must be [3072, 2048] or [1, 1, 3072, 2048] in sparse_mode 6"},
    {"mask_packed", [](ForwardCall& c) { c.pack(); c.in.atten_mask = {c.memory->at(3), DType::u8, {3, 2, 7, 6}}; },
     "atten_mask: shape is [3, 2, 7, 6], must be [7, 6], [1, 1, 7, 6], [10, 12], [3, 1, 7, 6] or [3, 4, 7, 6] in "
     "sparse_mode 0"},
    {"mask_packed_strides", [](ForwardCall& c) { c.pack(); c.in.atten_mask = {c.memory->at(3), DType::u8, {3, 1, 7, 6}};
                                                 c.in.atten_mask.stride[2] = 8; },
     "atten_mask: strides are [42, 42, 8, 1], must be one row of packed elements"},
    {"mode_5_packed", [](ForwardCall& c) { c.pack(); c.params.sparse_mode = 5;
                                           c.in.atten_mask = {c.memory->at(3), DType::u8, {7, 6}}; },
     "sparse_mode: given 5, must not be 5 in layout TND"},
    {"mode_7_not_packed", [](ForwardCall& c) { c.params.sparse_mode = 7; reshape(c.in.atten_mask, {2048, 2048}); },
     "sparse_mode: given 7, must be 0 to 6 unless layout is TND"},
    {"tokens_cross_in_mode_8", [](ForwardCall& c) { c.pack(); c.params.sparse_mode = 8; c.params.pre_tokens = 1;
         c.params.next_tokens = -2; c.in.atten_mask = {c.memory->at(3), DType::u8, {2048, 2048}}; },
     "pre_tokens: given 1 with next_tokens -2, must add up to 0 or more in sparse_mode 8"},
    {"prefix_absent", [](ForwardCall& c) { c.params.sparse_mode = 6; reshape(c.in.atten_mask, {3072, 2048}); },
     "prefix: absent, must be given in sparse_mode 6"},
    {"prefix_entries", [](ForwardCall& c) { c.params.sparse_mode = 6; c.params.prefix = std::span(prefixes, 1);
                                            reshape(c.in.atten_mask, {3072, 2048}); },
     "prefix: 1 entries, must be 2, one a batch"},
    {"prefix_low", [](ForwardCall& c) { static const std::int64_t prefix[] = {4, 0}; c.params.sparse_mode = 6;
                                        c.params.prefix = prefix; reshape(c.in.atten_mask, {3072, 2048}); },
     "prefix: entry 1 is 0, must be 1 to 6 in sparse_mode 6 with lengths 5 and 6"},
    {"prefix_high_in_mode_5", [](ForwardCall& c) { static const std::int64_t prefix[] = {7, 4}; c.params.sparse_mode = 5;
                                                   c.params.prefix = prefix; },
     "prefix: entry 0 is 7, must be 1 to 6 in sparse_mode 5 with lengths 5 and 6"},
    {"prefix_limit", [](ForwardCall& c) { c.params.sparse_mode = 6; c.params.prefix = std::span(zeros, 2049);
                                          reshape(c.in.query, {2049, 4, 6, 1}); reshape(c.in.key, {2049, 2, 6, 1});
                                          reshape(c.in.value, {2049, 2, 6, 1}); reshape(c.out.attention_out, {2049, 4, 6, 1});
                                          c.out.softmax_max = c.out.softmax_sum = {};
                                          reshape(c.in.atten_mask, {3072, 2048}); },
     "prefix: 2049 entries, must be at most 2048"},
    {"prefix_limit_packed", [](ForwardCall& c) { c.pack(); c.params.sparse_mode = 6; c.params.prefix = std::span(zeros, 1025);
                                                 c.params.actual_seq_qlen = std::span(zeros, 1025);
                                                 c.params.actual_seq_kvlen = std::span(zeros, 1025);
                                                 c.in.atten_mask = {c.memory->at(3), DType::u8, {3072, 2048}}; },
     "prefix: 1025 entries, must be at most 1024"},
    // position bias
    {"pse_absent", [](ForwardCall& c) { c.params.pse_type = 2; }, "pse: absent, must be given in pse_type 2"},
    {"pse_shape", [](ForwardCall& c) { c.in.pse = {c.memory->at(16), DType::bf16, {2, 4, 6, 5}}; },
     "pse: shape is [2, 4, 6, 5], must be [2 or 1, 4 or 1, 5 or 1, 6], or [2 or 1, 4, 1024, 6]"},
    {"pse_dtype", [](ForwardCall& c) { c.in.pse = {c.memory->at(16), DType::f16, {2, 4, 5, 6}}; },
     "pse: dtype is f16, must be query's bf16 or f32"},
    {"pse_dtype_8bit", [](ForwardCall& c) { c.quantise(); c.in.pse = {c.memory->at(16), DType::f8e4m3, {2, 4, 5, 6}}; },
     "pse: dtype is f8e4m3, must be bf16, f16 or f32 for query's f8e4m3"},
    {"pse_compressed_short", [](ForwardCall& c) { c.in.pse = {c.memory->at(16), DType::bf16, {1, 4, 1024, 6}}; },
     "pse: shape is [1, 4, 1024, 6], 1024 rows (compressed) need S1 = S2 of 1024 or more, they are 5 and 6"},
    {"pse_compressed_not_causal", [](ForwardCall& c) { c.square(2000);
                                                       c.in.pse = {c.memory->at(16), DType::bf16, {1, 4, 1024, 2000}}; },
     "pse: shape is [1, 4, 1024, 2000], 1024 rows (compressed) need a causal rule: sparse_mode, tokens and rule must "
     "hide every j > i"},
    {"pse_packed", [](ForwardCall& c) { c.pack(); c.in.pse = {c.memory->at(16), DType::bf16, {185}}; },
     "pse: shape is [185], must be [184], [48], [3, 4, 1024, 6] or [1, 4, 1024, 6] in layout TND"},
    {"pse_packed_compressed", [](ForwardCall& c) { c.pack(); c.in.pse = {c.memory->at(16), DType::bf16, {3, 4, 1024, 6}}; },
     "pse: shape is [3, 4, 1024, 6], 1024 rows (compressed) need Sq = Skv in every sequence, sequence 0 has 3 and 6"},
    {"slopes_dtype", [](ForwardCall& c) { c.params.pse_type = 3; c.in.pse = {c.memory->at(16), DType::bf16, {2, 4}}; },
     "pse: dtype is bf16, must be f32 in pse_type 3"},
    {"slopes_shape", [](ForwardCall& c) { c.params.pse_type = 2; c.in.pse = {c.memory->at(16), DType::f32, {1, 4}}; },
     "pse: shape is [1, 4], must be [2, 4] or [4] in pse_type 2"},
    {"q_start_idx", [](ForwardCall& c) { c.params.pse_type = 2; c.params.q_start_idx = -2147483648;
                                         c.in.pse = {c.memory->at(16), DType::f32, {4}}; },
     "q_start_idx: given -2147483648, must be -2147483647 to 2147483647"},
    {"pse_in_mode_7", [](ForwardCall& c) { c.pack(); c.params.sparse_mode = 7; c.params.pse_type = 2;
         c.in.atten_mask = {c.memory->at(3), DType::u8, {2048, 2048}}; c.in.pse = {c.memory->at(16), DType::f32, {4}}; },
     "pse: shape is [4], must be absent in sparse_mode 7"},
    {"pse_in_mode_8", [](ForwardCall& c) { c.pack(); c.params.sparse_mode = 8;
         c.in.atten_mask = {c.memory->at(3), DType::u8, {2048, 2048}}; c.in.pse = {c.memory->at(16), DType::bf16, {184}}; },
     "pse: shape is [184], must be absent or of pse_type 2 or 3 in sparse_mode 8"},
    {"slopes_in_mode_8", [](ForwardCall& c) { c.pack(); c.params.sparse_mode = 8; c.params.pse_type = 2;
         c.in.atten_mask = {c.memory->at(3), DType::u8, {2048, 2048}}; c.in.pse = {c.memory->at(16), DType::f32, {4}}; },
     "pse: sequence 1 has lengths 0 and 2, must be equal after the first in sparse_mode 8"},
    {"start_in_mode_8", [](ForwardCall& c) { c.pack(); static const std::int64_t ends[] = {3, 3, 9};
         static const std::int64_t others[] = {6, 6, 12}; c.params.actual_seq_qlen = ends; c.params.actual_seq_kvlen = others;
         c.params.sparse_mode = 8; c.params.pse_type = 2; c.params.q_start_idx = 2;
         c.in.atten_mask = {c.memory->at(3), DType::u8, {2048, 2048}}; c.in.pse = {c.memory->at(16), DType::f32, {4}}; },
     "q_start_idx: given 2 with kv_start_idx 0, must be kv_start_idx + 3 (Skv - Sq of the first sequence) in sparse_mode 8"},
    // dropout
    {"drop_mask_dtype", [](ForwardCall& c) { c.params.keep_prob = 0.5; c.in.drop_mask = {c.memory->at(16), DType::boolean, {30}}; },
     "drop_mask: dtype is bool, must be u8"},
    {"drop_mask_short", [](ForwardCall& c) { c.params.keep_prob = 0.5; c.in.drop_mask = {c.memory->at(16), DType::u8, {29}}; },
     "drop_mask: shape is [29], must be at least 30 bytes for 240 bits"},
    {"drop_mask_short_packed", [](ForwardCall& c) { c.pack(); c.params.keep_prob = 0.5;
                                                    c.in.drop_mask = {c.memory->at(16), DType::u8, {22}}; },
     "drop_mask: shape is [22], must be at least 23 bytes for 184 bits"},
    {"drop_mask_short_by_a_part", [](ForwardCall& c) { c.pack(); static const std::int64_t ends[] = {5, 8, 12};
         c.params.actual_seq_kvlen = ends; c.params.keep_prob = 0.5; c.in.drop_mask = {c.memory->at(16), DType::u8, {21}}; },
     "drop_mask: shape is [21], must be at least 22 bytes for 172 bits"},
    {"drop_mask_strides", [](ForwardCall& c) { c.params.keep_prob = 0.5; c.in.drop_mask = {c.memory->at(16), DType::u8, {30}};
                                               c.in.drop_mask.stride[0] = 2; },
     "drop_mask: strides are [2], must be contiguous"},
};

inline const Refusal<BackwardCall> backward_refusals[] = {
    // The rules above hold here too; one stands for each group.
    {"layout_unknown", [](BackwardCall& c) { c.params.layout = static_cast<Layout>(5); },
     "layout: given value 5, must be BNSD, BSND, BSH, SBH or TND"},
    {"keep_prob", [](BackwardCall& c) { c.params.keep_prob = -0.5; },
     "keep_prob: given -0.5, must be more than 0 and at most 1"},
    {"pse_shape", [](BackwardCall& c) { c.in.pse = {c.memory->at(16), DType::bf16, {5, 6}}; },
     "pse: shape is [5, 6], must be [2 or 1, 4 or 1, 5 or 1, 6], or [2 or 1, 4, 1024, 6]"},
    {"key_absent", [](BackwardCall& c) { c.in.key = {}; }, "key: absent, must be given"},
    {"value_length", [](BackwardCall& c) { reshape(c.in.value, {2, 2, 5, 3}); },
     "value: length is 5, must equal key's 6"},
    {"mask_shape", [](BackwardCall& c) { reshape(c.in.atten_mask, {6, 5}); },
     "atten_mask: shape is [6, 5], must be [2, 4, 5, 6], [2, 1, 5, 6], [1, 1, 5, 6] or [5, 6] in sparse_mode 0"},
    {"tokens_cross", [](BackwardCall& c) { c.params.pre_tokens = -3; c.params.next_tokens = 2; },
     "pre_tokens: given -3 with next_tokens 2, must add up to 0 or more in sparse_mode 0"},
    // what only the gradient has
    {"dy_absent", [](BackwardCall& c) { c.in.dy = {}; }, "dy: absent, must be given"},
    {"dy_null", [](BackwardCall& c) { c.in.dy.data = nullptr; }, "dy: data is null, must point to shape [2, 4, 5, 3]"},
    {"dy_rank", [](BackwardCall& c) { reshape(c.in.dy, {40, 3}); },
     "dy: rank is 2, must be 4 for layout BNSD [B, N, S, D]"},
    {"dy_dtype", [](BackwardCall& c) { c.in.dy.dtype = DType::f32; }, "dy: dtype is f32, must equal query's bf16"},
    {"dy_batch", [](BackwardCall& c) { reshape(c.in.dy, {1, 4, 5, 3}); }, "dy: batch is 1, must equal query's 2"},
    {"dy_heads", [](BackwardCall& c) { reshape(c.in.dy, {2, 2, 5, 3}); }, "dy: head count is 2, must equal query's 4"},
    {"dy_length", [](BackwardCall& c) { reshape(c.in.dy, {2, 4, 6, 3}); }, "dy: length is 6, must equal query's 5"},
    {"dy_columns", [](BackwardCall& c) { reshape(c.in.dy, {2, 4, 5, 8}); }, "dy: head_dim is 8, must equal value's 3"},
    {"softmax_max_absent", [](BackwardCall& c) { c.in.softmax_max = {}; }, "softmax_max: absent, must be given"},
    {"softmax_sum_absent", [](BackwardCall& c) { c.in.softmax_sum = {}; }, "softmax_sum: absent, must be given"},
    {"softmax_max_null", [](BackwardCall& c) { c.in.softmax_max.data = nullptr; },
     "softmax_max: data is null, must point to shape [2, 4, 5, 8]"},
    {"softmax_sum_shape", [](BackwardCall& c) { reshape(c.in.softmax_sum, {2, 4, 5, 4}); },
     "softmax_sum: shape is [2, 4, 5, 4], must be [2, 4, 5, 8], [2, 4, 5, 1] or [2, 4, 5]"},
    {"softmax_max_dtype", [](BackwardCall& c) { c.in.softmax_max.dtype = DType::f64; },
     "softmax_max: dtype is f64, must be f32 for query's bf16"},
    {"attention_out_absent", [](BackwardCall& c) { c.in.attention_out = {}; }, "attention_out: absent, must be given"},
    {"attention_out_dtype", [](BackwardCall& c) { c.in.attention_out.dtype = DType::f16; },
     "attention_out: dtype is f16, must be query's bf16 or f32"},
    {"attention_out_columns", [](BackwardCall& c) { reshape(c.in.attention_out, {2, 4, 5, 8}); },
     "attention_out: head_dim is 8, must equal value's 3"},
    {"no_output", [](BackwardCall& c) { c.out = {}; },
     "dq: absent, and so are dk, dv, dq_rope, dk_rope, dpse and dsink, at least one must be given"},
    {"dq_dtype", [](BackwardCall& c) { c.out.dq.dtype = DType::f32; }, "dq: dtype is f32, must equal query's bf16"},
    {"dq_length", [](BackwardCall& c) { reshape(c.out.dq, {2, 4, 6, 8}); }, "dq: length is 6, must equal query's 5"},
    {"dk_heads", [](BackwardCall& c) { reshape(c.out.dk, {2, 4, 6, 8}); }, "dk: head count is 4, must equal key's 2"},
    {"dk_head_dim", [](BackwardCall& c) { reshape(c.out.dk, {2, 2, 6, 3}); }, "dk: head_dim is 3, must equal key's 8"},
    {"dv_head_dim", [](BackwardCall& c) { reshape(c.out.dv, {2, 2, 6, 8}); },
     "dv: head_dim is 8, must equal value's 3"},
    {"dv_stride_0", [](BackwardCall& c) { c.out.dv.stride[1] = 0; },
     "dv: stride of axis 1 is 0, elements of an output must not share an address"},
    {"dlse_shape", [](BackwardCall& c) { c.in.dlse = {c.memory->at(16), DType::f32, {2, 5, 4}}; },
     "dlse: shape is [2, 5, 4], must be [2, 4, 5, 8], [2, 4, 5, 1] or [2, 4, 5]"},
    {"dlse_dtype", [](BackwardCall& c) { c.in.dlse = {c.memory->at(16), DType::bf16, {2, 4, 5}}; },
     "dlse: dtype is bf16, must be f32 for query's bf16"},
    {"d_scale_dy_shape", [](BackwardCall& c) { c.quantise(); c.in.d_scale_dy = {c.memory->at(16), DType::f32, {2, 2, 1, 1}}; },
     "d_scale_dy: shape is [2, 2, 1, 1], must be [2, 4, 1, 1] or [2, 2, 2, 1, 1]"},
    {"attention_out_8bit", [](BackwardCall& c) { c.quantise(); c.in.attention_out.dtype = DType::f8e5m2; },
     "attention_out: dtype is f8e5m2, must be bf16, f16 or f32 for query's f8e5m2"},
    {"dq_8bit", [](BackwardCall& c) { c.quantise(); c.out.dq.dtype = DType::f8e5m2; },
     "dq: dtype is f8e5m2, must be bf16, f16 or f32 for query's f8e5m2"},
    {"dq_rope_without_rope", [](BackwardCall& c) { c.out.dq_rope = {c.memory->at(16), DType::bf16, {2, 4, 5, 4}}; },
     "dq_rope: shape is [2, 4, 5, 4], must be absent without query_rope and key_rope"},
    {"dk_rope_columns", [](BackwardCall& c) { c.in.query_rope = {c.memory->at(16), DType::bf16, {2, 4, 5, 4}};
         c.in.key_rope = {c.memory->at(17), DType::bf16, {2, 2, 6, 4}};
         c.out.dk_rope = {c.memory->at(18), DType::bf16, {2, 2, 6, 8}}; },
     "dk_rope: head_dim is 8, must equal query_rope's 4"},
    {"dpse_without_pse", [](BackwardCall& c) { c.out.dpse = {c.memory->at(16), DType::bf16, {2, 4, 5, 6}}; },
     "dpse: shape is [2, 4, 5, 6], must be absent without pse"},
    {"dpse_shape", [](BackwardCall& c) { c.in.pse = {c.memory->at(16), DType::bf16, {1, 4, 5, 6}};
                                         c.out.dpse = {c.memory->at(17), DType::bf16, {2, 4, 5, 6}}; },
     "dpse: shape is [2, 4, 5, 6], must be pse's [1, 4, 5, 6]"},
    {"dpse_dtype", [](BackwardCall& c) { c.in.pse = {c.memory->at(16), DType::f32, {1, 4, 5, 6}};
                                         c.out.dpse = {c.memory->at(17), DType::bf16, {1, 4, 5, 6}}; },
     "dpse: dtype is bf16, must equal pse's f32"},
    {"dpse_stride_0", [](BackwardCall& c) { c.in.pse = {c.memory->at(16), DType::f32, {1, 4, 5, 6}};
                                            c.out.dpse = {c.memory->at(17), DType::f32, {1, 4, 5, 6}};
                                            c.out.dpse.stride[1] = 0; },
     "dpse: stride of axis 1 is 0, elements of an output must not share an address"},
    {"dsink_without_sink", [](BackwardCall& c) { c.out.dsink = {c.memory->at(16), DType::f32, {4}}; },
     "dsink: shape is [4], must be absent without sink"},
    {"dsink_dtype", [](BackwardCall& c) { c.in.sink = {c.memory->at(16), DType::f32, {4}};
                                          c.out.dsink = {c.memory->at(17), DType::f64, {4}}; },
     "dsink: dtype is f64, must equal sink's f32"},
    {"dsink_is_dq", [](BackwardCall& c) { c.in.sink = {c.memory->at(16), DType::f32, {4}};
                                          c.out.dsink = {c.out.dq.data, DType::f32, {4}}; },
     "dsink: data is dq's, must not overlap another output"},
    {"dq_is_query", [](BackwardCall& c) { c.out.dq.data = const_cast<void*>(c.in.query.data); },
     "dq: data is query's, must not overlap an input"},
    {"dv_is_dk", [](BackwardCall& c) { c.out.dv.data = c.out.dk.data; },
     "dv: data is dk's, must not overlap another output"},
};
// clang-format on

}  // namespace fascore::test
