// SPDX-License-Identifier: Apache-2.0
//
// Packing: from a user's rows, in any dtype and stride, to the forms products read (kernel_table.h names them).
//
//   load_rows          user rows → rows form: converted, zero-padded; rows that hold NaN or Inf are flagged
//   pack_by_columns    rows form → panels whose depth runs along a row: a transpose of words
//
//        X  row j   w0 w1 w2 …            panel   step 0:  X[0].w0  X[1].w0  X[2].w0 …
//           row j+1 w0 w1 w2 …      →             step 1:  X[0].w1  X[1].w1  X[2].w1 …
//
//   pack_by_row_pairs  rows form → panels whose depth runs down the rows, for bf16, where a word is a pair of rows.
//                      Where a word is one element the rows form is that already.
//
//        X  row 2s    a0 a1 a2 …          panel   step s:  [a0 b0] [a1 b1] [a2 b2] …       a0 in the low half
//           row 2s+1  b0 b1 b2 …    →
//
// All are O(S·D), once a head or once a block. Rows are contiguous in the fast path; any other column stride is
// gathered into a buffer first.

struct FromF32 {
    using F = F32;
    using Source = float;
    static F::V load(const Source* p) { return F32::load(p); }
};
struct FromF16 {
    using F = F32;
    using Source = std::uint16_t;
    static F::V load(const Source* p) { return F32::load_f16(p); }
};
struct FromBf16 {
    using F = F32;
    using Source = std::uint16_t;
    static F::V load(const Source* p) { return F32::load_bf16(p); }
};
struct F32ToF64 {
    using F = F64;
    using Source = float;
    static F::V load(const Source* p) {
        double wide[F::lanes];
        for (int i = 0; i < F::lanes; ++i) wide[i] = static_cast<double>(p[i]);
        return F64::load(wide);
    }
};
struct FromF64 {
    using F = F64;
    using Source = double;
    static F::V load(const Source* p) { return F64::load(p); }
};

// One contiguous row: `columns` elements converted and signed, zeros up to `ld`. Returns 1 when one was NaN or Inf:
// x − x is 0 for finite x and NaN otherwise, and NaN stays in a sum.
template <class From>
std::uint8_t convert_row(const void* row, typename From::F::Scalar* dst, std::int64_t columns, std::int64_t ld,
                         typename From::F::V sign) {
    using F = typename From::F;
    using Source = typename From::Source;
    const auto* src = static_cast<const Source*>(row);
    typename F::V bad = F::zero();
    std::int64_t c = 0;
    for (; c + F::lanes <= columns; c += F::lanes) {
        const typename F::V x = From::load(src + c);
        bad = F::add(bad, F::sub(x, x));
        F::store(dst + c, F::mul(x, sign));
    }
    if (c < columns) {
        Source padded[F::lanes] = {};
        std::memcpy(padded, src + c, static_cast<std::size_t>(columns - c) * sizeof(Source));
        typename F::Scalar tail[F::lanes];
        const typename F::V x = From::load(padded);
        bad = F::add(bad, F::sub(x, x));
        F::store(tail, F::mul(x, sign));
        for (std::int64_t t = 0; c < columns; ++c, ++t) dst[c] = tail[t];
    }
    for (; c < ld; ++c) dst[c] = 0;
    return F::any_nan(bad) ? 1 : 0;
}

inline std::int64_t element_bytes(Element element) {
    switch (element) {
        case Element::f64: return 8;
        case Element::f32: return 4;
        case Element::f8e4m3:
        case Element::f8e5m2: return 1;
        default: return 2;
    }
}

