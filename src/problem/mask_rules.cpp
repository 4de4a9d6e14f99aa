// SPDX-License-Identifier: Apache-2.0
//
// atten_mask: a full mask, whose elements are read, or a template, whose content is known.
//
//   full, batches alike   [B,N1,S1,S2]  [B,1,S1,S2]  [1,1,S1,S2]  [S1,S2]
//   full, TND             [maxSq,maxSkv], [1,1,…]    by_batch    one corner for every sequence
//                         [T1,T2]                    by_rows     the block of row q_begin and column k_begin
//                         [B,1,…], [B,N1,…]          by_pairs    [heads, Sq, Skv] of one sequence after the other
//   template              [2048,2048]                1 above the diagonal
//                         [3072,2048]                the same, then 1024 rows of 0 in the left half, 1 in the right
#include "problem/rules.h"

namespace fascore {

namespace {

constexpr std::int64_t template_side = 2048;
constexpr std::int64_t prefix_template_rows = 3072;

bool hides(const ConstTensorView& view, std::size_t first_axis, std::int64_t row, std::int64_t column) {
    const auto* bytes = static_cast<const std::uint8_t*>(view.data);
    return bytes[row * view.stride[first_axis] + column * view.stride[first_axis + 1]] != 0;
}

// The band says what a template says, for any length, so its elements are looked at only on request.
Status template_rules(const Call& call, const ConstTensorView& view) {
    const int mode = call.params.sparse_mode;
    const std::int64_t rows = mode == 6 ? prefix_template_rows : template_side;
    const std::string in_mode = " in sparse_mode " + text(std::int64_t{mode});
    if (Status s = shape_rule("atten_mask", view, {{rows, template_side}, {1, 1, rows, template_side}}, in_mode);
        !s.ok()) {
        return s;
    }
    if (!call.params.check_mask || call.pointers == Pointers::ignored) return {};
    const std::size_t axis = view.rank == 4 ? 2 : 0;
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t first_hidden = i < template_side ? i + 1 : template_side / 2;
        for (std::int64_t j = 0; j < template_side; ++j) {
            const bool expected = j >= first_hidden;
            if (hides(view, axis, i, j) != expected) {
                return refuse("atten_mask",
                              "element [" + text(i) + ", " + text(j) + "] is " + (expected ? "0" : "not 0"),
                              std::string("must be ") + (expected ? "1" : "0") + in_mode);
            }
        }
    }
    return {};
}

Status packed_shape(const Call& call, const ConstTensorView& view) {
    const Problem& p = call.problem;
    const std::string where = " in sparse_mode " + text(std::int64_t{call.params.sparse_mode});
    return shape_rule("atten_mask", view,
                      {{p.S1, p.S2}, {1, 1, p.S1, p.S2}, {p.T1, p.T2}, {p.B, 1, p.S1, p.S2}, {p.B, p.N1, p.S1, p.S2}},
                      where);
}

Status packed_mask(Call& call, const ConstTensorView& view) {
    Problem& p = call.problem;
    MaskTensor& mask = p.mask;
    const std::size_t row = view.rank == 4 ? 2 : 0;
    if (Shape({p.S1, p.S2}).matches(view) || Shape({1, 1, p.S1, p.S2}).matches(view)) {
        mask.stride_i = view.stride[row];
        mask.stride_j = view.stride[row + 1];
        return {};
    }
    if (Shape({p.T1, p.T2}).matches(view)) {
        mask.placement = MaskTensor::Placement::by_rows;
        // An axis of one element has no step (an empty sequence begins behind it).
        mask.stride_i = view.shape[0] > 1 ? view.stride[0] : 0;
        mask.stride_j = view.shape[1] > 1 ? view.stride[1] : 0;
        return {};
    }
    // Declared by the longest lengths, or by any two whose elements are exactly the pairs.
    const Sequence& last = p.sequences.back();
    const std::int64_t pairs = last.pairs_begin + last.S1 * last.S2;
    const bool batches = view.rank == 4 && view.shape[0] == p.B && (view.shape[1] == 1 || view.shape[1] == p.N1);
    const std::int64_t heads = batches ? view.shape[1] : 0;
    const bool declared = batches && view.shape[2] == p.S1 && view.shape[3] == p.S2;
    const bool exact = batches && elements(view) == heads * pairs;
    if (!declared && !exact) return packed_shape(call, view);
    const std::optional<std::int64_t> step = single_stride(view);
    if (!step) return refuse("atten_mask", strides_are(view), "must be one row of packed elements");
    mask.placement = MaskTensor::Placement::by_pairs;
    mask.heads = heads;
    mask.stride_j = *step;
    return {};
}

Status plain_mask(Call& call, const ConstTensorView& view) {
    Problem& p = call.problem;
    const Status status = shape_rule("atten_mask", view,
                                     {{p.B, p.N1, p.S1, p.S2}, {p.B, 1, p.S1, p.S2}, {1, 1, p.S1, p.S2}, {p.S1, p.S2}},
                                     " in sparse_mode " + text(std::int64_t{call.params.sparse_mode}));
    if (!status.ok()) return status;
    MaskTensor& mask = p.mask;
    const std::size_t row = view.rank == 4 ? 2 : 0;
    mask.stride_b = view.rank == 4 && view.shape[0] > 1 ? view.stride[0] : 0;
    mask.stride_n = view.rank == 4 && view.shape[1] > 1 ? view.stride[1] : 0;
    mask.stride_i = view.stride[row];
    mask.stride_j = view.stride[row + 1];
    return {};
}

}  // namespace

Status mask_rules(Call& call, const ConstTensorView& view) {
    Problem& p = call.problem;
    p.mask_given = call.given(view);
    if (!p.mask_given) return {};
    if (Status s = extents("atten_mask", view); !s.ok()) return s;
    if (!one_of(view.dtype, {DType::boolean, DType::u8})) {
        return refuse("atten_mask", dtype_is(view.dtype), "must be bool or u8");
    }
    const int mode = call.params.sparse_mode;
    const bool full = mode == 0 || mode == 1 || mode == 5;
    if (!full) return template_rules(call, view);
    if (Status s = p.packed ? packed_mask(call, view) : plain_mask(call, view); !s.ok()) return s;
    p.mask.data = static_cast<const std::uint8_t*>(view.data);
    p.mask.present = true;
    return {};
}

}  // namespace fascore
