// SPDX-License-Identifier: Apache-2.0
//
// Any tensor on its own, a tensor in the data layout, and outputs against everything else.
#include <algorithm>
#include <limits>

#include "base/dtype.h"
#include "problem/rules.h"

namespace fascore {

// ---- shapes --------------------------------------------------------------------------------------------------------

bool one_of(DType dtype, std::initializer_list<DType> allowed) {
    return std::find(allowed.begin(), allowed.end(), dtype) != allowed.end();
}

bool is_empty(const TensorDims& dims) {
    const int axes = std::clamp(dims.rank, 0, max_rank);
    return std::find(dims.shape.begin(), dims.shape.begin() + axes, 0) != dims.shape.begin() + axes;
}

std::int64_t elements(const TensorDims& dims) {
    if (is_empty(dims)) return 0;
    std::int64_t count = 1;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(dims.rank); ++axis) {
        if (__builtin_mul_overflow(count, dims.shape[axis], &count)) return std::numeric_limits<std::int64_t>::max();
    }
    return count;
}

std::optional<std::int64_t> single_stride(const TensorDims& dims) {
    std::optional<std::int64_t> step;
    std::int64_t next = 0;
    for (auto axis = static_cast<std::size_t>(dims.rank); axis-- > 0;) {
        if (dims.shape[axis] <= 1) continue;
        if (step && dims.stride[axis] != next) return std::nullopt;
        if (!step) step = dims.stride[axis];
        next = dims.stride[axis] * dims.shape[axis];
    }
    return step.value_or(1);
}

Status shape_rule(std::string_view parameter, const TensorDims& dims, std::initializer_list<Shape> allowed,
                  const std::string& where) {
    for (const Shape& shape : allowed) {
        if (shape.matches(dims)) return {};
    }
    std::vector<std::string> words;
    for (const Shape& shape : allowed) words.push_back(shape_text(shape.extents, shape.rank));
    return refuse(parameter, shape_is(dims), "must be " + either(words) + where);
}

bool Call::given(const ConstTensorView& view) const {
    return view.rank != 0 && (pointers == Pointers::ignored || view.data != nullptr || is_empty(view));
}

namespace {

// True when no element's byte offset leaves an int64: Σ (extent − 1) · |stride| · size stays below 2^62.
bool addressable(const TensorDims& dims) {
    constexpr std::int64_t limit = std::int64_t{1} << 62;
    std::int64_t reach = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(dims.rank); ++axis) {
        if (dims.shape[axis] <= 1) continue;
        std::int64_t stride = dims.stride[axis];
        if (stride == std::numeric_limits<std::int64_t>::min()) return false;
        if (stride < 0) stride = -stride;
        std::int64_t step = 0;
        if (__builtin_mul_overflow(stride, (dims.shape[axis] - 1) * size_of(dims.dtype), &step)) return false;
        if (step >= limit - reach) return false;
        reach += step;
    }
    return true;
}

}  // namespace

// ---- on their own --------------------------------------------------------------------------------------------------

Status extents(std::string_view parameter, const TensorDims& dims) {
    if (dims.rank < 0 || dims.rank > max_rank) {
        return refuse(parameter, "rank is " + text(std::int64_t{dims.rank}),
                      "must be 0 to " + text(std::int64_t{max_rank}));
    }
    // Enough for a drop_mask or a packed bias in one axis, and no product of two extents and a size overflows before
    // the ranks and sizes are checked.
    constexpr std::int64_t most = std::int64_t{1} << 48;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(dims.rank); ++axis) {
        if (dims.shape[axis] < 0 || dims.shape[axis] > most) {
            return refuse(parameter, shape_is(dims), "every extent must be 0 to " + text(most));
        }
    }
    if (!addressable(dims)) {
        return refuse(parameter, strides_are(dims), "every element must lie within 2^62 bytes of the first");
    }
    return {};
}

