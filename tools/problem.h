// SPDX-License-Identifier: Apache-2.0
//
// A problem as the library takes it: the operator's parameters and the tensors they speak of, from a file or drawn.
//
//   text → ProblemOptions → describe() → Problem, described → judge_*() → load() → Problem, with data
//
// A problem is first described (shapes and rules, no data), then judged by the library, then loaded: a refusal comes
// before gigabytes are read or drawn, and --plan needs no data at all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fascore/attention.h"
#include "host_tensor.h"
#include "problem_options.h"
#include "safetensors.h"

namespace fascore::cli {

/// Which rows belong to which batch: `length` each, or, packed, those up to its end (cumulative ends, at the tail a 0
/// for each batch that is not there). begin() counts rows of all batches, as if they lay one after the other.
class Rows {
  public:
    Rows(std::int64_t batches, std::int64_t length) noexcept : batches_(batches), length_(length) {}
    explicit Rows(std::span<const std::int64_t> ends) noexcept
        : batches_(static_cast<std::int64_t>(ends.size())), ends_(ends), packed_(true) {}

    [[nodiscard]] std::int64_t batches() const noexcept { return batches_; }
    [[nodiscard]] std::int64_t begin(std::int64_t batch) const noexcept {
        if (!packed_) return batch * length_;
        return batch > 0 ? ends_[static_cast<std::size_t>(batch - 1)] : 0;
    }
    /// Ends that decrease, which the library refuses, give 0.
    [[nodiscard]] std::int64_t length(std::int64_t batch) const noexcept;
    [[nodiscard]] std::int64_t total() const noexcept;
    [[nodiscard]] std::int64_t longest() const noexcept;

  private:
    std::int64_t batches_ = 0;
    std::int64_t length_ = 0;
    std::span<const std::int64_t> ends_;
    bool packed_ = false;
};

struct Problem {
    AttentionParams params;
    Extents extents;
    DType dtype = DType::bf16;      ///< of query
    DType out_dtype = DType::bf16;  ///< of attention_out and the gradients: dtype, unless that has 8 bits
    bool dbias = false;             ///< the gradient of pse is wanted
    int threads = 0;
    std::string isa;

    HostTensor query, key, value, query_rope, key_rope;
    HostTensor atten_mask, pse, drop_mask, sink;
    HostTensor d_scale_q, d_scale_k, d_scale_v, d_scale_dy;
    HostTensor dy, dlse;
    HostTensor softmax_max, softmax_sum, attention_out;  ///< absent unless the file has them

    std::vector<std::int64_t> q_ends, k_ends, prefix;  ///< what the spans in params show
    std::unique_ptr<SafetensorsFile> file;             ///< absent: drawn from `seed`
    std::uint64_t seed = 0;
    std::string_view pse_axes;  ///< drawn: Form::axes of pse

    [[nodiscard]] ForwardInputs forward_inputs() const;
    [[nodiscard]] BackwardInputs backward_inputs() const;
    [[nodiscard]] Execution execution() const;

    /// The tensors it brings, results of a forward excepted.
    [[nodiscard]] std::vector<const HostTensor*> own_tensors() const;

    [[nodiscard]] bool packed() const noexcept { return params.layout == Layout::TND; }
    [[nodiscard]] Rows query_rows() const noexcept;
    [[nodiscard]] Rows key_rows() const noexcept;

    /// Shapes of what the problem's calls produce.
    [[nodiscard]] std::vector<std::int64_t> attention_shape() const;
    [[nodiscard]] std::vector<std::int64_t> statistic_shape() const;
    /// f64 for f64 problems, f32 otherwise.
    [[nodiscard]] DType statistic_dtype() const noexcept;

    /// "B=1 N1=8 N2=8 S1=128 S2=128 D=64 Dv=64 bf16 BNSD scale 0.125 causal bottom-right"
    [[nodiscard]] std::string text() const;
};

[[nodiscard]] bool is_8bit(DType dtype) noexcept;

/// The shape a data tensor with N heads of D columns has in a layout, S (packed: T) rows.
[[nodiscard]] std::vector<std::int64_t> shape_in(Layout layout, std::int64_t B, std::int64_t N, std::int64_t S,
                                                 std::int64_t D, std::int64_t T);

/// Which tensors a command needs: those of the forward always;
///   inputs     those of the gradient too, where there are any
///   gradient   dy surely, and the statistics and attention_out where there are any
enum class Needs : std::uint8_t { forward, inputs, gradient };

/// Reads the description; throws Failure. Data pointers stay null.
[[nodiscard]] Problem describe(const ProblemOptions& options, Needs needs);

/// A line on stderr for what is allowed but surely not meant: a sparse mode without the mask that switches it on.
[[nodiscard]] std::optional<std::string> warning_of(const ProblemOptions& options, const Problem& problem);

/// Reads the file's tensors or draws them.
void load(Problem& problem, Needs needs);

}  // namespace fascore::cli
