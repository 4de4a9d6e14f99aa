// SPDX-License-Identifier: Apache-2.0
//
// Block sizes, from the kernels' shape and the head sizes alone (not from S or the thread count: a row's bits must not
// depend on them).
//
// What a tile wants:
//   deep products    dV, dK sum over Br rows, dQ and O over Bc: the deeper, the fewer accumulator passes
//   small tiles      everything a tile touches must stay in L2 beside the packed operands, or the products starve
//   fine diagonals   a causal problem computes tiles on the diagonal in part; partial tiles cost their masks
//
// The start is 128 × 128: lengths are powers of two more often than not, a depth of 128 keeps accumulator passes to a
// tenth of a product, and a panel of 64 columns and 128 words is 32 KiB, which L1 holds beside the streams. A word of
// bf16 is two rows deep, so the forward takes 256 keys there. The budget is what one tile touches (score tiles, packed
// kv and query block, accumulators); it is the 1 MiB L2 of Zen, half that of Sapphire Rapids. Wider heads shrink the
// tile until it fits. Measurements: docs/performance.md.
#include "plan/blocking.h"

namespace fascore {

namespace {

constexpr std::int64_t budget_bytes = 1024 * 1024;

std::int64_t touched_bytes(Direction direction, const KernelShape& shape, std::int64_t Br, std::int64_t Bc,
                           std::int64_t D, std::int64_t Dv) {
    const std::int64_t element = shape.element_bytes();
    const std::int64_t acc = shape.acc_bytes;
    if (direction == Direction::forward) {
        return Br * Bc * (acc + element) + Bc * (D + Dv) * element + Br * D * element + Br * Dv * acc;
    }
    const std::int64_t tile = Br * Bc * (2 * acc + (shape.step > 1 ? 3 * element : 0));
    return tile + Bc * (2 * D + Dv) * element + Bc * (D + Dv) * acc + 2 * Br * (D + Dv) * element + Br * D * acc;
}

}  // namespace

Blocking choose_blocking(Direction direction, const KernelShape& shape, std::int64_t D, std::int64_t Dv) {
    Blocking blocking{128, direction == Direction::forward ? 128 * shape.step : 128};
    while (touched_bytes(direction, shape, blocking.Br, blocking.Bc, D, Dv) > budget_bytes) {
        if (blocking.Bc > 64 && blocking.Bc > blocking.Br) {
            blocking.Bc -= 64;
        } else if (blocking.Br > 48) {
            blocking.Br -= 24;
        } else if (blocking.Bc > 64) {
            blocking.Bc -= 64;
        } else {
            break;
        }
    }
    return blocking;
}

}  // namespace fascore