Status required(const Call& call, std::string_view parameter, const ConstTensorView& view) {
    if (view.rank == 0) return refuse(parameter, "absent", "must be given");
    if (Status s = extents(parameter, view); !s.ok()) return s;
    if (call.pointers == Pointers::required && view.data == nullptr && !is_empty(view)) {
        return refuse(parameter, "data is null", "must point to shape " + shape_text(view.shape, view.rank));
    }
    return {};
}

Status data_tensor(const Call& call, std::string_view parameter, const ConstTensorView& view) {
    if (Status s = required(call, parameter, view); !s.ok()) return s;
    const Layout layout = call.params.layout;
    if (view.rank != rank_of(layout)) {
        return refuse(
            parameter, "rank is " + text(std::int64_t{view.rank}),
            "must be " + text(std::int64_t{rank_of(layout)}) + " for layout " + text(layout) + " " + axes_of(layout));
    }
    return {};
}

// ---- in the data layout --------------------------------------------------------------------------------------------

Expected like(const Placed& placed, const char* owner) {
    return {{placed.B, owner}, {placed.N, owner}, {placed.S, owner}, {placed.D, owner}};
}

Expected like_output(const Call& call) {
    Expected expected = like(call.query, "query");
    expected.D = {call.value.D, "value"};
    return expected;
}

Status same_as(const Call& call, std::string_view parameter, const TensorDims& dims, const Expected& expected,
               Strides& stride) {
    const Layout layout = call.params.layout;
    if (heads_are_fused(layout)) {
        const std::int64_t given = dims.shape[static_cast<std::size_t>(dims.rank - 1)];
        const std::int64_t wanted = expected.N.value * expected.D.value;
        if (given != wanted) {
            return refuse(parameter, "last axis is " + text(given),
                          "must be " + text(wanted) + " (" + expected.N.owner + "'s head count " +
                              text(expected.N.value) + " times " + expected.D.owner + "'s head_dim " +
                              text(expected.D.value) + ")");
        }
    }
    const Placed placed = place(layout, dims, expected.N.value);
    stride = placed.stride;
    struct Axis {
        const char* what;
        std::int64_t given;
        const Extent& wanted;
        bool told;  // by its own axis
    };
    const bool split = !heads_are_fused(layout);
    const Axis axes[] = {{"batch", placed.B, expected.B, true},
                         {"head count", placed.N, expected.N, split},
                         {"length", placed.S, expected.S, true},
                         {"head_dim", placed.D, expected.D, split}};
    for (const Axis& axis : axes) {
        if (axis.told && axis.given != axis.wanted.value) {
            return refuse(parameter, std::string(axis.what) + " is " + text(axis.given),
                          std::string("must equal ") + axis.wanted.owner + "'s " + text(axis.wanted.value));
        }
    }
    return {};
}

Status input_dtype(const Call& call, std::string_view parameter, DType dtype) {
    if (dtype == call.problem.dtype) return {};
    return refuse(parameter, dtype_is(dtype), "must equal query's " + text(call.problem.dtype));
}

Status output_dtype(const Call& call, std::string_view parameter, DType dtype, bool also_f32) {
    const DType own = call.problem.dtype;
    if (call.from_reference()) {
        if (dtype == DType::f64) return {};
        return refuse(parameter, dtype_is(dtype), "must be f64 for the reference");
    }
    if (is_8bit(own)) {
        if (one_of(dtype, {DType::bf16, DType::f16, DType::f32})) return {};
        return refuse(parameter, dtype_is(dtype), "must be bf16, f16 or f32 for query's " + text(own));
    }
    const bool narrow = one_of(own, {DType::bf16, DType::f16});
    if (dtype == own || (also_f32 && narrow && dtype == DType::f32)) return {};
    return refuse(parameter, dtype_is(dtype),
                  also_f32 && narrow ? "must be query's " + text(own) + " or f32" : "must equal query's " + text(own));
}

