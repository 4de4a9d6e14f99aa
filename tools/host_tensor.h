// SPDX-License-Identifier: Apache-2.0
//
// A named tensor the tools own: row-major, contiguous, aligned to 64 bytes. It may be only described (dtype and shape
// known, no memory yet): that is enough to print a plan or to let the library judge a problem before gigabytes are
// read or drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fascore/tensor.h"

namespace fascore::cli {

struct AlignedDelete {
    void operator()(std::byte* memory) const noexcept;
};
using AlignedBuffer = std::unique_ptr<std::byte[], AlignedDelete>;

/// Uninitialised memory aligned to 64 bytes; throws std::bad_alloc.
[[nodiscard]] AlignedBuffer aligned_buffer(std::size_t bytes);

/// "[2, 8, 128, 64]"
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

class HostTensor {
  public:
    /// Absent.
    HostTensor() = default;
    /// Described; allocate() gives it memory.
    HostTensor(std::string name, DType dtype, std::vector<std::int64_t> shape);

    [[nodiscard]] bool present() const noexcept { return !shape_.empty(); }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] DType dtype() const noexcept { return dtype_; }
    [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
    [[nodiscard]] int rank() const noexcept { return static_cast<int>(shape_.size()); }
    /// Elements; throws Failure when the product leaves what memory can hold.
    [[nodiscard]] std::int64_t count() const;
    [[nodiscard]] std::size_t bytes() const;

    void allocate();
    [[nodiscard]] std::byte* data() noexcept { return memory_.get(); }
    [[nodiscard]] const std::byte* data() const noexcept { return memory_.get(); }

    /// Element number `index` of the row-major order.
    [[nodiscard]] double load(std::int64_t index) const noexcept;
    void store(std::int64_t index, double value) noexcept;

    /// Views for the library; rank 0 when absent, null data when only described. Throws Failure above max_rank.
    [[nodiscard]] TensorView view();
    [[nodiscard]] ConstTensorView view() const;

  private:
    std::string name_;
    DType dtype_ = DType::f32;
    std::vector<std::int64_t> shape_;
    AlignedBuffer memory_;
};

}  // namespace fascore::cli
