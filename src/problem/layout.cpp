// SPDX-License-Identifier: Apache-2.0
#include "problem/layout.h"

namespace fascore {

namespace {

// Which axis of the tensor is what; b = -1 when there is no such axis, n = -1 when heads share the last axis with the
// columns.
struct Axes {
    int rank;
    int b;
    int n;
    int s;
    int d;
    const char* words;
};

constexpr Axes axes_table(Layout layout) noexcept {
    switch (layout) {
        case Layout::BNSD: return {4, 0, 1, 2, 3, "[B, N, S, D]"};
        case Layout::BSND: return {4, 0, 2, 1, 3, "[B, S, N, D]"};
        case Layout::BSH: return {3, 0, -1, 1, 2, "[B, S, N*D]"};
        case Layout::SBH: return {3, 1, -1, 0, 2, "[S, B, N*D]"};
        case Layout::TND: break;
    }
    return {3, -1, 1, 0, 2, "[T, N, D]"};
}

std::size_t at(int axis) noexcept { return static_cast<std::size_t>(axis); }

}  // namespace

int rank_of(Layout layout) noexcept { return axes_table(layout).rank; }

bool heads_are_fused(Layout layout) noexcept { return axes_table(layout).n < 0; }

const char* axes_of(Layout layout) noexcept { return axes_table(layout).words; }

Placed place(Layout layout, const TensorDims& dims, std::int64_t heads) noexcept {
    const Axes axes = axes_table(layout);
    Placed placed;
    placed.S = dims.shape[at(axes.s)];
    placed.stride.s = dims.stride[at(axes.s)];
    if (axes.b >= 0) {
        placed.B = dims.shape[at(axes.b)];
        placed.stride.b = dims.stride[at(axes.b)];
    } else {
        placed.B = 1;
        // An empty sequence behind the only row has a place too: the row's own.
        if (placed.S <= 1) placed.stride.s = 0;
    }
    placed.stride.d = dims.stride[at(axes.d)];
    if (axes.n >= 0) {
        placed.N = dims.shape[at(axes.n)];
        placed.D = dims.shape[at(axes.d)];
        placed.stride.n = dims.stride[at(axes.n)];
    } else {
        placed.N = heads;
        placed.D = heads == 0 ? 0 : dims.shape[at(axes.d)] / heads;
        placed.stride.n = placed.D * placed.stride.d;
    }
    return placed;
}

}  // namespace fascore
