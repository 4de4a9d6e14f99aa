// SPDX-License-Identifier: Apache-2.0
//
// The few things every file of this example uses: the index type, a parallel loop, and seeded random numbers.
//
// Same seed, same bits, for any number of threads: parallel_for hands out iterations that never write to the same
// place, no sum is split by thread, and every random number comes from one generator in one order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <stdexcept>

#include <fascore/status.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace char_lm {

using Index = std::int64_t;

/// The threads of the loops below; a build without OpenMP has one.
inline void set_threads([[maybe_unused]] int threads) {
#if defined(_OPENMP)
    omp_set_num_threads(threads);
#endif
}

/// function(0) … function(count − 1), in any order, on the threads that set_threads asked for.
template <class Function>
void parallel_for(Index count, const Function& function) {
#pragma omp parallel for schedule(static) if (count > 1)
    for (Index i = 0; i < count; ++i) function(i);
}

/// value / step, rounded up.
constexpr Index ceil_div(Index value, Index step) { return (value + step - 1) / step; }

/// function(first, last) over the consecutive pieces of 0 … count.
template <class Function>
void parallel_ranges(Index count, Index piece, const Function& function) {
    parallel_for(ceil_div(count, piece), [&](Index i) { function(i * piece, std::min(count, (i + 1) * piece)); });
}

/// Elements of simple arithmetic that make a piece worth handing to a thread.
inline constexpr Index elements_per_task = 8192;

/// fascore reports by Status; this example turns a failure into an exception that main() prints.
inline void require(const fascore::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
}

/// splitmix64: 64 well-mixed bits from a counter. The standard distributions differ between libraries, these do not.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t bits() {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
        return z ^ (z >> 31U);
    }
    /// In [0, 1), 53 random bits.
    double uniform() { return static_cast<double>(bits() >> 11U) * 0x1p-53; }
    /// In 0 … count − 1.
    Index below(Index count) { return static_cast<Index>(uniform() * static_cast<double>(count)); }
    /// Mean 0, deviation 1 (Box and Muller).
    double normal() {
        const double radius = std::sqrt(-2 * std::log(1 - uniform()));
        return radius * std::cos(2 * std::numbers::pi * uniform());
    }

  private:
    std::uint64_t state_;
};

}  // namespace char_lm
