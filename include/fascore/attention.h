// SPDX-License-Identifier: Apache-2.0
//
// Exact fused attention and its gradient over strided tensor views: FlashAttentionScore and FlashAttentionScoreGrad.
//
// Letters: B batch, N1 query heads, N2 key/value heads, G = N1/N2, S1/S2 query/key length, D head_dim of query and
// key, Dr head_dim of the rope parts, Dv head_dim of value, dy and attention_out. Query head n uses kv head n / G.
//
//   raw(i,j) = Σ_d query[i,d] · key[j,d] + Σ_e query_rope[i,e] · key_rope[j,e]       visible pairs only, see MaskRule
//   x(i,j)   = cap(scale · raw(i,j)) + bias(i,j)        cap(z) = softcap · tanh(z / softcap), or z when softcap is 0
//   softmax_max[i] = max(sink, max_j x(i,j))            softmax_sum[i] = exp(sink − max) + Σ_j exp(x(i,j) − max)
//   P(i,j) = exp(x(i,j) − softmax_max[i]) / softmax_sum[i]          0 where not visible
//   R(i,j) = P(i,j) · keep(i,j) / keep_prob                         dropout
//   attention_out[i] = Σ_j R(i,j) · value[j]
//
// and, with dP(i,j) = keep(i,j) / keep_prob · dy[i]·value[j], Δ(i) = dy[i]·attention_out[i] − dlse[i],
//   dx(i,j) = P(i,j) · (dP(i,j) − Δ(i))                             gradient of x and of the bias
//   dz(i,j) = scale · dx(i,j) · cap'(scale · raw(i,j))
//   dv[j] = Σ_i R(i,j) · dy[i]     dq[i] = Σ_j dz(i,j) · key[j]     dk[j] = Σ_i dz(i,j) · query[i]
//   dsink = −Σ_b Σ_i exp(sink − softmax_max[i]) / softmax_sum[i] · Δ(i)
//   (dk and dv also sum over the G query heads of the group; dq_rope, dk_rope are the matching extra columns)
//
// Numbers      inputs f64, f32, bf16, f16 or an 8-bit float, all of one dtype; sums in f32 (f64 for f64); outputs
//              rounded once.
// Empty rows   a row that sees no key has attention_out 0, softmax_max −FLT_MAX, softmax_sum +FLT_MAX, and takes no
//              part in any gradient, whatever its statistics, query or dy hold. With a sink softmax_max = sink and
//              softmax_sum = 1; dsink is over all rows, also these, with statistics and attention_out as they are
//              given. With S2 = 0 the statistics are 0.
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
///   TND   [T, N, D]: B sequences one after the other, cut by actual_seq_qlen and actual_seq_kvlen
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

/// Order of the statistics in layout TND: [T1, N1, 8], or without the last axis.
///   by_sequence   each sequence's rows as [N1, Sq_b, 8], one sequence after the other        softmax layout ""
///   by_token      as the shape says, token by token                                 softmax layout "same_as_input"
enum class StatisticsOrder : std::uint8_t { by_sequence, by_token };

/// What is computed. Every field has the operator's default.
struct AttentionParams {
    Layout layout = Layout::BNSD;

    /// N1. Must be given for BSH and SBH; elsewhere 0 means "as the query tensor says", another value must agree.
    std::int64_t head_num = 0;

    /// Factor on query·key, any finite number, used as given (never replaced by 1/√D). Narrowed to f32 unless the
    /// tensors are f64.
    double scale = 1.0;

    /// How atten_mask is meant, 0..8; without an atten_mask it has no effect (use `rule` for that). δ = S2 − S1.
    ///   0  mask(i,j) = 0 and i − pre_tokens ≤ j ≤ i + next_tokens             full mask
    ///   1  mask(i,j) = 0                                                       full mask
    ///   2  j ≤ i            3  j ≤ i + δ                                       compressed mask [2048, 2048]
    ///   4  i + δ − pre_tokens ≤ j ≤ i + δ + next_tokens                        compressed mask [2048, 2048]
    ///   5  mask(i,j) = 0, which says j < prefix[b] or j ≤ i + δ                full mask, not TND
    ///   6  j < prefix[b] or j ≤ i + δ                                          compressed mask [3072, 2048]
    ///   7  the last non-empty sequence as 4, the others as 3                   compressed mask [2048, 2048], TND
    ///   8  the first non-empty sequence as 4, the others as 2                  compressed mask [2048, 2048], TND
    int sparse_mode = 0;
    std::int64_t pre_tokens = unlimited_tokens;
    std::int64_t next_tokens = unlimited_tokens;
    /// One length a batch: modes 5 and 6.
    std::span<const std::int64_t> prefix{};
    /// A compressed mask is a template whose content is fixed; true = read it and refuse one that says otherwise.
    bool check_mask = false;

    /// A rule that needs no mask tensor.
    MaskRule rule;

    /// Layout TND: cumulative ends of the B sequences, without a leading 0; {2, 5, 5} are lengths 2, 3, 0. Trailing
    /// zeros are batches that are not there.
    std::span<const std::int64_t> actual_seq_qlen{};
    std::span<const std::int64_t> actual_seq_kvlen{};
    StatisticsOrder statistics_order = StatisticsOrder::by_sequence;

