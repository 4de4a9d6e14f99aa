// SPDX-License-Identifier: Apache-2.0
//
// The plan: from a problem and the shape of the kernels to block sizes, the cut of the work and the workspace. A value,
// computed before anything runs, from the problem alone; the thread count decides only how many buffers there are,
// never how the work is cut or in which order sums are made.
//
//   unit   one (batch, kv head): all G query heads that share its keys and values. In TND the longest sequences come
//          first, so that no long one is left for the end; the order is the plan's, not the threads'.
//   grid   of one batch: the rows and columns that see anything (live), cut from their first row and column on:
//
//              columns.begin                      columns.end
//                    │  J=0   │  J=1   │  J=2  │
//     rows.begin ────┼────────┼────────┼───────┤
//              I=0   │        │        │       │  Br rows
//              I=1   │        │        │       │
//     rows.end   ────┴────────┴────────┴───────┘
//                      Bc columns
//
//   Starting at the first live row makes a problem whose first rows see nothing the same, bit for bit, as the problem
//   without them. (Two things sit on a fixed raster, and the first block then starts on it: generated dropout, 16
//   columns a word, and 8-bit inputs, quantised by 128 × 128 blocks.)
//
//   forward    a task is one (query head of the unit, I); it walks J upwards
//   backward   a task is one J; it walks the query heads of the group and I upwards. dq of (head, I) is a sum of up to
//              four streams: J adds to stream J mod streams, and only after J − streams has. The order of every sum is
//              fixed, whoever runs the task, and a fast thread may be `streams` tasks ahead of a slow one.
//              A band sees only a few query blocks from one J, and what has been passed is not needed again: the
//              forms, statistics and dq of query block I stand in place I mod ring, and whoever opens I there waits
//              until I − ring has left. A ring holds what one J sees and a few blocks more for each thread, so the
//              lowest J never waits, and a long sequence with a short window needs the memory of the window.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/workspace.h"
#include "problem/mask.h"
#include "problem/problem.h"

namespace fascore {

/// What the plan needs to know about the kernels (a copy of the numbers in kernels/kernel_table.h).
struct KernelShape {
    std::int64_t nr = 64;     ///< columns of the widest panel
    std::int64_t lanes = 16;  ///< columns of a vector
    std::int64_t step = 1;    ///< elements of a word
    std::int64_t word_bytes = 4;
    std::int64_t acc_bytes = 4;
    [[nodiscard]] std::int64_t element_bytes() const { return word_bytes / step; }
};

/// A matrix in B form: panels of `width` columns.
struct PanelForm {
    std::int64_t width = 0;
    std::int64_t pitch = 0;        ///< words from one step to the next
    std::int64_t panel_bytes = 0;  ///< from one panel to the next
    std::int64_t bytes = 0;
};

struct ForwardBuffers {
    Workspace::Booking control;     // slots
    Workspace::Booking pack_state;  // per slot: one word a kv block
    Workspace::Booking key_panels;  // per slot
    Workspace::Booking value_panels;
    Workspace::Booking value_flags;  // per slot: one byte a kv row
    Workspace::Booking load;         // per thread from here on
    Workspace::Booking query_rows;
    Workspace::Booking scores;
    Workspace::Booking weights;
    Workspace::Booking out;
    Workspace::Booking statistics;
    Workspace::Booking mask_words;
    Workspace::Booking keep_words;  // dropout
    Workspace::Booking bias;        // a tile
    Workspace::Booking spans;
};

/// Room for the sums of a dpse that cannot go straight to its tensor: pse was broadcast, or is compressed.
struct DpseSums {
    std::int64_t elements = 0;  ///< 0: no sums are kept
    std::int64_t turns = 0;
    Strides stride;  ///< of the sums, 0 where pse was broadcast
};

struct BackwardBuffers {
    Workspace::Booking control;
    Workspace::Booking pack_state;  // per slot: one word a (query head, place in the ring)
    Workspace::Booking turn;        // per slot: whose turn it is to add to dq of (stream, query head, place)
    Workspace::Booking pending;     // per slot: how many J have not yet added to dq of (query head, place)
    Workspace::Booking query_rows;  // per slot, the ring of every query head of the unit
    Workspace::Booking query_panels;
    Workspace::Booking dy_rows;
    Workspace::Booking dy_panels;
    Workspace::Booking dq;             // accumulators of every stream
    Workspace::Booking statistics;     // max, 1/sum, delta of every row
    Workspace::Booking flags;          // two bytes a query row: query, dy hold NaN or Inf
    Workspace::Booking load;           // per thread from here on
    Workspace::Booking clean;          // a query block without its NaN and Inf
    Workspace::Booking key_columns;    // Kᵀ
    Workspace::Booking value_columns;  // Vᵀ
    Workspace::Booking key_panels;     // K
    Workspace::Booking key_flags;
    Workspace::Booking scores;
    Workspace::Booking dp;
    Workspace::Booking p_depth;
    Workspace::Booking ds_depth;
    Workspace::Booking ds_rows;
    Workspace::Booking dk;
    Workspace::Booking dv;
    Workspace::Booking mask_words;
    Workspace::Booking keep_words;
    Workspace::Booking bias;
    Workspace::Booking dx;  // a tile, where dpse is wanted
    Workspace::Booking spans;
    Workspace::Booking dsink;      // one: a double a (batch, query head, I), one more for dead rows
    Workspace::Booking dslope;     // one: a double a (batch, query head, J)
    Workspace::Booking dpse;       // one: sums of a pse that was broadcast
    Workspace::Booking dpse_turn;  // one: whose turn it is to add to them
    DpseSums dpse_sums;
};

/// How one batch is cut.
struct Grid {
    Band band;
    Range rows;                     ///< live query rows, from the raster on
    Range columns;                  ///< live key rows, likewise
    std::int64_t first_row = 0;     ///< the first live one
    std::int64_t first_column = 0;  ///< the first live one
    std::int64_t Br = 0;
    std::int64_t Bc = 0;
    std::int64_t row_blocks = 0;
    std::int64_t column_blocks = 0;

