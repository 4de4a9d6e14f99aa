// SPDX-License-Identifier: Apache-2.0
//
// Exact fused attention and its gradient over strided tensor views: FlashAttentionScore and FlashAttentionScoreGrad.
//
// Letters: B batch, N1 query heads, N2 key/value heads, G = N1/N2, S1/S2 query/key length, D head_dim of query and
// key, Dv head_dim of value, dy and attention_out. Query head n uses key/value head n / G.
//
//   x(i,j) = scale · Σ_d query[i,d] · key[j,d]                       visible pairs only, see MaskRule and sparse_mode
//   softmax_max[i] = max_j x(i,j)         softmax_sum[i] = Σ_j exp(x(i,j) − softmax_max[i])
//   P(i,j) = exp(x(i,j) − softmax_max[i]) / softmax_sum[i]           0 where not visible
//   attention_out[i] = Σ_j P(i,j) · value[j]
//
// and, with dP(i,j) = dy[i]·value[j] and dS(i,j) = P(i,j) · (dP(i,j) − dy[i]·attention_out[i]),
//   dv[j] = Σ_i P(i,j) · dy[i]     dq[i] = scale · Σ_j dS(i,j) · key[j]     dk[j] = scale · Σ_i dS(i,j) · query[i]
//   (dk and dv also sum over the G query heads of the group)
//
// Numbers      inputs f64, f32, bf16, f16, all of one dtype; sums in f32 (f64 for f64); outputs rounded once.
// Empty rows   a row that sees no key has attention_out 0, softmax_max −FLT_MAX, softmax_sum +FLT_MAX, and takes no
//              part in any gradient, whatever its statistics, query or dy hold. With S2 = 0 the statistics are 0.
// NaN and Inf  reach only the outputs that depend on them: a hidden pair contributes exactly nothing.
// Bits         the same for any thread count, any strides of the same values, and every run, on one ISA.
// Threads      calls are independent; any number may run at once with different workspaces.
// Definition   docs/operator.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fascore/export.h"
#include "fascore/status.h"
#include "fascore/tensor.h"

namespace fascore {

/// Axis order of the data tensors (query, key, value, dy, attention_out and the gradients).
///   BNSD  [B, N, S, D]      BSND  [B, S, N, D]      BSH  [B, S, N·D]      SBH  [S, B, N·D]
///   TND   [T, N, D], packed sequences: reserved, refused by this version
enum class Layout : std::uint8_t { BNSD, BSND, BSH, SBH, TND };

/// The layout's name as written above.
FASCORE_EXPORT std::string_view name(Layout layout) noexcept;

/// Which pairs a rule lets through, with no mask tensor needed. δ = S2 − S1.
///   none                  every pair
///   causal_top_left       j ≤ i                       PyTorch's is_causal
///   causal_bottom_right   j ≤ i + δ                   flash_attn's causal
///   window                i + δ − left ≤ j ≤ i + δ + right, a bound of −1 is no bound      flash_attn's window_size
/// The rule is intersected with what sparse_mode and atten_mask say.
struct MaskRule {
    enum class Kind : std::uint8_t { none, causal_top_left, causal_bottom_right, window };
    Kind kind = Kind::none;
    std::int64_t left = -1;
    std::int64_t right = -1;
};

inline constexpr std::int64_t unlimited_tokens = 2147483647;

/// What is computed. Every field has the operator's default.
struct AttentionParams {
    Layout layout = Layout::BNSD;

    /// N1. Must be given for BSH and SBH; elsewhere 0 means "as the query tensor says", another value must agree.
    std::int64_t head_num = 0;

    /// Factor on query·key, any finite number, used as given (never replaced by 1/√D). Narrowed to f32 unless the
    /// tensors are f64.
    double scale = 1.0;

    /// How atten_mask is meant, 0..4; without an atten_mask it has no effect (use `rule` for that).
    ///   0  mask(i,j) = 0 and i − pre_tokens ≤ j ≤ i + next_tokens             full mask
    ///   1  mask(i,j) = 0                                                       full mask
    ///   2  j ≤ i            3  j ≤ i + δ                                       compressed mask [2048, 2048]
    ///   4  i + δ − pre_tokens ≤ j ≤ i + δ + next_tokens                        compressed mask [2048, 2048]
    int sparse_mode = 0;
    std::int64_t pre_tokens = unlimited_tokens;
    std::int64_t next_tokens = unlimited_tokens;

    /// A rule that needs no mask tensor.
    MaskRule rule;