    /// What pse is.
    ///   0  bias(i,j) = pse(i,j)             2  bias(i,j) = −slope · |(j + kv_start_idx) − (i + q_start_idx)|
    ///   1  bias(i,j) = scale · pse(i,j)     3  bias(i,j) = −slope · √|(j + kv_start_idx) − (i + q_start_idx)|
    int pse_type = 1;
    std::int64_t q_start_idx = 0;
    std::int64_t kv_start_idx = 0;

    /// Share of the weights that dropout keeps, 0 < keep_prob ≤ 1. Below 1 a drop_mask says which; without one, seed
    /// and offset do (fascore/dropout.h). Narrowed to f32 unless the tensors are f64.
    double keep_prob = 1.0;
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;

    /// Soft cap c of the scaled scores, c · tanh(z / c); 0 = none. Must be finite and not negative.
    double softcap = 0.0;

    /// 0, 1 and 2 are accepted and mean the same: empty rows are always handled.
    int inner_precise = 0;
};

/// What both directions read. Shapes by layout (above); key and value have N2 heads and S2 rows.
struct AttentionInputs {
    ConstTensorView query{};
    ConstTensorView key{};
    ConstTensorView value{};

    /// Dr more columns of query and key, both or neither: as if appended to them. D + Dr ≤ 768.
    ConstTensorView query_rope{};
    ConstTensorView key_rope{};

    /// bool or u8, non-zero = masked out: [B,N1,S1,S2], [B,1,S1,S2], [1,1,S1,S2] or [S1,S2] (modes 0, 1, 5); the
    /// template [2048,2048] (modes 2, 3, 4, 7, 8) or [3072,2048] (mode 6), also with two leading axes of 1.
    /// TND, modes 0, 1: [maxSq,maxSkv] or [1,1,maxSq,maxSkv], for every sequence; [T1,T2]; or [B,1,…], [B,N1,…] whose
    /// elements are each sequence's [1 or N1, Sq_b, Skv_b], packed.
    ConstTensorView atten_mask{};

    /// Position bias. pse_type 0, 1: dtype of query or f32 (8-bit query: bf16, f16 or f32), −inf hides a pair;
    ///   [B|1, N1|1, S1|1, S2]; [B|1, N1, 1024, S2] with S1 = S2 > 1024 under a causal rule: the last 1024 rows of a
    ///   bias that is constant along diagonals
    ///   TND: [N1·Σ Sq_b·Skv_b]; [N1·T2] (one row a sequence); [B|1, N1, 1024, maxSkv] as above
    /// pse_type 2, 3: f32 slopes [B, N1] or [N1].
    ConstTensorView pse{};

    /// u8, read as a stream of bits, least significant first, 1 = keep; bit ((b·N1 + n)·S1 + i)·S2 + j, in TND each
    /// sequence's [N1, Sq_b, Skv_b] one after the other. Contiguous. Read only when keep_prob < 1.
    ConstTensorView drop_mask{};

    /// [N1] f32: one more logit a head, in the denominator only.
    ConstTensorView sink{};

    /// 8-bit inputs: what a stored value is multiplied by, one f32 for 128 rows. [B,N1,⌈S1/128⌉,1] for query and dy,
    /// [B,N2,⌈S2/128⌉,1] for key and value; also [B,N2,G,⌈S1/128⌉,1] and [B,N2,1,⌈S2/128⌉,1]. Absent = 1.
    ConstTensorView d_scale_q{};
    ConstTensorView d_scale_k{};
    ConstTensorView d_scale_v{};
};

/// Inputs of the forward.
struct ForwardInputs : AttentionInputs {};

/// Outputs of the forward. May not overlap an input.
struct ForwardOutputs {
    /// Shape of query with Dv in place of D; dtype of query, or f32 (16-bit inputs: the unrounded result). 8-bit
    /// inputs: bf16, f16 or f32.
    TensorView attention_out{};
    /// [B,N1,S1,8] (all 8 written), [B,N1,S1,1] or [B,N1,S1]; TND [T1,N1,8], [T1,N1,1] or [T1,N1]. f32, f64 for f64
    /// inputs. Absent = not wanted.
    TensorView softmax_max{};
    TensorView softmax_sum{};
};

/// Inputs of the gradient.
struct BackwardInputs : AttentionInputs {
    /// Gradient of attention_out: query's shape with Dv in place of D, dtype of query.
    ConstTensorView dy{};
    /// As the forward wrote them, in any of its three shapes; of 8 copies the first is read. Taken as given: any
    /// numbers are used in the formula as they are.
    ConstTensorView softmax_max{};
    ConstTensorView softmax_sum{};
    /// The forward's output: dtype of query, or f32. 8-bit inputs: bf16, f16 or f32.
    ConstTensorView attention_out{};
    /// Gradient of log(softmax_sum) + softmax_max, shape and dtype as one of the statistics' (first copy read).
    ConstTensorView dlse{};
    /// 8-bit inputs, as d_scale_q.
    ConstTensorView d_scale_dy{};
};

/// Outputs of the gradient: shapes of query, key, …, and their dtype (8-bit inputs: bf16, f16 or f32). An absent one
/// is not computed (and its share of the work is not done); at least one must be present. May not overlap an input or
/// each other.
struct BackwardOutputs {
    TensorView dq{};
    TensorView dk{};
    TensorView dv{};
    TensorView dq_rope{};
    TensorView dk_rope{};
    /// Gradient of pse (pse_type 2, 3: of the slopes), summed over the axes pse was broadcast along.
    TensorView dpse{};
    /// [N1] f32
    TensorView dsink{};
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
