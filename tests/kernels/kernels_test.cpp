// SPDX-License-Identifier: Apache-2.0
//
// The kernels, table by table, on every ISA this machine runs; the ISA is in the test's name. Conversions against the
// scalar definition on all patterns, exp by ULP, the product against a loop over every tile size with trimming, packing
// as drawn in pack.h, and the default choice.
#include "kernels/kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/select.h"

namespace fascore {
namespace {

using namespace kernels;

std::vector<const KernelTable*> runnable_tables() {
    std::vector<const KernelTable*> tables;
    for (const IsaEntry& entry : isa_entries()) {
        if (entry.runnable) tables.push_back(entry.table);
    }
    return tables;
}

class Kernels : public testing::TestWithParam<const KernelTable*> {};
INSTANTIATE_TEST_SUITE_P(Isa, Kernels, testing::ValuesIn(runnable_tables()),
                         [](const auto& one) { return std::string(one.param->name); });

std::vector<std::uint16_t> all_patterns() {
    std::vector<std::uint16_t> patterns(65536);
    for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
    return patterns;
}

bool same_or_both_nan(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
}

TEST_P(Kernels, WideningIsTheDefinitionOnAllPatterns) {
    const auto patterns = all_patterns();
    std::vector<float> wide(65536);
    std::vector<std::uint8_t> flags(65536 / 256);
    for (const Element element : {Element::bf16, Element::f16}) {
        LoadArgs args{};
        args.src = patterns.data();
        args.element = element;
        args.row_stride = 256;
        args.column_stride = 1;
        args.rows = args.padded_rows = 256;
        args.columns = 256;
        args.dst = wide.data();
        args.ld = args.width = 256;
        args.factor = 1;
        args.nonfinite = flags.data();
        GetParam()->f32.load_rows(args);
        for (std::size_t i = 0; i < wide.size(); ++i) {
            const float expected = element == Element::bf16 ? bf16_to_f32(patterns[i]) : f16_to_f32(patterns[i]);
            ASSERT_TRUE(same_or_both_nan(wide[i], expected)) << "pattern " << i;
        }
        for (std::size_t row = 0; row < 256; ++row) {
            bool bad = false;
            for (std::size_t c = 0; c < 256; ++c) bad = bad || !std::isfinite(wide[row * 256 + c]);
            ASSERT_EQ(flags[row] != 0, bad) << "row " << row;
        }
    }
}

TEST_P(Kernels, NarrowingIsTheDefinition) {
    // All bf16 values, and around each the two halves of the interval to its neighbour and the tie between them.
    std::vector<float> values;
    for (const std::uint16_t pattern : all_patterns()) {
        const auto word = static_cast<std::uint32_t>(pattern) << 16;
        for (const std::uint32_t low : {0x0000U, 0x0001U, 0x0FFFU, 0x1000U, 0x1001U, 0x7FFFU, 0x8000U, 0x8001U}) {
            values.push_back(std::bit_cast<float>(word | low));
        }
    }
    std::vector<std::uint16_t> narrow(values.size());
    const float one = 1;
    for (const Element element : {Element::bf16, Element::f16}) {
        StoreArgs args{};
        args.src = values.data();
        args.ld = 512;
        args.rows = static_cast<std::int32_t>(values.size() / 512);
        args.columns = 512;
        args.factor = &one;
        args.dst = narrow.data();
        args.element = element;
        args.row_stride = 512;
        args.column_stride = 1;
        GetParam()->f32.store_rows(args);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const bool half = element == Element::f16;
            const std::uint16_t expected = half ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
            if (std::isnan(values[i])) {
                const float back = half ? f16_to_f32(narrow[i]) : bf16_to_f32(narrow[i]);
                ASSERT_TRUE(std::isnan(back)) << i;
            } else {
                ASSERT_EQ(narrow[i], expected) << values[i];
            }
        }
    }
}

TEST_P(Kernels, ExpIsWithinTwoUlp) {
    std::vector<float> x;
    for (int i = 0; i <= 1 << 18; ++i) x.push_back(-86.5F + 175.0F * static_cast<float>(i) / (1 << 18));
    while (x.size() % 16 != 0) x.push_back(0);
    std::vector<float> y(x.size());
    GetParam()->f32.exp(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i]));
        if (exact > static_cast<double>(std::numeric_limits<float>::max())) {
            ASSERT_TRUE(std::isinf(y[i])) << x[i];
            continue;
        }
        const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
        ASSERT_LE(std::fabs(static_cast<double>(y[i]) - exact), 2 * ulp) << x[i];
    }
    std::vector<double> xd;
    for (int i = 0; i <= 1 << 16; ++i) xd.push_back(-708.0 + 1417.0 * i / (1 << 16));
    while (xd.size() % 16 != 0) xd.push_back(0);
    std::vector<double> yd(xd.size());
    GetParam()->f64.exp(xd.data(), yd.data(), static_cast<std::int64_t>(xd.size()));
    for (std::size_t i = 0; i < xd.size(); ++i) {
        const long double exact = std::exp(static_cast<long double>(xd[i]));
        const long double ulp = std::ldexp(1.0L, std::ilogb(exact) - 52);
        ASSERT_LE(std::fabs(static_cast<long double>(yd[i]) - exact), 2 * ulp) << xd[i];
    }
}

