// SPDX-License-Identifier: Apache-2.0
//
// Results: from accumulators to a user's rows, scaled and rounded once; and the row dot products δ = dy·attention_out.

template <class F>
void store_vector(void* row, Element element, std::int64_t column, typename F::V x);

template <>
inline void store_vector<F32>(void* row, Element element, std::int64_t column, F32::V x) {
    switch (element) {
        case Element::bf16: F32::store_bf16(static_cast<std::uint16_t*>(row) + column, x); break;
        case Element::f16: F32::store_f16(static_cast<std::uint16_t*>(row) + column, x); break;
        default: F32::store(static_cast<float*>(row) + column, x); break;
    }
}

template <>
inline void store_vector<F64>(void* row, Element /*f64 is the only target*/, std::int64_t column, F64::V x) {
    F64::store(static_cast<double*>(row) + column, x);
}

template <class F>
void store_rows(const StoreArgs& args) {
    using Scalar = typename F::Scalar;
    const auto* factor = static_cast<const Scalar*>(args.factor);
    const std::int64_t bytes = element_bytes(args.element);
    for (std::int64_t r = 0; r < args.rows; ++r) {
        const auto* src = static_cast<const Scalar*>(args.src) + r * args.ld;
        const typename F::V f = F::set1(factor[r * args.factor_step]);
        char* dst = static_cast<char*>(args.dst) + r * args.row_stride * bytes;
        for (std::int64_t c = 0; c < args.columns; c += F::lanes) {
            const typename F::V x = args.divide ? F::div(F::load(src + c), f) : F::mul(F::load(src + c), f);
            if (args.column_stride == 1 && c + F::lanes <= args.columns) {
                store_vector<F>(dst, args.element, c, x);
                continue;
            }
            char lane[F::lanes * 8];
            store_vector<F>(lane, args.element, 0, x);
            for (std::int64_t i = 0; i < F::lanes && c + i < args.columns; ++i) {
                std::memcpy(dst + (c + i) * args.column_stride * bytes, lane + i * bytes,
                            static_cast<std::size_t>(bytes));
            }
        }
    }
}

template <class F>
void row_dot(const RowDotArgs& args) {
    using Scalar = typename F::Scalar;
    alignas(64) char raw[longest_row * 8];
    alignas(64) Scalar x[longest_row + 16];
    alignas(64) Scalar y[longest_row + 16];
    const typename F::V one = F::set1(1);
    const std::int64_t padded = (args.columns + F::lanes - 1) / F::lanes * F::lanes;
    const std::int64_t x_bytes = element_bytes(args.x_element);
    const std::int64_t y_bytes = element_bytes(args.y_element);
    for (std::int64_t r = 0; r < args.rows; ++r) {
        const char* x_row = static_cast<const char*>(args.x) + r * args.x_row * x_bytes;
        const char* y_row = static_cast<const char*>(args.y) + r * args.y_row * y_bytes;
        convert_row_from<F>(contiguous_row(x_row, args.x_column, args.columns, x_bytes, raw), args.x_element, x,
                            args.columns, padded, one);
        convert_row_from<F>(contiguous_row(y_row, args.y_column, args.columns, y_bytes, raw), args.y_element, y,
                            args.columns, padded, one);
        typename F::V sum = F::zero();
        for (std::int64_t c = 0; c < padded; c += F::lanes) sum = F::fma(F::load(x + c), F::load(y + c), sum);
        static_cast<Scalar*>(args.out)[r] = F::sum(sum);
    }
}
