// SPDX-License-Identifier: Apache-2.0
//
// The core's peak: nothing but independent multiply-adds on registers. `Chains` is 24 where 32 registers exist (fewer
// than 16 cannot cover latency × ports of a dot product and under-report it), 12 where 16 do (a 4-cycle FMA on two
// ports needs 8). Returns the operations done; the caller holds the clock.

template <class W, int Chains, int Operations>
double peak(std::int64_t rounds) {
    using F = typename W::Vectors;
    typename W::Accumulator sum[Chains];
#pragma GCC unroll 32
    for (int i = 0; i < Chains; ++i) sum[i] = F::set1(static_cast<typename F::Scalar>(i));
    // Zeros the compiler cannot know to be zeros, so that 0·0 + sum is not folded.
    const volatile typename W::Word unknown = 0;
    typename W::Word words[F::lanes];
    for (auto& word : words) word = unknown;
    const typename W::Operand a = W::load(words);
    const typename W::Operand b = W::load(words);
    for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
        for (int i = 0; i < Chains; ++i) sum[i] = W::multiply_add(sum[i], a, b);
    }
    typename F::V total = sum[0];
#pragma GCC unroll 32
    for (int i = 1; i < Chains; ++i) total = F::add(total, sum[i]);
    volatile typename F::Scalar sink = F::sum(total);
    static_cast<void>(sink);
    return static_cast<double>(rounds) * Chains * F::lanes * Operations;
}
