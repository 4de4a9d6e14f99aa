// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "executor.h"
#include "meta.h"
#include "stream.h"
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

Data& Data::clear() {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0});
    return *this;
}

Data& Data::vary(std::uint64_t seed) {
    test::Random random(seed);
    // Coarse steps, so that 8-bit types hold most of them.
    return fill([&](std::int64_t) { return static_cast<double>(random.below(33) - 16) / 16.0; });
}

// fascore's scalar conversion leaves the 8-bit floats out; the tests write those as bytes.
double Data::at(std::int64_t element) const { return load_element(bytes_.data() + place(element), ours(type_)); }

void Data::set(std::int64_t element, double value) {
    store_element(bytes_.data() + place(element), ours(type_), value);
}

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

std::size_t live_handles() { return aclnn::live_descriptors() + aclnn::live_executors() + aclnn::live_streams(); }

Data::Shape shape_in(Layout layout, std::int64_t B, std::int64_t N, std::int64_t S, std::int64_t D) {
    switch (layout) {
        case Layout::BNSD: return {B, N, S, D};
        case Layout::BSND: return {B, S, N, D};
        case Layout::BSH: return {B, S, N * D};
        case Layout::SBH: return {S, B, N * D};
        case Layout::TND: break;
    }
    return {S, N, D};
}

Problem::Problem(Layout in_layout, aclDataType type) : layout(in_layout) {
    const bool packed = layout == Layout::TND;
    if (packed) {
        ends_q = {2, 6};
        ends_kv = {5, 8};
    }
    const auto tensor = [&](std::int64_t N, std::int64_t S, std::int64_t columns) {
        return Data(type, shape_in(layout, B, N, S, columns));
    };
    query = tensor(N1, S1, D);
    key = tensor(N2, S2, D);
    value = tensor(N2, S2, Dv);
    dy = tensor(N1, S1, Dv);
    attention_out = tensor(N1, S1, Dv);
    dq = tensor(N1, S1, D);
    dk = tensor(N2, S2, D);
    dv = tensor(N2, S2, Dv);
    const Data::Shape statistics = packed ? Data::Shape{S1, N1, 8} : Data::Shape{B, N1, S1, 8};
    softmax_max = Data(ACL_FLOAT, statistics);
    softmax_sum = Data(ACL_FLOAT, statistics);
    query.vary(1);
    key.vary(2);
    value.vary(3);
    dy.vary(4);
}

Given Problem::given() {
    Given g;
    g.query = query.handle();
    g.key = key.handle();
    g.value = value.handle();
    g.dy = dy.handle();
    g.softmax_max = softmax_max.handle();
    g.softmax_sum = softmax_sum.handle();
    g.attention_out = attention_out.handle();
    g.dq = dq.handle();
    g.dk = dk.handle();
    g.dv = dv.handle();
    g.scale = scale;
    g.head_num = N1;
    g.layout_text = std::string(fascore::name(layout));
    if (layout == Layout::TND) {
        arrays_.push_back(std::make_unique<Array>(ends_q));
        arrays_.push_back(std::make_unique<Array>(ends_kv));
        g.actual_seq_qlen = *arrays_[arrays_.size() - 2];
        g.actual_seq_kvlen = *arrays_.back();
    }
    return g;
}

AttentionParams Problem::params() const {
    AttentionParams params;
    params.layout = layout;
    params.head_num = N1;
    params.scale = scale;
    params.actual_seq_qlen = ends_q;
    params.actual_seq_kvlen = ends_kv;
    return params;
}

ForwardInputs Problem::forward_inputs() const {
    ForwardInputs in;
    in.query = query.view();
    in.key = key.view();
    in.value = value.view();
    return in;
}

ForwardOutputs Problem::forward_outputs() {
    ForwardOutputs out;
    out.attention_out = attention_out.out();
    out.softmax_max = softmax_max.out();
    out.softmax_sum = softmax_sum.out();
    return out;
}

BackwardInputs Problem::backward_inputs() const {
    BackwardInputs in;
    static_cast<AttentionInputs&>(in) = forward_inputs();
    in.dy = dy.view();
    in.softmax_max = softmax_max.view();
    in.softmax_sum = softmax_sum.view();
    in.attention_out = attention_out.view();
    return in;
}

BackwardOutputs Problem::backward_outputs() {
    BackwardOutputs out;
    out.dq = dq.out();
    out.dk = dk.out();
    out.dv = dv.out();
    return out;
}

void Problem::run_forward() {
    const Status status = attention_forward(params(), forward_inputs(), forward_outputs());
    EXPECT_TRUE(status.ok()) << status.message();
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
