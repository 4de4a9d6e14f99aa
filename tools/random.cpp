// SPDX-License-Identifier: Apache-2.0
//
// Seeded normal data: see random.h for the formulas and why they are written out here.
#include "random.h"

#include <bit>
#include <cmath>

namespace fascore::cli {
namespace {

constexpr std::uint64_t gamma = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio, odd: steps through every word
constexpr double pi = 3.14159265358979323846;

constexpr std::uint64_t mix(std::uint64_t word) noexcept {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9U;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBU;
    return word ^ (word >> 31);
}

// ln(v) for a normal positive v: v = m·2^e with m in [√½, √2), t = (m − 1)/(m + 1), ln m = 2·(t + t³/3 + t⁵/5 + …).
// |t| ≤ 0.1716, so the first term left out, t¹⁷/17, is below 6e-15.
double logarithm(double v) noexcept {
    const auto bits = std::bit_cast<std::uint64_t>(v);
    int exponent = static_cast<int>(bits >> 52) - 1023;
    double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFU) | 0x3FF0000000000000U);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        ++exponent;
    }
    const double t = (m - 1.0) / (m + 1.0);
    const double square = t * t;
    double series = 0.0;
    for (int power = 15; power >= 1; power -= 2) series = series * square + 1.0 / power;
    constexpr double ln2 = 0.69314718055994530942;
    return exponent * ln2 + 2.0 * t * series;
}

// cos and sin of 2πu: the nearest quarter turn is taken off, the rest (at most π/4 either way) goes through Taylor
// series to degree 14 and 13; what they leave out is below 2e-14.
void circle(double u, double& cosine, double& sine) noexcept {
    const int quarter = static_cast<int>(u * 4.0 + 0.5);
    const double x = 2.0 * pi * (u - 0.25 * quarter);
    const double square = x * x;
    double c = 1.0;
    for (int n = 14; n >= 2; n -= 2) c = 1.0 - c * square / (n * (n - 1));
    double s = 1.0;
    for (int n = 13; n >= 3; n -= 2) s = 1.0 - s * square / (n * (n - 1));
    s *= x;
    switch (quarter & 3) {
        case 0: cosine = c, sine = s; break;
        case 1: cosine = -s, sine = c; break;
        case 2: cosine = -c, sine = -s; break;
        default: cosine = s, sine = -c; break;
    }
}

}  // namespace

NormalStream::NormalStream(std::uint64_t seed, std::uint64_t stream) noexcept
    : start_(mix(seed + (stream + 1) * gamma)) {}

std::uint64_t NormalStream::word(std::uint64_t index) const noexcept { return mix(start_ + (index + 1) * gamma); }

void NormalStream::pair(std::uint64_t pair, double& even, double& odd) const noexcept {
    const double v = static_cast<double>((word(2 * pair) >> 11) + 1) * 0x1p-53;
    const double u = static_cast<double>(word(2 * pair + 1) >> 11) * 0x1p-53;
    const double r = std::sqrt(-2.0 * logarithm(v));
    double cosine = 0.0;
    double sine = 0.0;
    circle(u, cosine, sine);
    even = r * cosine;
    odd = r * sine;
}

double NormalStream::at(std::uint64_t index) const noexcept {
    double even = 0.0;
    double odd = 0.0;
    pair(index / 2, even, odd);
    return index % 2 == 0 ? even : odd;
}

}  // namespace fascore::cli
