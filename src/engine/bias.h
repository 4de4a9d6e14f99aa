// SPDX-License-Identifier: Apache-2.0
//
// Position bias by the tile, and its gradient.
//
//   kind         bias(i,j), factor = scale for pse_type 1
//   tensor       factor · pse[n][i][j], broadcast by strides of 0
//   tail         the last 1024 rows of a bias that is constant along diagonals, S1 = S2, j ≤ i. thr = S1 − 1024:
//                  i ≥ thr:  pse[n][i − thr][j]        i < thr:  pse[n][i mod 1024][j + S2 − i − 1024 + i mod 1024]
//   diagonal     the same for sequences of a TND call:  p = i − j − (maxSkv − 1024),  pse[n][max(p,0)][max(−p,0)]
//   slopes       −a · |(j + k_start) − (i + q_start)|, or of its root
//
// The gradient of x is the gradient of the bias, tile by tile:
//
//   not broadcast          dpse(i,j) = factor · dx(i,j)           stored as it comes, where it can be by the pass that
//                                                                 makes dx
//   broadcast, compressed  sums in the accumulate type in the workspace, one per element of pse; stored at the end.
//                          Who adds to the same elements does so in turn, in the order of (batch, kv block), so the
//                          sums have the same bits for any number of threads. A turn belongs to a kv block of a head of
//                          pse (a tile touches only its own columns), or to a head of a compressed pse (whose elements
//                          are read by several kv blocks).
//   slopes                 da = −Σ dx·distance: a double for every (batch, head, kv block), added up at the end
//
// No deadlock: whoever waits, waits for an earlier (batch, kv block), and schedule.h starts those first.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/schedule.h"
#include "engine/tile.h"

namespace fascore {

/// Fills rows × columns of head n into `tile` (accumulate type, leading dimension ld), zeros up to whole granules.
/// Returns whether a pair is hidden by a pse of −inf; then flags[r] tells the rows that may have one, and there the
/// tile holds −inf whatever the factor.
bool fill_bias(const Batch& batch, const kernels::ComputeKernels& kernels, std::int64_t n, Range rows, Range columns,
               void* tile, std::int64_t ld, std::uint8_t* flags);

class BiasGradient {
  public:
    BiasGradient(const Problem& problem, const Plan& plan, const kernels::ComputeKernels& kernels, RunState& state,
                 Grant grant)
        : problem_(problem), plan_(plan), kernels_(kernels), state_(state), grant_(grant) {}

    [[nodiscard]] bool wanted() const { return problem_.dpse.wanted; }

    /// Before any task: the sums start at 0.
    void begin() const;

    /// What no tile of this batch and head will write.
    void zero_dead(const Batch& batch, const Grid& grid, std::int64_t n) const;

    /// One task's part: kv block J of one unit; `place` is where its batch stands in the plan's order.
    struct Part {
        const Batch& batch;
        const Grid& grid;
        std::int64_t place;
        std::int64_t h;
        std::int64_t J;
        double slope_sum = 0;
        bool holds_turn = false;
    };
    void begin_head(Part& part, std::int64_t n) const;
    /// Where the pass that makes dx of rows × columns shall put it, times what.
    struct Target {
        void* data;       ///< null = dx is not asked for
        std::int64_t ld;  ///< elements
        double factor;
        bool is_dpse;  ///< nothing is left to be added, and nobody looks at it soon
    };
    /// dpse itself, where it is of the accumulate type and takes whole vectors; else `tile`, for add().
    [[nodiscard]] Target target(const Part& part, std::int64_t n, Range rows, Range columns, void* tile) const;
    /// dx of rows × columns (accumulate type, leading dimension tile_ld); null = all zeros.
    void add(Part& part, std::int64_t n, Range rows, Range columns, const void* dx) const;
    void end_head(Part& part, std::int64_t n) const;
    void end(Part& part) const;

    /// After all tasks: the members of a team, however many come, write dpse together.
    void finish(int member);

  private:
    [[nodiscard]] bool has_sums() const { return plan_.backward.dpse_sums.elements > 0; }
    [[nodiscard]] bool in_turn() const;
    [[nodiscard]] std::int64_t turn_index(const Part& part, std::int64_t n) const;
    [[nodiscard]] std::int32_t order_of(const Part& part) const;
    [[nodiscard]] std::int32_t next_after(const Part& part) const;
    [[nodiscard]] std::int32_t first_order(std::int64_t J) const;
    [[nodiscard]] std::int64_t next_place(std::int64_t place, std::int64_t J) const;
    void take_turn(Part& part, std::int64_t n) const;
    void pass_turn(Part& part, std::int64_t n) const;
    void add_to_sums(const Part& part, std::int64_t n, Range rows, Range columns, const void* dx) const;
    [[nodiscard]] std::byte* sums_of(const Batch& batch, std::int64_t n) const;
    void zero_block(const Batch& batch, std::int64_t n, Range rows, Range columns) const;

    const Problem& problem_;
    const Plan& plan_;
    const kernels::ComputeKernels& kernels_;
    RunState& state_;
    Grant grant_;
    std::atomic<std::int64_t> next_row_{0};
};

}  // namespace fascore