/// The value of an 8-bit float: its bits moved to where f32 has them, times the power of two between the biases. Inf
/// and NaN (exponent all ones; for E4M3 only 1111.111) are put in by hand.
template <int Fraction, int Bias, bool HasInf>
inline float f8_value(std::uint8_t bits) {
    const std::uint32_t magnitude = bits & 0x7FU;
    const std::uint32_t shifted = magnitude << (23 - Fraction);
    float value;
    std::memcpy(&value, &shifted, sizeof value);
    std::uint32_t scale_bits = static_cast<std::uint32_t>(254 - Bias) << 23;  // 2^(127 − Bias), also for subnormals
    float scale;
    std::memcpy(&scale, &scale_bits, sizeof scale);
    value *= scale;
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    if (HasInf ? magnitude >= 0x7CU : magnitude == 0x7FU) word = magnitude == 0x7CU ? 0x7F800000U : 0x7FC00000U;
    word |= static_cast<std::uint32_t>(bits & 0x80U) << 24;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

template <int Fraction, int Bias, bool HasInf>
struct FromF8 {
    using F = F32;
    using Source = std::uint8_t;
    static F::V load(const Source* p) {
        float wide[F::lanes];
        for (int i = 0; i < F::lanes; ++i) wide[i] = f8_value<Fraction, Bias, HasInf>(p[i]);
        return F32::load(wide);
    }
};
using FromE4m3 = FromF8<3, 7, false>;
using FromE5m2 = FromF8<2, 15, true>;

/// The longest row (head_dim ≤ 768).
constexpr std::int64_t longest_row = 768;

/// One row with any column stride as a contiguous one: itself, or a copy in `buffer` (longest_row · 8 bytes).
inline const void* contiguous_row(const char* src, std::int64_t column_stride, std::int64_t columns, std::int64_t bytes,
                                  char* buffer) {
    if (column_stride == 1 || columns <= 1) return src;
    for (std::int64_t c = 0; c < columns; ++c) {
        std::memcpy(buffer + c * bytes, src + c * column_stride * bytes, static_cast<std::size_t>(bytes));
    }
    return buffer;
}

template <class F>
std::uint8_t convert_row_from(const void* row, Element element, typename F::Scalar* dst, std::int64_t columns,
                              std::int64_t ld, typename F::V sign);

template <>
inline std::uint8_t convert_row_from<F32>(const void* row, Element element, float* dst, std::int64_t columns,
                                          std::int64_t ld, F32::V sign) {
    switch (element) {
        case Element::bf16: return convert_row<FromBf16>(row, dst, columns, ld, sign);
        case Element::f16: return convert_row<FromF16>(row, dst, columns, ld, sign);
        case Element::f8e4m3: return convert_row<FromE4m3>(row, dst, columns, ld, sign);
        case Element::f8e5m2: return convert_row<FromE5m2>(row, dst, columns, ld, sign);
        default: return convert_row<FromF32>(row, dst, columns, ld, sign);
    }
}

template <>
inline std::uint8_t convert_row_from<F64>(const void* row, Element element, double* dst, std::int64_t columns,
                                          std::int64_t ld, F64::V sign) {
    if (element == Element::f32) return convert_row<F32ToF64>(row, dst, columns, ld, sign);  // a bias
    return convert_row<FromF64>(row, dst, columns, ld, sign);
}

inline void note_nonfinite(const LoadArgs& args, std::int64_t row, std::uint8_t bad) {
    if (args.nonfinite == nullptr) return;
    args.nonfinite[row] = args.merge ? static_cast<std::uint8_t>(args.nonfinite[row] | bad) : bad;
}

template <class F>
void load_rows(const LoadArgs& args) {
    alignas(64) char buffer[longest_row * 8];
    auto* dst = static_cast<typename F::Scalar*>(args.dst);
    const std::int64_t bytes = element_bytes(args.element);
    using Scalar = typename F::Scalar;
    for (std::int64_t r = 0; r < args.rows; ++r, dst += args.ld) {
        const char* src = static_cast<const char*>(args.src) + r * args.row_stride * bytes;
        const void* row = contiguous_row(src, args.column_stride, args.columns, bytes, buffer);
        const Scalar factor = static_cast<Scalar>(args.factor) *
                              (args.row_factor == nullptr ? 1 : static_cast<Scalar>(args.row_factor[r]));
        const std::uint8_t bad = convert_row_from<F>(row, args.element, dst, args.columns, args.width, F::set1(factor));
        note_nonfinite(args, r, bad);
    }
    for (std::int64_t r = args.rows; r < args.padded_rows; ++r, dst += args.ld) {
        std::memset(dst, 0, static_cast<std::size_t>(args.width) * sizeof *dst);
    }
}

/// bf16 stays bf16. Inf and NaN have all exponent bits set.
inline void load_rows_bf16(const LoadArgs& args) {
    alignas(64) char buffer[longest_row * 8];
    auto* dst = static_cast<std::uint16_t*>(args.dst);
    const std::uint16_t sign = args.factor < 0 ? 0x8000 : 0;
    for (std::int64_t r = 0; r < args.rows; ++r, dst += args.ld) {
        const char* src = static_cast<const char*>(args.src) + r * args.row_stride * 2;
        const auto* row = static_cast<const char*>(contiguous_row(src, args.column_stride, args.columns, 2, buffer));
        std::memcpy(dst, row, static_cast<std::size_t>(args.columns) * 2);
        std::memset(dst + args.columns, 0, static_cast<std::size_t>(args.width - args.columns) * 2);
        if (sign != 0) {
            for (std::int64_t c = 0; c < args.columns; ++c) dst[c] = static_cast<std::uint16_t>(dst[c] ^ sign);
        }
        if (args.nonfinite != nullptr) {
            std::uint16_t bad = 0;
            for (std::int64_t c = 0; c < args.columns; ++c) {
                bad = static_cast<std::uint16_t>(bad | ((dst[c] & 0x7F80) == 0x7F80 ? 1 : 0));
            }
            note_nonfinite(args, r, static_cast<std::uint8_t>(bad));
        }
    }
    for (std::int64_t r = args.rows; r < args.padded_rows; ++r, dst += args.ld) {
        std::memset(dst, 0, static_cast<std::size_t>(args.width) * 2);
    }
}

/// A transpose of words. Blocks of the ISA's transpose size; rows and steps are padded so that blocks never end early.
template <class Word>
void pack_by_columns(const PackArgs& args) {
    const std::int64_t steps_a_row = args.ld * args.src_bytes / static_cast<std::int64_t>(sizeof(Word));
    const std::int64_t steps = args.columns * args.src_bytes / static_cast<std::int64_t>(sizeof(Word));
    const auto* src = static_cast<const Word*>(args.src);
    constexpr int size = sizeof(Word) == 4 ? F32::transpose_size : F64::lanes;
    for (std::int64_t row = 0; row < args.rows; row += size) {
        auto* panel =
            reinterpret_cast<Word*>(static_cast<char*>(args.dst) + row / args.width * args.panel) + row % args.width;
        for (std::int64_t step = 0; step < steps; step += size) {
            const Word* from = src + row * steps_a_row + step;
            Word* to = panel + step * args.width;
            if constexpr (sizeof(Word) == 4) {
                F32::transpose(from, steps_a_row, to, args.width);
            } else {
                for (int s = 0; s < size; ++s) {
                    for (int r = 0; r < size; ++r) to[s * args.width + r] = from[r * steps_a_row + s];
                }
            }
        }
    }
}

inline void pack_by_row_pairs(const PackArgs& args) {
    const auto* src = static_cast<const std::uint16_t*>(args.src);
    for (std::int64_t column = 0; column < args.columns; column += args.width) {
        auto* dst = reinterpret_cast<std::uint32_t*>(static_cast<char*>(args.dst) + column / args.width * args.panel);
        const std::int64_t width = args.width < args.columns - column ? args.width : args.columns - column;
        for (std::int64_t row = 0; row < args.rows; row += 2, dst += args.width) {
            const std::uint16_t* low = src + row * args.ld + column;
            const std::uint16_t* high = low + args.ld;
            for (std::int64_t c = 0; c < width; ++c) {
                dst[c] = static_cast<std::uint32_t>(low[c]) | static_cast<std::uint32_t>(high[c]) << 16;
            }
        }
    }
}
