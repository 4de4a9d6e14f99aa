// SPDX-License-Identifier: Apache-2.0
//
// A version as data: what its first phase takes (versions.def), and what it was given in one call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "aclnn/aclnn_base.h"
#include "fascore/attention.h"

namespace fascore::aclnn {

/// Canonical parameters, tensors first. softmax_max, softmax_sum and attention_out are written by the forward and read
/// by the gradient.
enum class Field : std::uint8_t {
    query,
    key,
    value,
    query_rope,
    key_rope,
    dy,
    pse,
    drop_mask,
    padding_mask,
    atten_mask,
    softmax_max,
    softmax_sum,
    softmax_out,
    attention_out,
    sink,
    d_scale_q,
    d_scale_k,
    d_scale_v,
    d_scale_dy,
    d_scale_o,
    ds_scale,
    p_scale,
    dq,
    dk,
    dv,
    dq_rope,
    dk_rope,
    dpse,
    dsink,
    tensors,  // how many of them
    prefix = tensors,
    actual_seq_qlen,
    actual_seq_kvlen,
    q_start_idx,
    kv_start_idx,
    scale,
    keep_prob,
    pre_tokens,
    next_tokens,
    head_num,
    layout,
    inner_precise,
    sparse_mode,
    pse_type,
    softmax_layout,
    seed,
    offset,
    out_dtype,
};

inline constexpr std::size_t tensor_fields = static_cast<std::size_t>(Field::tensors);

[[nodiscard]] constexpr std::size_t index(Field field) noexcept { return static_cast<std::size_t>(field); }

/// Kinds of versions.def.
enum class ParameterKind : std::uint8_t { T, O, W, A, I, D, S };

struct Parameter {
    ParameterKind kind;
    std::string_view name;
    Field field;
};

enum class Direction : std::uint8_t { forward, backward };

/// What versions have in common beyond their parameters.
///   batches       BSH, SBH, BSND, BNSD
///   packed        TND
///   packed_rope   TND; when rope parts are given, few other features may be
///   whole         every layout, 8-bit inputs, dropout drawn from seed and offset
///   hifloat8      not computed here
enum class Family : std::uint8_t { batches, packed, packed_rope, whole, hifloat8 };

struct Version {
    const char* first;  ///< names of the two phases
    const char* second;
    Direction direction;
    Family family;
    std::span<const Parameter> parameters;
    bool refuses_drop_mask = false;  ///< one of the two that ask for the largest workspace

    [[nodiscard]] bool has(Field field) const noexcept;
    /// The parameter's name in this version's header.
    [[nodiscard]] std::string_view name(Field field) const noexcept;
};

/// What one call passed; a parameter the version does not have keeps the operator's default.
struct Arguments {
    std::array<const aclTensor*, tensor_fields> tensor{};
    const aclIntArray* prefix = nullptr;
    const aclIntArray* actual_seq_qlen = nullptr;
    const aclIntArray* actual_seq_kvlen = nullptr;
    const aclIntArray* q_start_idx = nullptr;
    const aclIntArray* kv_start_idx = nullptr;
    double scale = 1.0;
    double keep_prob = 1.0;
    std::int64_t pre_tokens = unlimited_tokens;
    std::int64_t next_tokens = unlimited_tokens;
    std::int64_t head_num = 0;
    const char* layout = nullptr;
    std::int64_t inner_precise = 0;
    std::int64_t sparse_mode = 0;
    std::int64_t pse_type = 1;
    const char* softmax_layout = nullptr;
    std::int64_t seed = 0;
    std::int64_t offset = 0;
    std::int64_t out_dtype = 0;
};

}  // namespace fascore::aclnn
