// SPDX-License-Identifier: Apache-2.0
//
// What belongs to rows and heads: statistics, dlse, drop_mask, sink, dsink.
//
// Statistics of a packed call are declared [T1, N1, 8]. by_token fills them as declared; by_sequence fills each
// sequence's part with [N1, Sq, 8], so that T1 and N1 must be one axis of rows:
//
//   declared   t0n0 t0n1 | t1n0 t1n1 | t2n0 t2n1      N1 = 2, one sequence of 3 rows
//   filled     n0i0 n0i1   n0i2 n1i0   n1i1 n1i2
#include <algorithm>
#include <limits>

#include "base/dtype.h"
#include "problem/rules.h"

namespace fascore {

namespace {

constexpr std::int64_t most_drop_bits = std::int64_t{1} << 62;

std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() : product;
}

// Numbers of a row or a head are f32, f64 where the tensors are.
DType row_dtype(const Problem& p) { return p.dtype == DType::f64 ? DType::f64 : DType::f32; }

Status head_shape(const Call& call, std::string_view parameter, const ConstTensorView& view) {
    return in_order([&] { return extents(parameter, view); },
                    [&] { return shape_rule(parameter, view, {{call.problem.N1}}); });
}

}  // namespace

Status statistic_rule(const Call& call, std::string_view parameter, const ConstTensorView& view, Statistic& statistic) {
    const Problem& p = call.problem;
    Status status = in_order(
        [&] { return extents(parameter, view); },
        [&] {
            return p.packed
                       ? shape_rule(parameter, view, {{p.T1, p.N1, 8}, {p.T1, p.N1, 1}, {p.T1, p.N1}})
                       : shape_rule(parameter, view, {{p.B, p.N1, p.S1, 8}, {p.B, p.N1, p.S1, 1}, {p.B, p.N1, p.S1}});
        });
    if (!status.ok()) return status;
    const DType own = row_dtype(p);
    const bool writes = !call.backward();
    bool allowed = view.dtype == own;
    if (call.from_reference()) allowed = view.dtype == DType::f64 || (!writes && view.dtype == DType::f32);
    if (!allowed) {
        const char* reference_rule = writes ? "must be f64 for the reference" : "must be f32 or f64 for the reference";
        return refuse(
            parameter, dtype_is(view.dtype),
            call.from_reference() ? reference_rule : "must be " + text(own) + " for query's " + text(p.dtype));
    }
    if (writes) {
        if (Status s = own_strides(parameter, view); !s.ok()) return s;
    }
    const std::size_t copies_axis = p.packed ? 2 : 3;
    const bool has_copies = static_cast<std::size_t>(view.rank) > copies_axis;
    Strides stride = p.packed ? Strides{0, view.stride[1], view.stride[0], 1}
                              : Strides{view.stride[0], view.stride[1], view.stride[2], 1};
    if (has_copies) stride.d = view.stride[copies_axis];
    if (p.packed && p.T1 <= 1) stride.s = p.N1 > 1 ? p.N1 * stride.n : 0;
    if (p.packed && p.statistics_order == StatisticsOrder::by_sequence) {
        if (p.N1 == 1) stride.n = stride.s;
        if (p.T1 > 1 && p.N1 > 1 && stride.s != p.N1 * stride.n) {
            return refuse(parameter, strides_are(view),
                          "axes 0 and 1 must be one row of rows in statistics_order by_sequence");
        }
    }
    // One type serves both directions; a gradient only ever reads through it.
    statistic.data = static_cast<std::byte*>(const_cast<void*>(view.data));
    statistic.dtype = view.dtype;
    statistic.stride = stride;
    statistic.copies = has_copies ? view.shape[copies_axis] : 1;
    statistic.wanted = true;
    return {};
}

Status dropout_rules(Call& call, const ConstTensorView& drop_mask) {
    Problem& p = call.problem;
    Dropout& dropout = p.dropout;
    dropout.active = dropout.keep_prob < 1.0;
    if (!dropout.active) return {};  // "keep everything" needs no mask, so one that is given is not looked at
    dropout.generated = !call.given(drop_mask);
    dropout.seed = call.params.seed;
    dropout.block = call.params.offset / 16 + (call.params.offset % 16 == 0 ? 0 : 1);
    dropout.threshold = static_cast<std::uint32_t>(static_cast<float>(dropout.keep_prob) * 255.0F);

    const std::int64_t columns = dropout.generated ? (p.S2 + 15) / 16 * 16 : p.S2;
    std::int64_t pairs = saturating_product(p.B, p.S1 * columns);
    if (p.packed) {
        const Sequence& last = p.sequences.back();
        pairs = dropout.generated ? last.padded_begin + last.S1 * ((last.S2 + 15) / 16 * 16)
                                  : last.pairs_begin + last.S1 * last.S2;
    }
    const std::int64_t bits = saturating_product(p.N1, pairs);
    if (bits > most_drop_bits) {
        return refuse("keep_prob", "given " + text(call.params.keep_prob),
                      "must be 1 for more than 2^62 pairs of rows and columns");
    }
    if (dropout.generated) return {};
    if (Status s = extents("drop_mask", drop_mask); !s.ok()) return s;
    if (drop_mask.dtype != DType::u8) return refuse("drop_mask", dtype_is(drop_mask.dtype), "must be u8");
    if (elements(drop_mask) > 1 && single_stride(drop_mask) != 1) {
        return refuse("drop_mask", strides_are(drop_mask), "must be contiguous");
    }
    const std::int64_t bytes = bits / 8 + (bits % 8 == 0 ? 0 : 1);
    if (elements(drop_mask) < bytes) {
        return refuse("drop_mask", shape_is(drop_mask),
                      "must be at least " + text(bytes) + " bytes for " + text(bits) + " bits");
    }
    dropout.bits = static_cast<const std::uint8_t*>(drop_mask.data);
    return {};
}

Status sink_rules(Call& call, const ConstTensorView& sink) {
    if (!call.given(sink)) return {};
    Problem& p = call.problem;
    if (Status s = head_shape(call, "sink", sink); !s.ok()) return s;
    if (sink.dtype != DType::f32 && sink.dtype != row_dtype(p)) {
        return refuse("sink", dtype_is(sink.dtype), p.dtype == DType::f64 ? "must be f32 or f64" : "must be f32");
    }
    p.sink = {static_cast<const std::byte*>(sink.data), sink.dtype, sink.stride[0], true};
    return {};
}

Status sink_gradient_rules(Call& call, const TensorView& dsink) {
    if (!call.given(dsink)) return {};
    Problem& p = call.problem;
    if (Status s = head_shape(call, "dsink", dsink); !s.ok()) return s;
    if (!p.sink.present) return refuse("dsink", shape_is(dsink), "must be absent without sink");
    const DType wanted = call.from_reference() ? DType::f64 : p.sink.dtype;
    if (dsink.dtype != wanted) {
        return refuse("dsink", dtype_is(dsink.dtype),
                      call.from_reference() ? "must be f64 for the reference" : "must equal sink's " + text(wanted));
    }
    if (Status s = own_strides("dsink", dsink); !s.ok()) return s;
    p.dsink.data = static_cast<std::byte*>(dsink.data);
    p.dsink.dtype = dsink.dtype;
    p.dsink.stride.n = dsink.stride[0];
    p.dsink.wanted = true;
    return {};
}

}  // namespace fascore