TEST_P(Kernels, ExpAtTheEdges) {
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> x{0.0F, -0.0F, -inf, inf, NAN, -87.0F, -1000.0F, -3e38F, 3e38F, 100.0F, 0, 0, 0, 0, 0, 0};
    std::vector<float> y(16);
    GetParam()->f32.exp(x.data(), y.data(), 16);
    EXPECT_EQ(y[0], 1.0F);
    EXPECT_EQ(y[1], 1.0F);
    EXPECT_EQ(y[2], 0.0F);
    EXPECT_EQ(y[3], inf);
    EXPECT_TRUE(std::isnan(y[4]));
    for (int i = 5; i < 8; ++i) EXPECT_EQ(y[static_cast<std::size_t>(i)], 0.0F);
    EXPECT_EQ(y[8], inf);
    EXPECT_EQ(y[9], inf);
}

// Small integers: every sum is exact in any order, so the product must be exactly the loop's.
float small_integer(std::int64_t i) { return static_cast<float>((i * 7919) % 13 - 6); }

void check_product(const ComputeKernels& kernels, int m, int n, int k, int width, bool accumulate, bool trimmed) {
    // A [m][k], B [k][n] with k in words; a bf16 word is a pair of elements.
    const int elements = k * kernels.step;
    const auto a = [&](int row, int e) { return small_integer(row * 131 + e); };
    const auto b = [&](int e, int column) { return small_integer(e * 17 + column + 3); };
    const auto put = [&](std::byte* word, int part, float value) {
        if (kernels.step == 2) {
            const std::uint16_t half = f32_to_bf16(value);
            std::memcpy(word + 2 * part, &half, 2);
        } else if (kernels.word_bytes == 8) {
            const double wide = static_cast<double>(value);
            std::memcpy(word, &wide, 8);
        } else {
            std::memcpy(word, &value, 4);
        }
    };
    const auto word = static_cast<std::size_t>(kernels.word_bytes);
    std::vector<std::byte> A(static_cast<std::size_t>(m * k) * word);
    const int panels = (n + width - 1) / width;
    std::vector<std::byte> B(static_cast<std::size_t>(panels * width * k) * word);
    for (int r = 0; r < m; ++r) {
        for (int e = 0; e < elements; ++e) {
            put(A.data() + static_cast<std::size_t>(r * k + e / kernels.step) * word, e % kernels.step, a(r, e));
        }
    }
    for (int e = 0; e < elements; ++e) {
        for (int c = 0; c < n; ++c) {
            const int index = c / width * width * k + e / kernels.step * width + c % width;
            put(B.data() + static_cast<std::size_t>(index) * word, e % kernels.step, b(e, c));
        }
    }
    const auto acc = static_cast<std::size_t>(kernels.acc_bytes);
    std::vector<std::byte> C(static_cast<std::size_t>(m * n) * acc);
    const float before = accumulate ? 5.0F : NAN;
    const auto put_c = [&](std::size_t i, float v) {
        if (acc == 8) {
            const double wide = static_cast<double>(v);
            std::memcpy(C.data() + i * 8, &wide, 8);
        } else {
            std::memcpy(C.data() + i * 4, &v, 4);
        }
    };
    for (std::size_t i = 0; i < static_cast<std::size_t>(m * n); ++i) put_c(i, before);
    std::vector<Span> depth(static_cast<std::size_t>(m));
    std::vector<Span> columns(static_cast<std::size_t>(m));
    for (int r = 0; r < m; ++r) {
        depth[static_cast<std::size_t>(r)] = r % 5 == 4 ? Span{0, 0} : Span{r % 3, k - r % 2};
        columns[static_cast<std::size_t>(r)] = Span{r >= 6 && n > 16 ? 16 : 0, n};
    }
    ProductArgs args{};
    args.a = A.data();
    args.a_row = k * kernels.word_bytes;
    args.a_step = kernels.word_bytes;
    args.b = B.data();
    args.b_panel = static_cast<std::int64_t>(width) * k * kernels.word_bytes;
    args.b_step = width;
    args.b_width = width;
    args.c = C.data();
    args.ldc = n;
    args.m = m;
    args.n = n;
    args.k = k;
    args.accumulate = accumulate;
    args.depth_span = nullptr;
    args.column_span = trimmed ? columns.data() : nullptr;
    kernels.product(args);
    for (int r = 0; r < m; ++r) {
        const Span wanted = trimmed ? columns[static_cast<std::size_t>(r)] : Span{0, n};
        for (int c = wanted.begin; c < wanted.end; ++c) {
            double expected = accumulate ? 5.0 : 0.0;
            for (int e = 0; e < elements; ++e) expected += static_cast<double>(a(r, e) * b(e, c));
            const std::size_t i = static_cast<std::size_t>(r * n + c);
            double got = 0;
            if (acc == 8) {
                std::memcpy(&got, C.data() + i * 8, 8);
            } else {
                float narrow = 0;
                std::memcpy(&narrow, C.data() + i * 4, 4);
                got = static_cast<double>(narrow);
            }
            ASSERT_EQ(got, expected) << kernels.name << " m " << m << " n " << n << " k " << k << " at " << r << ','
                                     << c;
        }
    }
    if (!trimmed) return;
    // depth_span: what lies outside is not multiplied. With A zeroed there, the result is that of the full product.
    for (int r = 0; r < m; ++r) {
        const Span span = depth[static_cast<std::size_t>(r)];
        for (int step = 0; step < k; ++step) {
            if (step >= span.begin && step < span.end) continue;
            std::memset(A.data() + static_cast<std::size_t>(r * k + step) * word, 0, word);
        }
    }
    std::vector<std::byte> full(C.size());
    for (std::size_t i = 0; i < static_cast<std::size_t>(m * n); ++i) put_c(i, before);
    args.column_span = nullptr;
    kernels.product(args);
    full = C;
    for (std::size_t i = 0; i < static_cast<std::size_t>(m * n); ++i) put_c(i, before);
    args.depth_span = depth.data();
    kernels.product(args);
    ASSERT_EQ(std::memcmp(C.data(), full.data(), C.size()), 0)
        << kernels.name << " m " << m << " n " << n << " k " << k;
}

