// SPDX-License-Identifier: Apache-2.0
//
// Every way to be refused, as data: a valid call, one thing broken, the exact text. problem/validate_test.cpp runs the
// table against the validator, api/refusals_test.cpp against the public functions.
//
//   the valid call   BNSD, bf16, B = 2, N1 = 4, N2 = 2, S1 = 5, S2 = 6, D = 8, Dv = 3, mask [2, 4, 5, 6] in mode 0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "fascore/attention.h"

namespace fascore::test {

/// Memory for every tensor of a call, each of its own; outputs hold 0xA5.
struct CallMemory {
    static constexpr std::size_t bytes = 16384;
    static constexpr std::size_t tensors = 16;
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

    explicit ForwardCall(CallMemory& m, DType dtype = DType::bf16) {
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
};

struct BackwardCall {
    AttentionParams params;
    BackwardInputs in;
    BackwardOutputs out;

    explicit BackwardCall(CallMemory& m, DType dtype = DType::bf16) {
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
    {"layout_tnd", [](ForwardCall& c) { c.params.layout = Layout::TND; },
     "layout: given TND, must be BNSD, BSND, BSH or SBH"},
    {"layout_unknown", [](ForwardCall& c) { c.params.layout = static_cast<Layout>(9); },
     "layout: given value 9, must be BNSD, BSND, BSH or SBH"},
    {"head_num_negative", [](ForwardCall& c) { c.params.head_num = -1; },
     "head_num: given -1, must be query's head count, or 0 for not given"},
    {"head_num_missing", [](ForwardCall& c) { c.fuse(); c.params.head_num = 0; },
     "head_num: given 0, must be 1 to 256 for layout BSH"},
    {"head_num_contradicts", [](ForwardCall& c) { c.params.head_num = 16; },
     "head_num: given 16, must be query's head count 4 (layout BNSD [B, N, S, D]) or 0"},
    {"sparse_mode_prefix", [](ForwardCall& c) { c.params.sparse_mode = 5; },
     "sparse_mode: given 5, must be 0 to 4 (5 to 8 are not in this version)"},
    {"sparse_mode_packed", [](ForwardCall& c) { c.params.sparse_mode = 8; },
     "sparse_mode: given 8, must be 0 to 4 (5 to 8 are not in this version)"},
    {"sparse_mode_unknown", [](ForwardCall& c) { c.params.sparse_mode = 9; },
     "sparse_mode: given 9, must be 0 to 4"},
    {"sparse_mode_negative", [](ForwardCall& c) { c.params.sparse_mode = -1; },
     "sparse_mode: given -1, must be 0 to 4"},
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
    {"scale_beyond_f32", [](ForwardCall& c) { c.params.scale = 1e300; },
     "scale: given 1e+300, must be finite in f32 unless the tensors are f64"},
    {"keep_prob", [](ForwardCall& c) { c.params.keep_prob = 0.9; },
     "keep_prob: given 0.9, must be 1 (dropout is not in this version)"},
    {"softcap", [](ForwardCall& c) { c.params.softcap = 30.0; },
     "softcap: given 30, must be 0 (a soft cap is not in this version)"},
    {"pse", [](ForwardCall& c) { c.in.pse = {c.in.query.data, DType::bf16, {2, 4, 5, 6}}; },
     "pse: shape is [2, 4, 5, 6], must be absent (position bias is not in this version)"},
    {"pse_type_slopes", [](ForwardCall& c) { c.params.pse_type = 2; },
     "pse_type: given 2, must be 0 or 1 without pse"},
    {"pse_type_unknown", [](ForwardCall& c) { c.params.pse_type = 4; },
     "pse_type: given 4, must be 0 or 1 without pse"},
    {"inner_precise", [](ForwardCall& c) { c.params.inner_precise = 3; },
     "inner_precise: given 3, must be 0, 1 or 2"},
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
     "key: shape is [2, 2, -6, 8], every extent must be 0 to 2147483648"},
    {"strides_out_of_reach", [](ForwardCall& c) { c.in.key.stride[0] = std::int64_t{1} << 62; },
     "key: strides are [4611686018427387904, 48, 8, 1], every element must lie within 2^62 bytes of the first"},
    {"stride_smallest", [](ForwardCall& c) { c.in.key.stride[2] = std::numeric_limits<std::int64_t>::min(); },
     "key: strides are [96, 48, -9223372036854775808, 1], every element must lie within 2^62 bytes of the first"},
    {"query_dtype", [](ForwardCall& c) { c.in.query.dtype = DType::u8; },
     "query: dtype is u8, must be f64, f32, bf16 or f16"},
    {"query_dtype_unknown", [](ForwardCall& c) { c.in.query.dtype = static_cast<DType>(77); },
     "query: dtype is value 77, must be f64, f32, bf16 or f16"},
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
     "query: head_dim is 0, must be 1 to 768"},
    // outputs
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
    {"attention_out_is_query", [](ForwardCall& c) { c.out.attention_out.data = const_cast<void*>(c.in.query.data); },
     "attention_out: data is query's, must not overlap an input"},
    {"softmax_sum_is_softmax_max", [](ForwardCall& c) { c.out.softmax_sum.data = c.out.softmax_max.data; },
     "softmax_sum: data is softmax_max's, must not overlap another output"},
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
};

inline const Refusal<BackwardCall> backward_refusals[] = {
    // The rules above hold here too; one stands for each group.
    {"layout_tnd", [](BackwardCall& c) { c.params.layout = Layout::TND; },
     "layout: given TND, must be BNSD, BSND, BSH or SBH"},
    {"keep_prob", [](BackwardCall& c) { c.params.keep_prob = 0.5; },
     "keep_prob: given 0.5, must be 1 (dropout is not in this version)"},
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
     "dq: absent, and so are dk and dv, at least one of the three must be given"},
    {"dq_dtype", [](BackwardCall& c) { c.out.dq.dtype = DType::f32; }, "dq: dtype is f32, must equal query's bf16"},
    {"dq_length", [](BackwardCall& c) { reshape(c.out.dq, {2, 4, 6, 8}); }, "dq: length is 6, must equal query's 5"},
    {"dk_heads", [](BackwardCall& c) { reshape(c.out.dk, {2, 4, 6, 8}); }, "dk: head count is 4, must equal key's 2"},
    {"dk_head_dim", [](BackwardCall& c) { reshape(c.out.dk, {2, 2, 6, 3}); }, "dk: head_dim is 3, must equal key's 8"},
    {"dv_head_dim", [](BackwardCall& c) { reshape(c.out.dv, {2, 2, 6, 8}); },
     "dv: head_dim is 8, must equal value's 3"},
    {"dv_stride_0", [](BackwardCall& c) { c.out.dv.stride[1] = 0; },
     "dv: stride of axis 1 is 0, elements of an output must not share an address"},
    {"dq_is_query", [](BackwardCall& c) { c.out.dq.data = const_cast<void*>(c.in.query.data); },
     "dq: data is query's, must not overlap an input"},
    {"dv_is_dk", [](BackwardCall& c) { c.out.dv.data = c.out.dk.data; },
     "dv: data is dk's, must not overlap another output"},
};
// clang-format on

}  // namespace fascore::test
