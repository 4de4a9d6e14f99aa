// SPDX-License-Identifier: Apache-2.0
//
// Every layout against the offset formula that defines it, on contiguous tensors.
#include "problem/layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace fascore {
namespace {

constexpr std::int64_t B = 2, N = 3, S = 5, D = 7;

struct Row {
    Layout layout;
    ConstTensorView view;
    int rank;
    bool fused;
    const char* axes;
    std::int64_t (*offset)(std::int64_t b, std::int64_t n, std::int64_t s, std::int64_t d);
};

const Row rows[] = {
    {Layout::BNSD,
     {nullptr, DType::f32, {B, N, S, D}},
     4,
     false,
     "[B, N, S, D]",
     [](auto b, auto n, auto s, auto d) { return ((b * N + n) * S + s) * D + d; }},
    {Layout::BSND,
     {nullptr, DType::f32, {B, S, N, D}},
     4,
     false,
     "[B, S, N, D]",
     [](auto b, auto n, auto s, auto d) { return ((b * S + s) * N + n) * D + d; }},
    {Layout::BSH,
     {nullptr, DType::f32, {B, S, N* D}},
     3,
     true,
     "[B, S, N*D]",
     [](auto b, auto n, auto s, auto d) { return ((b * S + s) * N + n) * D + d; }},
    {Layout::SBH,
     {nullptr, DType::f32, {S, B, N* D}},
     3,
     true,
     "[S, B, N*D]",
     [](auto b, auto n, auto s, auto d) { return ((s * B + b) * N + n) * D + d; }},
};

class Layouts : public ::testing::TestWithParam<Row> {};

TEST_P(Layouts, EveryElementWhereTheFormulaSays) {
    const Row& row = GetParam();
    EXPECT_EQ(rank_of(row.layout), row.rank);
    EXPECT_EQ(heads_are_fused(row.layout), row.fused);
    EXPECT_STREQ(axes_of(row.layout), row.axes);
    const Placed placed = place(row.layout, row.view, N);
    EXPECT_EQ(placed.B, B);
    EXPECT_EQ(placed.N, N);
    EXPECT_EQ(placed.S, S);
    EXPECT_EQ(placed.D, D);
    for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t n = 0; n < N; ++n) {
            for (std::int64_t s = 0; s < S; ++s) {
                for (std::int64_t d = 0; d < D; ++d) {
                    const Strides& stride = placed.stride;
                    ASSERT_EQ(b * stride.b + n * stride.n + s * stride.s + d * stride.d, row.offset(b, n, s, d));
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, ::testing::ValuesIn(rows),
                         [](const auto& row) { return std::string(name(row.param.layout)); });

TEST(Layouts, PackedRowsAreOneBatch) {
    constexpr std::int64_t T = 11;
    ConstTensorView view(nullptr, DType::f32, {T, N, D});
    EXPECT_EQ(rank_of(Layout::TND), 3);
    EXPECT_FALSE(heads_are_fused(Layout::TND));
    EXPECT_STREQ(axes_of(Layout::TND), "[T, N, D]");
    const Placed placed = place(Layout::TND, view, 0);
    EXPECT_EQ((std::vector<std::int64_t>{placed.B, placed.N, placed.S, placed.D}),
              (std::vector<std::int64_t>{1, N, T, D}));
    const Strides& stride = placed.stride;
    EXPECT_EQ((std::vector<std::int64_t>{stride.b, stride.n, stride.s, stride.d}),
              (std::vector<std::int64_t>{0, D, N * D, 1}));
    // The step of a single row is nobody's: a sequence that begins behind it must not walk away.
    view = ConstTensorView(nullptr, DType::f32, {1, N, D});
    view.stride[0] = std::int64_t{1} << 40;
    EXPECT_EQ(place(Layout::TND, view, 0).stride.s, 0);
}

TEST(Layouts, FusedHeadsFollowTheColumnStride) {
    // Every second column of a buffer twice as wide.
    ConstTensorView view(nullptr, DType::f32, {B, S, N * D});
    view.stride = {1000, 100, 2};
    EXPECT_EQ(place(Layout::BSH, view, N).stride.n, 2 * D);
    EXPECT_EQ(place(Layout::BSH, view, 0).D, 0);
}

}  // namespace
}  // namespace fascore
