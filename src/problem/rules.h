// SPDX-License-Identifier: Apache-2.0
//
// The rules of the public structs, by what they speak of. validate.cpp runs them in order; each fills its part of the
// Problem and refuses what is not allowed.
//
//   parameter_rules.cpp   numbers of AttentionParams that can be judged alone
//   tensor_rules.cpp      any tensor: rank, extents, strides; a tensor in the data layout; results and their overlap
//   input_rules.cpp       query, key, value, rope parts, dequantisation factors; what is computed in which precision
//   sequence_rules.cpp    packed sequences, prefix, tokens: the band of every batch
//   mask_rules.cpp        atten_mask
//   bias_rules.cpp        pse and dpse
//   row_rules.cpp         what belongs to rows and heads: statistics, dlse, sink, dsink, drop_mask
//
// Nothing is written before all of them hold. Texts are built only when a rule is broken: a good call allocates nothing
// here but the list of sequences of a packed call.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "problem/layout.h"
#include "problem/problem.h"
#include "problem/validate.h"
#include "problem/words.h"

namespace fascore {

inline constexpr std::int64_t most_columns = 768;

/// One call: what was given, who asks, and the Problem as far as it is known.
struct Call {
    const AttentionParams& params;
    Pointers pointers;
    Audience audience;
    Problem& problem;
    Placed query;  ///< from input_rules on; in TND one batch of all rows
    Placed key;
    Placed value;
    std::int64_t rope_columns = 0;

    /// Passed by the caller: optional tensors may be left out, by rank 0 or by a null pointer.
    [[nodiscard]] bool given(const ConstTensorView& view) const;
    [[nodiscard]] bool from_reference() const { return audience == Audience::reference; }
    [[nodiscard]] bool backward() const { return problem.direction == Direction::backward; }
};

// ---- shapes --------------------------------------------------------------------------------------------------------

/// A small list of extents to compare a tensor's shape with.
struct Shape {
    std::array<std::int64_t, 5> extents{};
    int rank = 0;

    Shape(std::initializer_list<std::int64_t> values) {
        for (const std::int64_t value : values) extents[static_cast<std::size_t>(rank++)] = value;
    }
    [[nodiscard]] bool matches(const TensorDims& dims) const {
        if (dims.rank != rank) return false;
        for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
            if (dims.shape[axis] != extents[axis]) return false;
        }
        return true;
    }
};

/// "shape is …, must be A, B or C<where>" unless the shape is one of them.
[[nodiscard]] Status shape_rule(std::string_view parameter, const TensorDims& dims,
                                std::initializer_list<Shape> allowed, const std::string& where = {});

[[nodiscard]] bool one_of(DType dtype, std::initializer_list<DType> allowed);

/// Some extent is 0. (The product of unchecked extents may overflow, and an unchecked rank may be anything.)
[[nodiscard]] bool is_empty(const TensorDims& dims);

/// Number of elements, the largest int64 where it is more.
[[nodiscard]] std::int64_t elements(const TensorDims& dims);

/// The step from one element to the next where all axes make one row; nothing where they do not.
[[nodiscard]] std::optional<std::int64_t> single_stride(const TensorDims& dims);

// ---- tensor_rules.cpp ----------------------------------------------------------------------------------------------

/// An extent, where it must come from, and the words for both.
struct Extent {
    std::int64_t value = 0;
    const char* owner = "query";
};
struct Expected {
    Extent B, N, S, D;
};
[[nodiscard]] Expected like(const Placed& placed, const char* owner);
/// dy and attention_out: rows and heads of query, columns of value.
[[nodiscard]] Expected like_output(const Call& call);

/// Rank, extents and reach of any tensor.
[[nodiscard]] Status extents(std::string_view parameter, const TensorDims& dims);
/// … that must be there.
[[nodiscard]] Status required(const Call& call, std::string_view parameter, const ConstTensorView& view);
/// … and is in the data layout.
[[nodiscard]] Status data_tensor(const Call& call, std::string_view parameter, const ConstTensorView& view);
/// Extents of a tensor in the data layout against those it must have.
[[nodiscard]] Status same_as(const Call& call, std::string_view parameter, const TensorDims& dims,
                             const Expected& expected, Strides& stride);
[[nodiscard]] Status input_dtype(const Call& call, std::string_view parameter, DType dtype);
/// Of attention_out and the gradients. attention_out may be f32 where query is narrower.
[[nodiscard]] Status output_dtype(const Call& call, std::string_view parameter, DType dtype, bool also_f32);
/// No two elements of an output at one address.
[[nodiscard]] Status own_strides(std::string_view parameter, const TensorDims& dims);
/// An output in the data layout, all of the above.
[[nodiscard]] Status result(const Call& call, std::string_view parameter, const TensorView& view,
                            const Expected& expected, bool also_f32, Result& result);

/// A tensor of a call, for the rule that outputs overlap nothing.
struct Named {
    std::string_view parameter;
    ConstTensorView view;
};
[[nodiscard]] Status apart(std::initializer_list<Named> outputs, std::initializer_list<Named> inputs);

// ---- the others ----------------------------------------------------------------------------------------------------

[[nodiscard]] Status parameter_rules(const Call& call);

/// query, key, value, rope parts. `output` (attention_out or dy) tells Dv where there is no kv head to tell it.
[[nodiscard]] Status input_rules(Call& call, const AttentionInputs& in, const TensorDims& output);
/// What follows from query's dtype: the numbers that are narrowed with it.
[[nodiscard]] Status precision_rules(Call& call);
[[nodiscard]] Status scale_rule(const Call& call, std::string_view parameter, const ConstTensorView& view,
                                bool of_query_rows, RowScale& scale);
[[nodiscard]] Status rope_result(const Call& call, std::string_view parameter, const TensorView& view,
                                 const Placed& rows, const char* owner, Result& result);

/// T, N, D: the lengths of the sequences.
[[nodiscard]] Status packed_rules(Call& call);
/// Tokens, prefix, and what they make: the bands.
[[nodiscard]] Status band_rules(Call& call);
/// The batch that modes 7 and 8 treat as mode 4: the last or the first that has rows.
[[nodiscard]] std::int64_t cut_sequence(const Call& call);

[[nodiscard]] Status mask_rules(Call& call, const ConstTensorView& mask);
[[nodiscard]] Status bias_rules(Call& call, const ConstTensorView& pse);
[[nodiscard]] Status bias_gradient_rules(Call& call, const ConstTensorView& pse, const TensorView& dpse);

[[nodiscard]] Status statistic_rule(const Call& call, std::string_view parameter, const ConstTensorView& view,
                                    Statistic& statistic);
[[nodiscard]] Status dropout_rules(Call& call, const ConstTensorView& drop_mask);
[[nodiscard]] Status sink_rules(Call& call, const ConstTensorView& sink);
[[nodiscard]] Status sink_gradient_rules(Call& call, const TensorView& dsink);

}  // namespace fascore
