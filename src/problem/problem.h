// SPDX-License-Identifier: Apache-2.0
//
// The one description every later stage works from. validate.cpp makes it from the public structs, once, or refuses;
// after that nobody asks what a layout is called, whether a mask was broadcast or which sparse mode was meant.
//
//   Problem     the whole call: B batches, and what differs from one to the next
//   Batch       one batch of it, addressed from its own first row: what the loops work on
//
//   Problem ── batch(b) ──→ Batch        pointers moved to batch b (or, in TND, to sequence b), S1, S2 and band its own
//
//   Operand      base pointer, element strides along b (batch), n (head), s (row), d (column)
//   Visibility   a band of the pair (i, j) with a prefix of columns, and perhaps a mask tensor:
//                visible  ⇔  lower ≤ j − i ≤ cap   and   (j − i ≤ upper or j < prefix)   and   mask(n,i,j) = 0
//
// Every rule is such a band: mode 0 is [−pre, next], causal is (−∞, 0] or (−∞, δ], and so on (mask.cpp has the table).
// Intersections of bands are bands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fascore/attention.h"

namespace fascore {

/// Element strides along batch, head, row and column.
struct Strides {
    std::int64_t b = 0;
    std::int64_t n = 0;
    std::int64_t s = 0;
    std::int64_t d = 0;
};

/// Dequantisation factors of an 8-bit tensor, f32: of row s of head n at data + b·stride.b + n·stride.n +
/// (s / 128)·stride.s elements. data null = 1.
struct RowScale {
    const std::byte* data = nullptr;
    Strides stride;
};

/// A data tensor that is read. data is null when the tensor is absent.
struct Operand {
    const std::byte* data = nullptr;
    DType dtype = DType::f32;
    Strides stride;
    RowScale scale;
};

/// A data tensor that is written.
struct Result {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    Strides stride;
    bool wanted = false;  ///< the caller passed a view; data may still be null in a workspace query
};

/// softmax_max, softmax_sum or dlse: row (b, n, i) at data[b·stride.b + n·stride.n + i·stride.s], `copies` elements
/// stride.d apart (all written, the first read).
struct Statistic {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    Strides stride;
    std::int64_t copies = 1;
    bool wanted = false;
};

/// Bytes, non-zero = masked out; stride 0 on broadcast axes; data null = no mask.
struct MaskTensor {
    /// Where a batch's part of the tensor begins: at b·stride_b (and for all sequences of a TND call alike where that
    /// is 0); at row q_begin and column k_begin of a [T1, T2] mask; at the pairs of the sequences before it.
    enum class Placement : std::uint8_t { by_batch, by_rows, by_pairs };
    const std::uint8_t* data = nullptr;
    bool present = false;  ///< a full mask was passed (modes 0, 1, 5); data may still be null in a workspace query
    Placement placement = Placement::by_batch;
    std::int64_t heads = 1;  ///< by_pairs: 1 or N1
    std::int64_t stride_b = 0;
    std::int64_t stride_n = 0;
    std::int64_t stride_i = 0;
    std::int64_t stride_j = 0;
};

/// Pairs with lower ≤ j − i ≤ upper are visible; those with j < prefix and lower ≤ j − i ≤ cap too (cap ≥ upper).
/// The limits are clamped to ±(S1 + S2), so sums never overflow.
struct Band {
    std::int64_t lower = 0;
    std::int64_t upper = 0;
    std::int64_t prefix = 0;
    std::int64_t cap = 0;  ///< read only where prefix > 0
};

/// What is added to the scaled score.
///   tensor     factor · pse[b,n,i,j], stride 0 on broadcast axes
///   tail       compressed ALiBi: element j of row i is pse[b,n,r,j + shift], r and shift by row (bias.h)
///   diagonal   compressed ALiBi of a TND call, by the distance to the diagonal (bias.h)
///   slope      −pse[b,n] · |(j + k_start) − (i + q_start)|       root_slope   −pse[b,n] · √|…|
struct Bias {
    enum class Kind : std::uint8_t { none, tensor, tail, diagonal, slope, root_slope };
    enum class Placement : std::uint8_t { by_batch, by_pairs, by_keys };  ///< TND: [N1·ΣSq·Skv], [N1·T2]
    Kind kind = Kind::none;
    Placement placement = Placement::by_batch;
    const std::byte* data = nullptr;
    DType dtype = DType::f32;
    Strides stride;             ///< s along i, d along j
    double factor = 1.0;        ///< pse_type 1: scale
    std::int64_t q_start = 0;   ///< slopes
    std::int64_t k_start = 0;   ///< slopes
    std::int64_t longest = 0;   ///< diagonal: maxSkv
    std::int64_t elements = 0;  ///< by_keys: of the tensor, N1 · T2 or N1 times the keys in use
    bool first_only = false;    ///< slopes in sparse mode 8: the starts count in batch 0 only
    bool over_batches = false;  ///< one value for all batches: its gradient is a sum over them
    bool over_heads = false;
    bool over_rows = false;
    [[nodiscard]] bool present() const { return kind != Kind::none; }
    [[nodiscard]] bool slopes() const { return kind == Kind::slope || kind == Kind::root_slope; }
    [[nodiscard]] bool compressed() const { return kind == Kind::tail || kind == Kind::diagonal; }
};

/// Rows a compressed bias has.
inline constexpr std::int64_t compressed_rows = 1024;

/// keep(n,i,j) is bit first + (n·S1 + i)·pitch + j of `bits`, or of the generated stream where bits is null (then
/// pitch is S2 rounded up to 16).
struct Dropout {
    bool active = false;
    bool generated = false;
    const std::uint8_t* bits = nullptr;
    std::int64_t first = 0;
    std::int64_t pitch = 0;
    std::uint64_t seed = 0;
    std::uint64_t block = 0;      ///< ⌈offset/16⌉
    std::uint32_t threshold = 0;  ///< a byte up to this keeps
    double keep_prob = 1.0;       ///< narrowed to f32 unless dtype is f64
};

/// A per-head vector [N1]: f32, or f64 where the tensors are. data null = absent.
struct HeadVector {
    const std::byte* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t stride = 0;
    bool present = false;
};

/// One batch: every pointer is at its first row.
struct Batch {
    std::int64_t index = 0;  ///< b
    DType dtype = DType::f32;
    std::int64_t N1 = 0;
    std::int64_t N2 = 0;
    std::int64_t G = 0;  ///< N1 / N2, 0 when N2 = 0
    std::int64_t S1 = 0;
    std::int64_t S2 = 0;
    std::int64_t D = 0;   ///< with the rope columns
    std::int64_t Dr = 0;  ///< of which rope: the last ones
    std::int64_t Dv = 0;
    double scale = 1.0;  ///< already narrowed to f32 unless dtype is f64
    double softcap = 0.0;