TEST_P(Kernels, ProductIsTheLoopForEveryTileSize) {
    std::vector<const ComputeKernels*> all{&GetParam()->f32, &GetParam()->f64};
    if (GetParam()->bf16 != nullptr) all.push_back(GetParam()->bf16);
    for (const ComputeKernels* kernels : all) {
        const int lanes = kernels->lanes;
        for (int width = lanes; width <= kernels->nr; width += lanes) {
            for (const int n : {16, 48, 80}) {
                for (int m = 1; m <= 14; ++m) check_product(*kernels, m, n, 5, width, m % 2 == 0, false);
                check_product(*kernels, 37, n, 9, width, false, true);
                check_product(*kernels, 37, n, 9, width, true, true);
            }
        }
    }
}

// Past the cache or not, on cache lines or beside them: the same numbers, nothing before or after a row.
TEST_P(Kernels, RowsStoredOnceAreTheSameRows) {
    constexpr std::int64_t rows = 5, ld = 96, row_stride = 64;
    const float half = 0.5F;
    std::vector<float> source(rows * ld);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i);
    alignas(64) std::array<float, (rows + 1) * row_stride> target;
    for (const std::int64_t shift : {0, 3}) {
        for (const std::int32_t columns : {1, 15, 16, 37, 48}) {
            target.fill(-1);
            StoreArgs args{};
            args.src = source.data();
            args.ld = ld;
            args.rows = rows;
            args.columns = columns;
            args.factor = &half;
            args.once = true;
            args.dst = target.data() + shift;
            args.element = Element::f32;
            args.row_stride = row_stride;
            args.column_stride = 1;
            GetParam()->f32.store_rows(args);
            for (std::int64_t i = 0; i < std::ssize(target); ++i) {
                const std::int64_t row = (i - shift) / row_stride;
                const std::int64_t column = (i - shift) % row_stride;
                const bool inside = i >= shift && row < rows && column < columns;
                const float expected = inside ? half * source[static_cast<std::size_t>(row * ld + column)] : -1;
                ASSERT_EQ(target[static_cast<std::size_t>(i)], expected) << columns << " columns, element " << i;
            }
        }
    }
}

