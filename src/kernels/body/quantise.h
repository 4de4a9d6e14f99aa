// SPDX-License-Identifier: Apache-2.0
//
// What an 8-bit float keeps of an f32, as an f32: the operands of the second products of 8-bit attention.
//
//   normal       the fraction rounded to nearest even at its 3 (E4M3) or 2 (E5M2) bits, in the integer that holds it
//   below        2^−6 (2^−14): a multiple of 2^−9 (2^−16); adding and subtracting 1.5·2^23 quanta rounds to one
//   above        448 (57344): that
//
//   R = fp8(P / keep_prob)                        no scale: R lies in [0, 1/keep_prob]
//   dx8 = fp8(dx · u), used as dx8 / u            u = largest / max |dx| over the 128 × 128 block, 0 when max < 1e-8

struct E4m3Numbers {
    static constexpr int fraction = 3;
    static constexpr float largest = 448.0F;
    static constexpr float smallest_normal = 0x1p-6F;
    static constexpr float magic = 0x1.8p23F * 0x1p-9F;
};
struct E5m2Numbers {
    static constexpr int fraction = 2;
    static constexpr float largest = 57344.0F;
    static constexpr float smallest_normal = 0x1p-14F;
    static constexpr float magic = 0x1.8p23F * 0x1p-16F;
};

template <class N>
inline float to_f8(float x) {
    constexpr int cut = 23 - N::fraction;
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits += ((1U << (cut - 1)) - 1U) + ((bits >> cut) & 1U);
    bits &= ~((1U << cut) - 1U);
    float normal;
    std::memcpy(&normal, &bits, sizeof normal);
    const float magnitude = x < 0 ? -x : x;
    const float small = (x + N::magic) - N::magic;
    float rounded = magnitude < N::smallest_normal ? small : normal;
    rounded = rounded > N::largest ? N::largest : rounded;
    rounded = rounded < -N::largest ? -N::largest : rounded;
    return x == x ? rounded : x;
}

template <class N>
void quantise_to(const QuantiseArgs& args) {
    auto* tile = static_cast<float*>(args.x);
    float up = 1;
    float down = 1;
    if (args.block) {
        // The maximum of the magnitudes' bits, in integers: an order that vectors can take. (A NaN is the largest.)
        std::uint32_t most = 0;
        for (std::int64_t r = 0; r < args.rows; ++r) {
            const float* row = tile + r * args.ld;
            for (std::int64_t c = 0; c < args.columns; ++c) {
                std::uint32_t bits;
                std::memcpy(&bits, row + c, sizeof bits);
                bits &= 0x7FFFFFFFU;
                most = bits > most ? bits : most;
            }
        }
        float largest;
        std::memcpy(&largest, &most, sizeof largest);
        up = largest < 1e-8F ? 0 : N::largest / largest;
        down = up == 0 ? 0 : 1 / up;
    }
    for (std::int64_t r = 0; r < args.rows; ++r) {
        float* row = tile + r * args.ld;
        const float factor = args.row_factor == nullptr ? up : up * args.row_factor[r];
        for (std::int64_t c = 0; c < args.columns; ++c) row[c] = to_f8<N>(row[c] * factor) * down;
    }
}

inline void quantise(const QuantiseArgs& args) {
    if (args.element == Element::f8e4m3) {
        quantise_to<E4m3Numbers>(args);
    } else {
        quantise_to<E5m2Numbers>(args);
    }
}
