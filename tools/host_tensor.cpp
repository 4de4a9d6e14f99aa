// SPDX-License-Identifier: Apache-2.0
//
// Tensors the tools own: see host_tensor.h.
#include "host_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "command.h"
#include "fascore/info.h"

namespace fascore::cli {
namespace {

constexpr std::align_val_t alignment{64};

TensorDims dims_of(const HostTensor& tensor) {
    if (tensor.rank() > max_rank) {
        throw Failure(fmt::format("{}: rank is {}, must be at most {}", tensor.name(), tensor.rank(), max_rank));
    }
    TensorDims dims;
    dims.dtype = tensor.dtype();
    dims.rank = tensor.rank();
    std::int64_t step = 1;
    for (auto axis = tensor.shape().size(); axis-- > 0;) {
        dims.shape[axis] = tensor.shape()[axis];
        dims.stride[axis] = step;
        // Extents nobody could allocate still reach the library, which refuses them by name.
        if (__builtin_mul_overflow(step, tensor.shape()[axis], &step)) step = std::numeric_limits<std::int64_t>::max();
    }
    return dims;
}

}  // namespace

void AlignedDelete::operator()(std::byte* memory) const noexcept { ::operator delete[](memory, alignment); }

AlignedBuffer aligned_buffer(std::size_t bytes) {
    return AlignedBuffer(static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), alignment)));
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

HostTensor::HostTensor(std::string name, DType dtype, std::vector<std::int64_t> shape)
    : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {}

std::int64_t HostTensor::count() const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape_) {
        if (__builtin_mul_overflow(elements, extent, &elements) || elements > (std::int64_t{1} << 56)) {
            throw Failure(fmt::format("{}: shape is {}, more than memory can hold", name_, shape_text(shape_)));
        }
    }
    return shape_.empty() ? 0 : elements;
}

std::size_t HostTensor::bytes() const { return static_cast<std::size_t>(count() * size_of(dtype_)); }

void HostTensor::allocate() { memory_ = aligned_buffer(bytes()); }

double HostTensor::load(std::int64_t index) const noexcept {
    return load_element(memory_.get() + index * size_of(dtype_), dtype_);
}

void HostTensor::store(std::int64_t index, double value) noexcept {
    store_element(memory_.get() + index * size_of(dtype_), dtype_, value);
}

TensorView HostTensor::view() {
    TensorView view;
    static_cast<TensorDims&>(view) = dims_of(*this);
    view.data = memory_.get();
    return view;
}

ConstTensorView HostTensor::view() const {
    ConstTensorView view;
    static_cast<TensorDims&>(view) = dims_of(*this);
    view.data = memory_.get();
    return view;
}

}  // namespace fascore::cli