// dx in place or past the cache, beside cache lines or on them: the same numbers, times the factor, nothing around
// them.
TEST_P(Kernels, GradientRowsGoWhereTheyAreAsked) {
    constexpr std::int32_t rows = 5, columns = 32;
    constexpr std::int64_t pitch = 64;
    const std::vector<float> max(rows, 0.5F), inverse(rows, 0.25F), delta(rows, 0.125F);
    const auto run = [&](float* dx, std::int64_t ldx, double factor, bool once) {
        std::vector<float> s(rows * columns), dp(rows * columns);
        for (std::size_t i = 0; i < s.size(); ++i) {
            s[i] = -0.01F * static_cast<float>(i);
            dp[i] = 0.5F * static_cast<float>(i % 7);
        }
        SoftmaxBackwardArgs args{};
        args.s = args.p_depth = s.data();
        args.dp = args.ds_depth = args.ds_rows = dp.data();
        args.lds = args.ldw = args.ldr = columns;
        args.rows = rows;
        args.columns = columns;
        args.scale = 1;
        args.row_max = max.data();
        args.row_inverse = inverse.data();
        args.row_delta = delta.data();
        args.dx = dx;
        args.ldx = ldx;
        args.dx_factor = factor;
        args.dx_once = once;
        GetParam()->f32.softmax_backward(args);
        return dp;  // dS, which is dx where no cap is
    };
    alignas(64) std::array<float, (rows + 1) * pitch> target;
    for (const std::int64_t shift : {0, 3}) {
        for (const bool once : {false, true}) {
            target.fill(-1);
            const std::vector<float> ds = run(target.data() + shift, pitch, 0.5, once);
            for (std::int64_t i = 0; i < std::ssize(target); ++i) {
                const std::int64_t row = (i - shift) / pitch;
                const std::int64_t column = (i - shift) % pitch;
                const bool inside = i >= shift && row < rows && column < columns;
                const float expected = inside ? 0.5F * ds[static_cast<std::size_t>(row * columns + column)] : -1;
                ASSERT_EQ(target[static_cast<std::size_t>(i)], expected) << "shift " << shift << ", element " << i;
            }
        }
    }
}

// What a product is asked to fetch ahead changes nothing in it, and all of it is asked for in the end.
TEST_P(Kernels, AProductWalksWhatIsWantedAhead) {
    const ComputeKernels& f32 = GetParam()->f32;
    constexpr std::int32_t m = 12, n = 16, k = 3;
    const std::vector<float> a(m * k, 1), b(k * n, 2);
    std::vector<float> c(m * n);
    std::vector<char> wanted(4096);
    ProductArgs args{};
    args.a = a.data();
    args.a_row = k * 4;
    args.a_step = 4;
    args.b = b.data();
    args.b_step = n;
    args.b_width = std::min(f32.nr, n);
    args.b_panel = std::int64_t{args.b_width} * 4;
    args.c = c.data();
    args.ldc = n;
    args.m = m;
    args.n = n;
    args.k = k;
    Ahead ahead{};
    ahead.list[ahead.count++] = {wanted.data(), 128, 2, 3, false};
    ahead.list[ahead.count++] = {wanted.data() + 1024, 64, 1, 5, true};
    args.ahead = &ahead;
    ahead.quota = 4;
    f32.product(args);
    while (ahead.at < ahead.count) {
        const std::int32_t before = ahead.at * 100 + ahead.row * 10 + ahead.line;
        f32.product(args);
        ASSERT_GT(ahead.at * 100 + ahead.row * 10 + ahead.line, before);
    }
    EXPECT_EQ(c, std::vector<float>(m * n, 6));
}

