// SPDX-License-Identifier: Apache-2.0
//
// The one canonical call all versions become: fascore's structs, made and checked in the first phase, run in the
// second.
//
//   Arguments ── translate ──→ Call ── run ──→ attention_forward or attention_backward
//               all refusals            on the stream's thread
//
// A Call holds copies of everything but the data: descriptors, arrays and strings may be gone by the second phase.
//
// Most strided views go to the engine as they are. A few tensors are defined by their order in memory (a bit stream,
// the statistics and masks of packed sequences); one of those that is not contiguous is gathered into the workspace
// first, or scattered from there afterwards:
//
//   workspace   [ engine | gathered … | to scatter … ]
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fascore/attention.h"
#include "report.h"
#include "versions.h"

namespace fascore::aclnn {

/// A tensor of the call. Absent ones are not given; `element_zero` is the first element's distance from data in bytes.
struct View {
    TensorDims dims;
    std::byte* data = nullptr;
    std::int64_t element_zero = 0;
    bool given = false;
    /// An extent is 0. (The product of extents nobody has checked may overflow.)
    [[nodiscard]] bool empty() const noexcept {
        return std::find(dims.shape.begin(), dims.shape.begin() + dims.rank, 0) != dims.shape.begin() + dims.rank;
    }
    [[nodiscard]] std::byte* first() const noexcept { return data == nullptr ? nullptr : data + element_zero; }
};

/// A tensor that is worked on as a contiguous copy at `at` in the workspace.
struct Staged {
    Field field;
    bool written;
    std::size_t at;
    std::size_t bytes;
};

class Call {
  public:
    /// Everything is checked here, and nothing written. `call` is good only if the verdict is.
    [[nodiscard]] static Verdict translate(const Version& version, const Arguments& given, Call& call);

    [[nodiscard]] const Version& version() const noexcept { return *version_; }
    [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }

    /// Another address for a tensor; false when the call has no such tensor.
    bool point(Field field, void* data);
    /// Null addresses of tensors that have elements, tensors that reach beyond the block they lie in.
    [[nodiscard]] Verdict check_addresses() const;

    [[nodiscard]] Verdict run(std::byte* workspace, const CancelToken& cancel) const;

  private:
    friend class Translation;

    [[nodiscard]] Status compute(const std::array<View, tensor_fields>& views, const Execution& execution,
                                 std::byte* workspace) const;
    [[nodiscard]] AttentionParams params() const;

    const Version* version_ = nullptr;
    std::array<View, tensor_fields> views_{};
    AttentionParams params_;  ///< its spans are the vectors below
    std::vector<std::int64_t> prefix_;
    std::vector<std::int64_t> seq_q_;
    std::vector<std::int64_t> seq_kv_;
    std::vector<Staged> staged_;
    bool nothing_to_do_ = false;  ///< every output is empty
    int threads_ = 0;
    std::size_t engine_bytes_ = 0;
    std::size_t workspace_bytes_ = 0;
};

}  // namespace fascore::aclnn
