// SPDX-License-Identifier: Apache-2.0
//
// Block sizes, from the kernels' shape alone (not from S or the thread count: a row's bits must not depend on them).
//
// What a tile wants:
//   deep products    dV, dK sum over Br rows, dQ and O over Bc: the deeper, the fewer accumulator passes
//   few tiles        each reads its query block's forms and its dq from wherever they are, L3 for a long head
//   fine diagonals   a causal problem computes tiles on the diagonal in part; partial tiles cost their masks
//
// A depth of 128 steps keeps accumulator passes to a tenth of a product, and a panel of 64 columns and 128 words is
// 32 KiB, which L1 holds beside the streams. So a tile is 128 steps each way: 128 × 128, and 256 × 256 where a step is
// a pair (bf16). Lengths are powers of two more often than not. Of the forward's two products only one is deep in Bc
// and no accumulator goes to memory in between, so pairs take 512 keys there.
//
// Tiles do not shrink for wide heads, though a tile and its operands then leave a 1 MiB L2: what leaves is streamed,
// and shallow products cost more than that. Measurements: docs/performance.md.
#include "plan/blocking.h"

namespace fascore {

Blocking choose_blocking(Direction direction, const KernelShape& shape) {
    constexpr std::int64_t depth = 128;
    const std::int64_t size = depth * shape.step;
    if (direction == Direction::forward) return {depth, shape.step > 1 ? 2 * size : size};
    return {size, size};
}

}  // namespace fascore
