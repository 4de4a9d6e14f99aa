// SPDX-License-Identifier: Apache-2.0
//
// Every version called by hand, by position, from one struct. The library makes its functions from a table; this is the
// second opinion on the order of their parameters.
// clang-format off
#include "support.h"

namespace fascore::aclnn_test {

namespace {

aclnnStatus call_FlashAttentionScore(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionScoreGetWorkspaceSize(g.query, g.key, g.value, g.pse, g.drop_mask, g.padding_mask,
        g.atten_mask, g.prefix, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(),
        g.inner_precise, g.sparse_mode, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionScoreV2(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionScoreV2GetWorkspaceSize(g.query, g.key, g.value, g.pse, g.drop_mask, g.padding_mask,
        g.atten_mask, g.prefix, g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens,
        g.head_num, g.layout(), g.inner_precise, g.sparse_mode, g.pse_type, g.softmax_max, g.softmax_sum, g.reserved,
        g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionScoreV3(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionScoreV3GetWorkspaceSize(g.query, g.key, g.value, g.pse, g.drop_mask, g.padding_mask,
        g.atten_mask, g.sink, g.prefix, g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens,
        g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode, g.pse_type, g.softmax_max,
        g.softmax_sum, g.reserved, g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionScoreV4(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionScoreV4GetWorkspaceSize(g.query, g.key, g.value, g.pse, g.drop_mask, g.padding_mask,
        g.atten_mask, g.query_rope, g.key_rope, g.d_scale_q, g.d_scale_k, g.d_scale_v, g.sink, g.prefix,
        g.actual_seq_qlen, g.actual_seq_kvlen, g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens,
        g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode, g.out_dtype, g.pse_type,
        g.softmax_layout(), g.seed, g.offset, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, size,
        executor);
}
aclnnStatus call_FlashAttentionVarLenScore(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionVarLenScoreGetWorkspaceSize(g.query, g.key, g.value, g.pse, g.drop_mask, g.padding_mask,
        g.atten_mask, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen, g.scale, g.keep_prob, g.pre_tokens,
        g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode, g.softmax_max, g.softmax_sum,
        g.reserved, g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionVarLenScoreV2(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize(g.query, g.key, g.value, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen, g.q_start_idx, g.kv_start_idx,
        g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode,
        g.pse_type, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionVarLenScoreV3(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize(g.query, g.query_rope, g.key, g.key_rope, g.value, g.pse,
        g.drop_mask, g.padding_mask, g.atten_mask, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen, g.q_start_idx,
        g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(), g.inner_precise,
        g.sparse_mode, g.pse_type, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionVarLenScoreV4(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionVarLenScoreV4GetWorkspaceSize(g.query, g.key, g.value, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen, g.scale, g.keep_prob,
        g.pre_tokens, g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode, g.softmax_layout(),
        g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionVarLenScoreV5(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionVarLenScoreV5GetWorkspaceSize(g.query, g.query_rope, g.key, g.key_rope, g.value, g.pse,
        g.drop_mask, g.padding_mask, g.atten_mask, g.sink, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen,
        g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(),
        g.inner_precise, g.sparse_mode, g.pse_type, g.softmax_layout(), g.softmax_max, g.softmax_sum, g.reserved,
        g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionVarLenScoreV5_largest(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionVarLenScoreV5GetMaxWorkspaceSize(g.query, g.query_rope, g.key, g.key_rope, g.value,
        g.pse, g.drop_mask, g.padding_mask, g.atten_mask, g.sink, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen,
        g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(),
        g.inner_precise, g.sparse_mode, g.pse_type, g.softmax_layout(), g.softmax_max, g.softmax_sum, g.reserved,
        g.attention_out, size, executor);
}
aclnnStatus call_QuantFlashAttentionScore(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnQuantFlashAttentionScoreGetWorkspaceSize(g.query, g.key, g.value, g.atten_mask, g.d_scale_q,
        g.d_scale_k, g.d_scale_v, g.p_scale, g.scale, g.pre_tokens, g.next_tokens, g.head_num, g.layout(),
        g.sparse_mode, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, size, executor);
}
aclnnStatus call_FlashAttentionScoreGrad(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionScoreGradGetWorkspaceSize(g.query, g.key, g.value, g.dy, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, g.prefix, g.scale,
        g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode, g.dq, g.dk,
        g.dv, g.dpse, size, executor);
}
aclnnStatus call_FlashAttentionScoreGradV2(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionScoreGradV2GetWorkspaceSize(g.query, g.key, g.value, g.dy, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, g.prefix,
        g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(),
        g.inner_precise, g.sparse_mode, g.pse_type, g.dq, g.dk, g.dv, g.dpse, size, executor);
}
aclnnStatus call_FlashAttentionScoreGradV3(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionScoreGradV3GetWorkspaceSize(g.query, g.key, g.value, g.dy, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, g.sink, g.prefix,
        g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(),
        g.inner_precise, g.sparse_mode, g.pse_type, g.dq, g.dk, g.dv, g.dpse, g.dsink, size, executor);
}
aclnnStatus call_FlashAttentionScoreGradV4(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionScoreGradV4GetWorkspaceSize(g.query, g.key, g.value, g.dy, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, g.sink, g.query_rope,
        g.key_rope, g.d_scale_q, g.d_scale_k, g.d_scale_v, g.d_scale_dy, g.d_scale_o, g.prefix, g.actual_seq_qlen,
        g.actual_seq_kvlen, g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens,
        g.head_num, g.layout(), g.softmax_layout(), g.inner_precise, g.sparse_mode, g.pse_type, g.seed, g.offset,
        g.out_dtype, g.dq, g.dk, g.dv, g.dq_rope, g.dk_rope, g.dpse, g.dsink, size, executor);
}
aclnnStatus call_FlashAttentionUnpaddingScoreGrad(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(g.query, g.key, g.value, g.dy, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, g.prefix,
        g.actual_seq_qlen, g.actual_seq_kvlen, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num,
        g.layout(), g.inner_precise, g.sparse_mode, g.dq, g.dk, g.dv, g.dpse, size, executor);
}
aclnnStatus call_FlashAttentionUnpaddingScoreGradV2(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(g.query, g.key, g.value, g.dy, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, g.prefix,
        g.actual_seq_qlen, g.actual_seq_kvlen, g.q_start_idx, g.kv_start_idx, g.scale, g.keep_prob, g.pre_tokens,
        g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode, g.pse_type, g.dq, g.dk, g.dv, g.dpse,
        size, executor);
}
aclnnStatus call_FlashAttentionUnpaddingScoreGradV3(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(g.query, g.query_rope, g.key, g.key_rope, g.value,
        g.dy, g.pse, g.drop_mask, g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved,
        g.attention_out, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen, g.q_start_idx, g.kv_start_idx, g.scale,
        g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode, g.pse_type,
        g.dq, g.dq_rope, g.dk, g.dk_rope, g.dv, g.dpse, size, executor);
}
aclnnStatus call_FlashAttentionUnpaddingScoreGradV4(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize(g.query, g.key, g.value, g.dy, g.pse, g.drop_mask,
        g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved, g.attention_out, g.prefix,
        g.actual_seq_qlen, g.actual_seq_kvlen, g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num,
        g.layout(), g.inner_precise, g.sparse_mode, g.dq, g.dk, g.dv, g.dpse, g.softmax_layout(), size, executor);
}
aclnnStatus call_FlashAttentionUnpaddingScoreGradV5(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnFlashAttentionUnpaddingScoreGradV5GetWorkspaceSize(g.query, g.query_rope, g.key, g.key_rope, g.value,
        g.dy, g.pse, g.drop_mask, g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved,
        g.attention_out, g.sink, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen, g.q_start_idx, g.kv_start_idx,
        g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode,
        g.pse_type, g.softmax_layout(), g.dq, g.dq_rope, g.dk, g.dk_rope, g.dv, g.dpse, g.dsink, size, executor);
}
aclnnStatus call_FlashAttentionUnpaddingScoreGradV5_largest(const Given& g, std::uint64_t* size,
    aclOpExecutor** executor) {
    return aclnnFlashAttentionUnpaddingScoreGradV5GetMaxWorkspaceSize(g.query, g.query_rope, g.key, g.key_rope,
        g.value, g.dy, g.pse, g.drop_mask, g.padding_mask, g.atten_mask, g.softmax_max, g.softmax_sum, g.reserved,
        g.attention_out, g.sink, g.prefix, g.actual_seq_qlen, g.actual_seq_kvlen, g.q_start_idx, g.kv_start_idx,
        g.scale, g.keep_prob, g.pre_tokens, g.next_tokens, g.head_num, g.layout(), g.inner_precise, g.sparse_mode,
        g.pse_type, g.softmax_layout(), g.dq, g.dq_rope, g.dk, g.dk_rope, g.dv, g.dpse, g.dsink, size, executor);
}
aclnnStatus call_QuantFlashAttentionScoreGrad(const Given& g, std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnQuantFlashAttentionScoreGradGetWorkspaceSize(g.query, g.key, g.value, g.dy, g.atten_mask,
        g.softmax_max, g.softmax_sum, g.attention_out, g.d_scale_q, g.d_scale_k, g.d_scale_v, g.d_scale_dy, g.ds_scale,
        g.p_scale, g.scale, g.pre_tokens, g.next_tokens, g.head_num, g.layout(), g.sparse_mode, g.out_dtype, g.dq,
        g.dk, g.dv, size, executor);
}

}  // namespace

const std::vector<VersionRow>& versions() {
    static const std::vector<VersionRow> all = {
        {"aclnnFlashAttentionScore", call_FlashAttentionScore, aclnnFlashAttentionScore, false, Family::batches, 1},
        {"aclnnFlashAttentionScoreV2", call_FlashAttentionScoreV2, aclnnFlashAttentionScoreV2, false, Family::batches, 2},
        {"aclnnFlashAttentionScoreV3", call_FlashAttentionScoreV3, aclnnFlashAttentionScoreV3, false, Family::batches, 3},
        {"aclnnFlashAttentionScoreV4", call_FlashAttentionScoreV4, aclnnFlashAttentionScoreV4, false, Family::whole, 4},
        {"aclnnFlashAttentionVarLenScore", call_FlashAttentionVarLenScore, aclnnFlashAttentionVarLenScore, false, Family::packed, 1},
        {"aclnnFlashAttentionVarLenScoreV2", call_FlashAttentionVarLenScoreV2, aclnnFlashAttentionVarLenScoreV2, false, Family::packed, 2},
        {"aclnnFlashAttentionVarLenScoreV3", call_FlashAttentionVarLenScoreV3, aclnnFlashAttentionVarLenScoreV3, false, Family::packed, 3},
        {"aclnnFlashAttentionVarLenScoreV4", call_FlashAttentionVarLenScoreV4, aclnnFlashAttentionVarLenScoreV4, false, Family::packed, 4},
        {"aclnnFlashAttentionVarLenScoreV5", call_FlashAttentionVarLenScoreV5, aclnnFlashAttentionVarLenScoreV5, false, Family::packed, 5},
        {"aclnnFlashAttentionVarLenScoreV5 largest", call_FlashAttentionVarLenScoreV5_largest, aclnnFlashAttentionVarLenScoreV5, false, Family::packed, 5},
        {"aclnnQuantFlashAttentionScore", call_QuantFlashAttentionScore, aclnnQuantFlashAttentionScore, false, Family::hifloat8, 1},
        {"aclnnFlashAttentionScoreGrad", call_FlashAttentionScoreGrad, aclnnFlashAttentionScoreGrad, true, Family::batches, 1},
        {"aclnnFlashAttentionScoreGradV2", call_FlashAttentionScoreGradV2, aclnnFlashAttentionScoreGradV2, true, Family::batches, 2},
        {"aclnnFlashAttentionScoreGradV3", call_FlashAttentionScoreGradV3, aclnnFlashAttentionScoreGradV3, true, Family::batches, 3},
        {"aclnnFlashAttentionScoreGradV4", call_FlashAttentionScoreGradV4, aclnnFlashAttentionScoreGradV4, true, Family::whole, 4},
        {"aclnnFlashAttentionUnpaddingScoreGrad", call_FlashAttentionUnpaddingScoreGrad, aclnnFlashAttentionUnpaddingScoreGrad, true, Family::packed, 1},
        {"aclnnFlashAttentionUnpaddingScoreGradV2", call_FlashAttentionUnpaddingScoreGradV2, aclnnFlashAttentionUnpaddingScoreGradV2, true, Family::packed, 2},
        {"aclnnFlashAttentionUnpaddingScoreGradV3", call_FlashAttentionUnpaddingScoreGradV3, aclnnFlashAttentionUnpaddingScoreGradV3, true, Family::packed, 3},
        {"aclnnFlashAttentionUnpaddingScoreGradV4", call_FlashAttentionUnpaddingScoreGradV4, aclnnFlashAttentionUnpaddingScoreGradV4, true, Family::packed, 4},
        {"aclnnFlashAttentionUnpaddingScoreGradV5", call_FlashAttentionUnpaddingScoreGradV5, aclnnFlashAttentionUnpaddingScoreGradV5, true, Family::packed, 5},
        {"aclnnFlashAttentionUnpaddingScoreGradV5 largest", call_FlashAttentionUnpaddingScoreGradV5_largest, aclnnFlashAttentionUnpaddingScoreGradV5, true, Family::packed, 5},
        {"aclnnQuantFlashAttentionScoreGrad", call_QuantFlashAttentionScoreGrad, aclnnQuantFlashAttentionScoreGrad, true, Family::hifloat8, 1},
    };
    return all;
}

}  // namespace fascore::aclnn_test
// clang-format on
