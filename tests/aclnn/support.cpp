// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/random.h"

namespace fascore::aclnn_test {

namespace {

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> stride(shape.size());
    std::int64_t step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        stride[axis] = step;
        step *= shape[axis];
    }
    return stride;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    return elements;
}

}  // namespace

DType ours(aclDataType type) {
    switch (type) {
        case ACL_FLOAT16: return DType::f16;
        case ACL_BF16: return DType::bf16;
        case ACL_BOOL: return DType::boolean;
        case ACL_UINT8: return DType::u8;
        case ACL_FLOAT8_E5M2: return DType::f8e5m2;
        case ACL_FLOAT8_E4M3FN: return DType::f8e4m3;
        case ACL_DOUBLE: return DType::f64;
        default: return DType::f32;
    }
}

Data::Data(aclDataType type, Shape shape) : Data(type, shape, row_major(shape), 0, product(shape)) {}

Data::Data(aclDataType type, Shape shape, Shape stride, std::int64_t offset, std::int64_t room)
    : type_(type), shape_(std::move(shape)), stride_(std::move(stride)), offset_(offset) {
    // One element at least, so that a tensor without any has an address.
    bytes_.resize(static_cast<std::size_t>(std::max<std::int64_t>(room, 1)) * aclDataTypeSize(type), std::byte{0xFF});
    handle_ = aclCreateTensor(shape_.data(), shape_.size(), type_, stride_.data(), offset_, ACL_FORMAT_ND, &room, 1,
                              bytes_.data());
    EXPECT_NE(handle_, nullptr);
}

Data::Data(Data&& other) noexcept { *this = std::move(other); }

Data& Data::operator=(Data&& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(shape_, other.shape_);
    std::swap(stride_, other.stride_);
    std::swap(offset_, other.offset_);
    std::swap(bytes_, other.bytes_);
    std::swap(handle_, other.handle_);
    return *this;
}

Data::~Data() { EXPECT_EQ(aclDestroyTensor(handle_), 0); }

std::int64_t Data::place(std::int64_t element) const {
    std::int64_t where = offset_;
    for (std::size_t axis = shape_.size(); axis-- > 0;) {
        where += element % shape_[axis] * stride_[axis];
        element /= shape_[axis];
    }
    return where * static_cast<std::int64_t>(aclDataTypeSize(type_));
}

Data& Data::fill(const std::function<double(std::int64_t)>& value) {
    for (std::int64_t k = 0; k < count(); ++k) set(k, value(k));
    return *this;
}

Data& Data::fill(double value) {
    return fill([&](std::int64_t) { return value; });
}

Data& Data::vary(std::uint64_t seed) {
    test::Random random(seed);
    // Coarse steps, so that 8-bit types hold most of them.
    return fill([&](std::int64_t) { return static_cast<double>(random.below(33) - 16) / 16.0; });
}

// fascore's scalar conversion leaves the 8-bit floats out; the tests write those as bytes.
double Data::at(std::int64_t element) const { return load_element(bytes_.data() + place(element), ours(type_)); }

void Data::set(std::int64_t element, double value) { store_element(bytes_.data() + place(element), ours(type_), value); }

std::int64_t Data::count() const { return product(shape_); }

std::vector<double> Data::values() const {
    std::vector<double> all;
    for (std::int64_t k = 0; k < count(); ++k) all.push_back(at(k));
    return all;
}

std::vector<std::byte> Data::element_bytes() const {
    std::vector<std::byte> all;
    const auto size = static_cast<std::int64_t>(aclDataTypeSize(type_));
    for (std::int64_t k = 0; k < count(); ++k) {
        const auto first = bytes_.begin() + place(k);
        all.insert(all.end(), first, first + size);
    }
    return all;
}

bool Data::untouched() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [](std::byte b) { return b == std::byte{0xFF}; });
}

ConstTensorView Data::view() const {
    ConstTensorView shown;
    shown.dtype = ours(type_);
    shown.rank = static_cast<int>(shape_.size());
    std::copy(shape_.begin(), shape_.end(), shown.shape.begin());
    std::copy(stride_.begin(), stride_.end(), shown.stride.begin());
    shown.data = bytes_.data() + offset_ * static_cast<std::int64_t>(aclDataTypeSize(type_));
    return shown;
}

TensorView Data::out() {
    TensorView shown;
    static_cast<TensorDims&>(shown) = view();
    shown.data = bytes_.data() + offset_ * static_cast<std::int64_t>(aclDataTypeSize(type_));
    return shown;
}

const VersionRow& version(const std::string& name) {
    for (const VersionRow& row : versions()) {
        if (row.name == name) return row;
    }
    ADD_FAILURE() << "no version " << name;
    return versions().front();
}

std::string last_error() {
    const char* text = aclGetRecentErrMsg();
    return text == nullptr ? "" : text;
}

aclnnStatus run(const VersionRow& version, const Given& given, aclrtStream stream) {
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    if (const aclnnStatus status = version.first(given, &size, &executor); status != 0) return status;
    constexpr std::size_t guard = 64;
    std::vector<std::byte> workspace(size + guard, std::byte{0xFF});
    if (const aclnnStatus status = version.second(workspace.data(), size, executor, stream); status != 0) return status;
    const aclError status = aclrtSynchronizeStream(stream);
    EXPECT_TRUE(std::all_of(workspace.end() - guard, workspace.end(), [](std::byte b) { return b == std::byte{0xFF}; }))
        << version.name << " wrote behind its workspace";
    return status;
}

}  // namespace fascore::aclnn_test
