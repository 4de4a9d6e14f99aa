// SPDX-License-Identifier: Apache-2.0
//
// Results: from accumulators to a user's rows, scaled and rounded once; and the row dot products δ = dy·attention_out.

struct ToF32 {
    using F = F32;
    using Target = float;
    static void store(Target* p, F::V x) { F32::store(p, x); }
    static void stream(Target* p, F::V x) { F32::stream(p, x); }
};
struct ToF16 {
    using F = F32;
    using Target = std::uint16_t;
    static void store(Target* p, F::V x) { F32::store_f16(p, x); }
};
struct RoundToBf16 {
    using F = F32;
    using Target = std::uint16_t;
    static void store(Target* p, F::V x) { F32::store_bf16(p, x); }
};
struct ToF64 {
    using F = F64;
    using Target = double;
    static void store(Target* p, F::V x) { F64::store(p, x); }
};

struct F64ToF32 {  // the gradient of an f32 bias
    using F = F64;
    using Target = float;
    static void store(Target* p, F::V x) {
        double wide[F::lanes];
        F64::store(wide, x);
        for (int i = 0; i < F::lanes; ++i) p[i] = static_cast<float>(wide[i]);
    }
};

/// Whether rows so many bytes apart all start on cache lines: what goes past the cache must.
inline bool on_cache_lines(const void* first, std::int64_t pitch) {
    return (reinterpret_cast<std::uintptr_t>(first) | static_cast<std::uintptr_t>(pitch)) % 64 == 0;
}

template <class To>
void store_rows_to(const StoreArgs& args) {
    using F = typename To::F;
    using Scalar = typename F::Scalar;
    using Target = typename To::Target;
    const auto* factor = static_cast<const Scalar*>(args.factor);
    constexpr bool can_stream = requires(Target * p, typename F::V x) { To::stream(p, x); };
    bool streamed = false;
    if constexpr (can_stream) {
        streamed = args.once && args.column_stride == 1 &&
                   on_cache_lines(args.dst, args.row_stride * static_cast<std::int64_t>(sizeof(Target)));
    }
    for (std::int64_t r = 0; r < args.rows; ++r) {
        const auto* src = static_cast<const Scalar*>(args.src) + r * args.ld;
        auto* dst = static_cast<Target*>(args.dst) + r * args.row_stride;
        const typename F::V f = F::set1(factor[r * args.factor_step]);
        const auto scaled = [&](std::int64_t c) {
            return args.divide ? F::div(F::load(src + c), f) : F::mul(F::load(src + c), f);
        };
        std::int64_t c = 0;
        if constexpr (can_stream) {
            for (; streamed && c + F::lanes <= args.columns; c += F::lanes) To::stream(dst + c, scaled(c));
        }
        if (args.column_stride == 1) {
            for (; c + F::lanes <= args.columns; c += F::lanes) To::store(dst + c, scaled(c));
        }
        for (; c < args.columns; c += F::lanes) {
            Target lane[F::lanes];
            To::store(lane, scaled(c));
            for (std::int64_t i = 0; i < F::lanes && c + i < args.columns; ++i) {
                dst[(c + i) * args.column_stride] = lane[i];
            }
        }
    }
    if constexpr (can_stream) {
        if (streamed) F::drain();
    }
}

template <class F>
void store_rows(const StoreArgs& args);

template <>
inline void store_rows<F32>(const StoreArgs& args) {
    switch (args.element) {
        case Element::bf16: store_rows_to<RoundToBf16>(args); break;
        case Element::f16: store_rows_to<ToF16>(args); break;
        default: store_rows_to<ToF32>(args); break;
    }
}

template <>
inline void store_rows<F64>(const StoreArgs& args) {
    if (args.element == Element::f32) return store_rows_to<F64ToF32>(args);
    store_rows_to<ToF64>(args);
}

template <class F>
void row_dot(const RowDotArgs& args) {
    using Scalar = typename F::Scalar;
    alignas(64) char raw[longest_row * 8];
    alignas(64) Scalar x[longest_row + 16];
    alignas(64) Scalar y[longest_row + 16];
    const typename F::V one = F::set1(1);
    const std::int64_t padded = (args.columns + 15) / 16 * 16;
    const std::int64_t x_bytes = element_bytes(args.x_element);
    const std::int64_t y_bytes = element_bytes(args.y_element);
    for (std::int64_t r = 0; r < args.rows; ++r) {
        const char* x_row = static_cast<const char*>(args.x) + r * args.x_row * x_bytes;
        const char* y_row = static_cast<const char*>(args.y) + r * args.y_row * y_bytes;
        convert_row_from<F>(contiguous_row(x_row, args.x_column, args.columns, x_bytes, raw), args.x_element, x,
                            args.columns, padded, one);
        convert_row_from<F>(contiguous_row(y_row, args.y_column, args.columns, y_bytes, raw), args.y_element, y,
                            args.columns, padded, one);
        // In f64: delta is subtracted from dP, which it nearly equals where one weight dominates, and whatever it is
        // off by goes into a whole row of dS. Eight sums, so that the compiler can use vectors without changing the
        // order.
        double sum[8] = {};
        for (std::int64_t c = 0; c < padded; c += 8) {
            for (std::int64_t i = 0; i < 8; ++i) {
                sum[i] += static_cast<double>(x[c + i]) * static_cast<double>(y[c + i]);
            }
        }
        const double total = ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
        static_cast<Scalar*>(args.out)[r] = static_cast<Scalar>(total);
    }
}