// Two ways that are certain to share an address: an axis that does not move, and two axes that move by the same
// distance.
Status own_strides(std::string_view parameter, const TensorDims& dims) {
    if (is_empty(dims)) return {};
    for (std::size_t a = 0; a < static_cast<std::size_t>(dims.rank); ++a) {
        if (dims.shape[a] <= 1) continue;
        if (dims.stride[a] == 0) {
            return refuse(parameter, "stride of axis " + text(static_cast<std::int64_t>(a)) + " is 0",
                          "elements of an output must not share an address");
        }
        for (std::size_t b = 0; b < a; ++b) {
            if (dims.shape[b] > 1 && (dims.stride[a] == dims.stride[b] || dims.stride[a] == -dims.stride[b])) {
                return refuse(parameter, strides_are(dims), "elements of an output must not share an address");
            }
        }
    }
    return {};
}

Status result(const Call& call, std::string_view parameter, const TensorView& view, const Expected& expected,
              bool also_f32, Result& result) {
    const Status status = in_order([&] { return data_tensor(call, parameter, view); },
                                   [&] { return output_dtype(call, parameter, view.dtype, also_f32); },
                                   [&] { return same_as(call, parameter, view, expected, result.stride); },
                                   [&] { return own_strides(parameter, view); });
    if (!status.ok()) return status;
    result.data = static_cast<std::byte*>(view.data);
    result.dtype = view.dtype;
    result.wanted = true;
    return {};
}

// ---- against each other --------------------------------------------------------------------------------------------

namespace {

// Bytes a tensor touches: [first, last], all of them where `dense`.
struct Span {
    std::int64_t base = 0;
    std::int64_t first = 0;
    std::int64_t last = -1;
    bool dense = true;

    explicit Span(const ConstTensorView& view) {
        if (view.rank == 0 || view.data == nullptr || is_empty(view)) return;
        const std::int64_t size = size_of(view.dtype);
        base = first = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data));
        last = base + size - 1;
        for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
            if (view.shape[axis] <= 1) continue;
            const std::int64_t reach = (view.shape[axis] - 1) * view.stride[axis] * size;
            (reach < 0 ? first : last) += reach;
        }
        dense = (last - first + 1) / size == elements(view);
    }
    [[nodiscard]] bool empty() const { return last < first; }
    [[nodiscard]] bool holds(std::int64_t byte) const { return first <= byte && byte <= last; }
};

// True when two tensors certainly share a byte: they begin at one, or an end of one lies in the other, which leaves no
// byte out. (Views that merely interleave, such as slices of one fused gradient buffer, are fine: spans that meet
// decide nothing.)
bool certainly_overlap(const Span& a, const Span& b) {
    if (a.empty() || b.empty()) return false;
    return a.base == b.base || (a.dense && (a.holds(b.first) || a.holds(b.last))) ||
           (b.dense && (b.holds(a.first) || b.holds(a.last)));
}

}  // namespace

Status apart(std::initializer_list<Named> outputs, std::initializer_list<Named> inputs) {
    for (const Named* output = outputs.begin(); output != outputs.end(); ++output) {
        const Span own(output->view);
        if (own.empty()) continue;
        const auto refused = [&](const Named& other, const Span& span, const char* allowed) {
            return refuse(
                output->parameter,
                (span.base == own.base ? "data is " : "data is shared with ") + std::string(other.parameter) + "'s",
                allowed);
        };
        for (const Named& input : inputs) {
            if (const Span span(input.view); certainly_overlap(own, span)) {
                return refused(input, span, "must not overlap an input");
            }
        }
        for (const Named* earlier = outputs.begin(); earlier != output; ++earlier) {
            if (const Span span(earlier->view); certainly_overlap(own, span)) {
                return refused(*earlier, span, "must not overlap another output");
            }
        }
    }
    return {};
}

}  // namespace fascore
