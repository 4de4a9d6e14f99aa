// SPDX-License-Identifier: Apache-2.0
//
// AVX512_BF16 on top of avx512.h: a word is a pair of bf16, the dot instruction multiplies pairs into f32.
// vdpbf16ps and vcvtne2ps2bf16 round to nearest even and treat subnormals as zero.

struct Bf16 {
    // Products.
    using Vectors = F32;
    using Operand = __m512i;
    using Accumulator = __m512;
    using Word = std::uint32_t;
    static Operand load(const Word* p) { return _mm512_loadu_si512(p); }
    static Operand broadcast(const char* p) {
        Word word;
        std::memcpy(&word, p, sizeof word);
        return _mm512_set1_epi32(static_cast<int>(word));
    }
    static Accumulator multiply_add(Accumulator c, Operand a, Operand b) {
        return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }

    // Passes. A Pair is 32 bf16: the even row's 16, then the odd row's 16.
    using Pair = __m512i;
    static Pair convert(__m512 even, __m512 odd) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even)); }
    static void store_rows(std::uint16_t* even, std::uint16_t* odd, Pair x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(even), _mm512_castsi512_si256(x));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(odd), _mm512_extracti64x4_epi64(x, 1));
    }
    // [e0 o0] [e1 o1] …: element 2c from lane c, element 2c+1 from lane 16+c.
    static void store_words(std::uint32_t* p, Pair x) {
        const __m512i interleave = _mm512_set_epi32(
            0x001F000F, 0x001E000E, 0x001D000D, 0x001C000C, 0x001B000B, 0x001A000A, 0x00190009, 0x00180008, 0x00170007,
            0x00160006, 0x00150005, 0x00140004, 0x00130003, 0x00120002, 0x00110001, 0x00100000);
        _mm512_storeu_si512(p, _mm512_permutexvar_epi16(interleave, x));
    }
    static void store_row(std::uint16_t* p, __m512 x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    }
};