    [[nodiscard]] Range row_block(std::int64_t I) const {
        const std::int64_t begin = rows.begin + I * Br;
        return {begin, begin + Br < rows.end ? begin + Br : rows.end};
    }
    [[nodiscard]] Range column_block(std::int64_t J) const {
        const std::int64_t begin = columns.begin + J * Bc;
        return {begin, begin + Bc < columns.end ? begin + Bc : columns.end};
    }
    /// Query blocks that see something of kv block J, and kv blocks that query block I sees: contiguous, since the
    /// visible columns of a row are, and move only forward. A tile is in one exactly when it is in the other.
    [[nodiscard]] Range row_blocks_of(std::int64_t J) const;
    [[nodiscard]] Range column_blocks_of(std::int64_t I) const;
    /// The most query blocks any kv block sees.
    [[nodiscard]] std::int64_t most_row_blocks() const;
    /// Streams of dq: one for 1024 keys, in whole blocks. Short problems have one: their dq then stays in L2.
    [[nodiscard]] std::int64_t dq_streams() const { return dq_streams_of(column_blocks * Bc); }
    [[nodiscard]] static std::int64_t dq_streams_of(std::int64_t keys) {
        return std::clamp<std::int64_t>(keys / 1024, 1, 4);
    }
};

struct Plan {
    KernelShape shape;
    std::int64_t units = 0;    ///< B · N2
    std::int64_t threads = 0;  ///< that can find work
    std::int64_t slots = 0;    ///< units open at the same time

    std::int64_t Br = 0;
    std::int64_t Bc = 0;
    std::int64_t row_blocks = 0;     ///< the most of any batch
    std::int64_t column_blocks = 0;  ///< likewise
    std::int64_t ring = 0;           ///< backward: query blocks of a head there is room for at the same time
    std::int64_t row_raster = 1;     ///< grids start at a multiple
    std::int64_t column_raster = 1;
    std::vector<std::int32_t> order;  ///< batches in the order they are taken; empty = as they are

    std::int64_t D_pad = 0;  ///< D in whole vectors of 16
    std::int64_t Dv_pad = 0;
    std::int64_t D_row = 0;  ///< columns of a rows form: whole blocks of 16 words
    std::int64_t Dv_row = 0;
    std::int64_t D_ld = 0;  ///< its leading dimension
    std::int64_t Dv_ld = 0;
    bool rows_are_panels = false;  ///< a word is one element: a rows form is a by_rows B form as it stands
    std::int64_t tile_ld = 0;      ///< leading dimension of score tiles, in accumulators or words
    std::int64_t row_words = 0;

    PanelForm key_columns;    ///< of one kv block: depth D, columns kv rows
    PanelForm value_columns;  ///< depth Dv
    PanelForm key_panels;     ///< of one kv block: depth kv rows, columns D
    PanelForm value_panels;   ///< depth kv rows, columns Dv
    PanelForm query_panels;   ///< of one query block: depth query rows, columns D
    PanelForm dy_panels;      ///< columns Dv

    ForwardBuffers forward;
    BackwardBuffers backward;
    Workspace workspace;

    [[nodiscard]] Grid grid(const Band& band, std::int64_t S1, std::int64_t S2) const;
    /// Place of a unit's batch in `order`, and the batch itself.
    [[nodiscard]] std::int64_t batch_of(std::int64_t place) const {
        return order.empty() ? place : order[static_cast<std::size_t>(place)];
    }
};

/// Grid of batch b without making the whole Batch.
[[nodiscard]] Grid grid_of(const Problem& problem, const Plan& plan, std::int64_t b);

/// Tasks and tiles of the whole run.
struct Work {
    std::int64_t tasks = 0;
    std::int64_t tiles = 0;
};
[[nodiscard]] Work count_work(const Problem& problem, const Plan& plan);

[[nodiscard]] Plan make_plan(const Problem& problem, const KernelShape& shape, int threads);

}  // namespace fascore