TEST_P(Kernels, PackingIsAsDrawn) {
    const ComputeKernels& f32 = GetParam()->f32;
    // X[r][c] = 100 r + c, 32 × 48, panels 32 wide.
    std::vector<float> x(32 * 48);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(100 * (i / 48) + i % 48);
    std::vector<float> panels(2 * 48 * 32);
    PackArgs args{};
    args.src = x.data();
    args.ld = 48;
    args.src_bytes = 4;
    args.rows = 32;
    args.columns = 48;
    args.dst = panels.data();
    args.panel = 48 * 16 * 4;
    args.width = 16;
    f32.pack_by_columns(args);
    for (std::size_t row = 0; row < 32; ++row) {
        for (std::size_t step = 0; step < 48; ++step) {
            ASSERT_EQ(panels[row / 16 * 48 * 16 + step * 16 + row % 16], static_cast<float>(100 * row + step));
        }
    }
    EXPECT_EQ(f32.pack_by_rows, nullptr);
}

// Where a word is one element the rows of B may stand as they are: its panels side by side in one row.
TEST_P(Kernels, ARowsFormIsAByRowsForm) {
    const ComputeKernels& f32 = GetParam()->f32;
    constexpr std::int64_t m = 7, n = 80, k = 9, ld = 96;
    std::vector<float> a(m * k);
    std::vector<float> b(k * ld, NAN);
    std::vector<float> c(m * n);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 5) - 2;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = i % ld < n ? static_cast<float>(i % 7) - 3 : NAN;
    for (int width = f32.lanes; width <= f32.nr; width += f32.lanes) {
        ProductArgs args{};
        args.a = a.data();
        args.a_row = k * 4;
        args.a_step = 4;
        args.b = b.data();
        args.b_panel = std::int64_t{width} * 4;
        args.b_step = ld;
        args.b_width = width;
        args.c = c.data();
        args.ldc = n;
        args.m = m;
        args.n = n;
        args.k = k;
        f32.product(args);
        for (std::size_t r = 0; r < m; ++r) {
            for (std::size_t column = 0; column < n; ++column) {
                float expected = 0;
                for (std::size_t e = 0; e < k; ++e) expected += a[r * k + e] * b[e * ld + column];
                ASSERT_EQ(c[r * n + column], expected) << width << " at " << r << ',' << column;
            }
        }
    }
}

TEST(Select, KnownNamesAndRefusals) {
    const KernelTable* table = nullptr;
    std::string why;
    for (const IsaEntry& entry : isa_entries()) {
        const Status s = select_table(entry.table->name, table, why);
        EXPECT_EQ(s.ok(), entry.runnable) << entry.table->name;
        if (s.ok()) {
            EXPECT_EQ(table, entry.table);
        }
    }
    const Status s = select_table("mmx", table, why);
    EXPECT_EQ(s.code(), StatusCode::invalid_argument);
    EXPECT_NE(s.message().find("isa: 'mmx', must be one of "), std::string::npos) << s.message();
    EXPECT_NE(s.message().find("baseline"), std::string::npos) << s.message();
}

TEST(Select, TheDefaultIsTheFirstThatRunsAndIsNotSlow) {
    if (std::getenv("FASCORE_ISA") != nullptr) GTEST_SKIP() << "FASCORE_ISA is set";
    const KernelTable* table = nullptr;
    std::string why;
    ASSERT_TRUE(select_table({}, table, why).ok());
    for (const IsaEntry& entry : isa_entries()) {
        if (!entry.runnable || entry.demoted != nullptr) continue;
        EXPECT_EQ(table, entry.table) << why;
        break;
    }
}

}  // namespace
}  // namespace fascore
