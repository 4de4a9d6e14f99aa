// SPDX-License-Identifier: Apache-2.0
//
// The two rows of a kernel table that every ISA has. `Registers`: vector registers; `Panel`: vectors of the widest
// panel; `Chains`: accumulators of the peak measurement.

template <class F, int Registers, int Panel, int Chains>
constexpr ComputeKernels plain_kernels(const char* name) {
    using W = PlainWords<F>;
    return ComputeKernels{
        name,
        tile_rows(Registers, Panel),
        Panel * F::lanes,
        F::lanes,
        1,
        sizeof(typename F::Scalar),
        sizeof(typename F::Scalar),
        product<W, Registers, Panel>,
        load_rows<F>,
        pack_by_columns<typename F::Word>,
        nullptr,  // a rows form is a by_rows form
        softmax_forward<F, SameType<F>>,
        softmax_backward<F>,
        row_dot<F>,
        store_rows<F>,
        rescale_rows<F>,
        load_rows<F>,
        hide_infinite<F>,
        slope_bias<F>,
        slope_sum<F>,
        add_tile<F>,
        keep_words,
        sizeof(typename F::Scalar) == 4 ? quantise : nullptr,
        peak<W, Chains, 2>,
        exp_array<F>,
    };
}