    Operand query;  ///< D − Dr columns
    Operand key;
    Operand value;
    Operand query_rope;  ///< Dr columns
    Operand key_rope;
    Operand dy;            ///< backward
    Operand attention_in;  ///< backward
    Result attention_out;  ///< forward
    Result dq;             ///< backward
    Result dk;
    Result dv;
    Result dq_rope;
    Result dk_rope;
    Result dpse;  ///< strides as those of bias; slopes: b and n
    HeadVector sink;
    Result dsink;           ///< stride n
    Statistic softmax_max;  ///< forward: written where wanted; backward: read
    Statistic softmax_sum;
    Statistic dlse;  ///< backward: read where wanted

    MaskTensor mask;
    Band band;
    Bias bias;
    Dropout dropout;
};

/// Where a sequence of a TND call lies, or what is special about a batch of any other (its band).
struct Sequence {
    std::int64_t q_begin = 0;
    std::int64_t S1 = 0;
    std::int64_t k_begin = 0;
    std::int64_t S2 = 0;
    std::int64_t pairs_begin = 0;   ///< Σ of Sq·Skv before it
    std::int64_t padded_begin = 0;  ///< Σ of Sq·16⌈Skv/16⌉ before it
    Band band;
};

enum class Direction : std::uint8_t { forward, backward };

/// The whole call. The Batch it is built on describes batch 0 of a call whose batches are alike; otherwise S1 and S2
/// are the longest of any, band is not meaningful, and `sequences` has an entry a batch.
struct Problem : Batch {
    Direction direction = Direction::forward;
    std::int64_t B = 0;
    bool packed = false;  ///< TND
    std::int64_t T1 = 0;  ///< TND: rows of the query tensor, of which those after the last sequence are filled with 0
    std::int64_t T2 = 0;
    StatisticsOrder statistics_order = StatisticsOrder::by_sequence;
    std::vector<Sequence> sequences;  ///< empty when batches are alike

    /// The rule as the caller stated it. The engine does not read this; the reference derives its own predicate from
    /// it (spans in it are valid during the call only).
    AttentionParams stated;
    bool mask_given = false;  ///< an atten_mask was passed, full or compressed: sparse_mode applies

    [[nodiscard]] Batch batch(std::int64_t b) const;

    /// True when some extent is 0: no attention is computed, outputs that have elements are zero-filled. (In TND each
    /// sequence may be empty on its own; then this is false.)
    [[nodiscard]] bool empty() const noexcept {
        return B == 0 || N1 == 0 || N2 == 0 || S1 == 0 || S2 == 0 || D == 0 || Dv == 0;
    }
};

}  // namespace fascore