    // Carried for the rest of the operator; any value but the default is refused by this version.
    double keep_prob = 1.0;
    double softcap = 0.0;
    /// 0 and 1 are accepted: without a pse tensor they mean the same. 2 and 3 need one.
    int pse_type = 1;
    /// 0, 1 and 2 are accepted and mean the same: empty rows are always handled.
    int inner_precise = 0;
};

/// Inputs of the forward. Shapes by layout (above); key and value have N2 heads and S2 rows.
struct ForwardInputs {
    ConstTensorView query;
    ConstTensorView key;
    ConstTensorView value;
    /// bool or u8, non-zero = masked out: [B,N1,S1,S2], [B,1,S1,S2], [1,1,S1,S2] or [S1,S2] (modes 0, 1);
    /// [2048,2048] or [1,1,2048,2048] (modes 2, 3, 4: checked for shape, not read).
    ConstTensorView atten_mask;
    /// Carried for the rest of the operator; refused when present.
    ConstTensorView pse;
};

/// Outputs of the forward. May not overlap an input.
struct ForwardOutputs {
    /// Shape of query with Dv in place of D; dtype of query, or f32 (16-bit inputs: the unrounded result).
    TensorView attention_out;
    /// [B,N1,S1,8] (all 8 written), [B,N1,S1,1] or [B,N1,S1]; f32, f64 for f64 inputs. Absent = not wanted.
    TensorView softmax_max;
    TensorView softmax_sum;
};

/// Inputs of the gradient.
struct BackwardInputs {
    ConstTensorView query;
    ConstTensorView key;
    ConstTensorView value;
    /// Gradient of attention_out: query's shape with Dv in place of D, dtype of query.
    ConstTensorView dy;
    /// As the forward wrote them, in any of its three shapes; of [B,N1,S1,8] element 0 is read. Taken as given: any
    /// numbers are used in the formula as they are.
    ConstTensorView softmax_max;
    ConstTensorView softmax_sum;
    /// The forward's output: dtype of query, or f32.
    ConstTensorView attention_out;
    ConstTensorView atten_mask;
    ConstTensorView pse;
};

/// Outputs of the gradient: shapes and dtype of query, key and value. An absent one is not computed (and its share of
/// the work is not done); at least one must be present. May not overlap an input or each other.
struct BackwardOutputs {
    TensorView dq;
    TensorView dk;
    TensorView dv;
};

/// A flag another thread may set to stop a call. The call notices within one tile (well under a second), returns
/// StatusCode::cancelled and leaves no work behind. Reusable after reset().
class CancelToken {
  public:
    void cancel() noexcept { flag_.store(true, std::memory_order_relaxed); }
    void reset() noexcept { flag_.store(false, std::memory_order_relaxed); }
    [[nodiscard]] bool cancelled() const noexcept { return flag_.load(std::memory_order_relaxed); }

  private:
    std::atomic<bool> flag_{false};
};

/// Called from the calling thread while the work runs, now and then and once at the end, with done ≤ total in units of
/// tiles. Must not throw and must not call back into the same workspace.
struct ProgressCallback {
    void (*function)(void* context, std::int64_t done, std::int64_t total) = nullptr;
    void* context = nullptr;
};

/// How it is computed. Nothing here changes the values, except isa (by rounding).
struct Execution {
    /// Threads to use; 0 = FASCORE_NUM_THREADS if set, else the machine's. 1..1024.
    int threads = 0;
    /// One of built_isas() that this machine can run; empty = FASCORE_ISA if set, else the best.
    std::string_view isa{};
    const CancelToken* cancel = nullptr;
    ProgressCallback progress{};
};

/// Bytes of workspace the call below needs with the same arguments: linear in S1 and S2. Data pointers are not looked
/// at and may be null. Fails as the call itself would.
[[nodiscard]] FASCORE_EXPORT Status forward_workspace_bytes(const AttentionParams& params, const ForwardInputs& in,
                                                            const ForwardOutputs& out, const Execution& execution,
                                                            std::size_t& bytes) noexcept;
[[nodiscard]] FASCORE_EXPORT Status backward_workspace_bytes(const AttentionParams& params, const BackwardInputs& in,
                                                             const BackwardOutputs& out, const Execution& execution,
                                                             std::size_t& bytes) noexcept;

/// attention_out, softmax_max and softmax_sum from query, key and value. `workspace` may hold anything before and
/// after; no alignment is asked of it.
/// fails  invalid_argument, workspace_too_small, unavailable (isa): outputs untouched; cancelled: outputs unspecified
[[nodiscard]] FASCORE_EXPORT Status attention_forward(const AttentionParams& params, const ForwardInputs& in,
                                                      const ForwardOutputs& out, const Execution& execution,
                                                      std::span<std::byte> workspace) noexcept;

/// dq, dk, dv from the inputs and results of the forward; otherwise as attention_forward.
[[nodiscard]] FASCORE_EXPORT Status attention_backward(const AttentionParams& params, const BackwardInputs& in,
                                                       const BackwardOutputs& out, const Execution& execution,
                                                       std::span<std::byte> workspace) noexcept;

/// The same calls with a workspace of their own, allocated once and freed on return; out_of_memory when it cannot be
/// had.
[[nodiscard]] FASCORE_EXPORT Status attention_forward(const AttentionParams& params, const ForwardInputs& in,
                                                      const ForwardOutputs& out,
                                                      const Execution& execution = {}) noexcept;
[[nodiscard]] FASCORE_EXPORT Status attention_backward(const AttentionParams& params, const BackwardInputs& in,
                                                       const BackwardOutputs& out,
                                                       const Execution& execution = {}) noexcept;

}  // namespace fascore
