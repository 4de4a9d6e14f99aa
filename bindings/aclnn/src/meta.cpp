// SPDX-License-Identifier: Apache-2.0
//
// acl_meta.h: create, destroy and ask. The executors' functions are in executor.cpp.
#include "meta.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "fascore/info.h"
#include "report.h"

namespace fascore::aclnn {

namespace {

struct TypeRow {
    aclDataType dtype;
    std::string_view name;
    std::size_t bytes;
};

constexpr TypeRow types[] = {
    {ACL_FLOAT, "FLOAT", 4},
    {ACL_FLOAT16, "FLOAT16", 2},
    {ACL_INT8, "INT8", 1},
    {ACL_INT32, "INT32", 4},
    {ACL_UINT8, "UINT8", 1},
    {ACL_INT16, "INT16", 2},
    {ACL_UINT16, "UINT16", 2},
    {ACL_UINT32, "UINT32", 4},
    {ACL_INT64, "INT64", 8},
    {ACL_UINT64, "UINT64", 8},
    {ACL_DOUBLE, "DOUBLE", 8},
    {ACL_BOOL, "BOOL", 1},
    {ACL_STRING, "STRING", 0},
    {ACL_COMPLEX64, "COMPLEX64", 8},
    {ACL_COMPLEX128, "COMPLEX128", 16},
    {ACL_BF16, "BF16", 2},
    {ACL_INT4, "INT4", 1},
    {ACL_UINT1, "UINT1", 1},
    {ACL_COMPLEX32, "COMPLEX32", 4},
    {ACL_HIFLOAT8, "HIFLOAT8", 1},
    {ACL_FLOAT8_E5M2, "FLOAT8_E5M2", 1},
    {ACL_FLOAT8_E4M3FN, "FLOAT8_E4M3FN", 1},
    {ACL_FLOAT8_E8M0, "FLOAT8_E8M0", 1},
    {ACL_FLOAT6_E3M2, "FLOAT6_E3M2", 1},
    {ACL_FLOAT6_E2M3, "FLOAT6_E2M3", 1},
    {ACL_FLOAT4_E2M1, "FLOAT4_E2M1", 1},
    {ACL_FLOAT4_E1M2, "FLOAT4_E1M2", 1},
    {ACL_HIFLOAT4, "HIFLOAT4", 1},
};

struct FormatRow {
    aclFormat format;
    std::string_view name;
};

constexpr FormatRow formats[] = {
    {ACL_FORMAT_UNDEFINED, "UNDEFINED"},
    {ACL_FORMAT_NCHW, "NCHW"},
    {ACL_FORMAT_NHWC, "NHWC"},
    {ACL_FORMAT_ND, "ND"},
    {ACL_FORMAT_NC1HWC0, "NC1HWC0"},
    {ACL_FORMAT_FRACTAL_Z, "FRACTAL_Z"},
    {ACL_FORMAT_NC1HWC0_C04, "NC1HWC0_C04"},
    {ACL_FORMAT_HWCN, "HWCN"},
    {ACL_FORMAT_NDHWC, "NDHWC"},
    {ACL_FORMAT_FRACTAL_NZ, "FRACTAL_NZ"},
    {ACL_FORMAT_NCDHW, "NCDHW"},
    {ACL_FORMAT_NDC1HWC0, "NDC1HWC0"},
    {ACL_FRACTAL_Z_3D, "FRACTAL_Z_3D"},
    {ACL_FORMAT_NC, "NC"},
    {ACL_FORMAT_NCL, "NCL"},
    {ACL_FORMAT_FRACTAL_NZ_C0_16, "FRACTAL_NZ_C0_16"},
    {ACL_FORMAT_FRACTAL_NZ_C0_32, "FRACTAL_NZ_C0_32"},
    {ACL_FORMAT_FRACTAL_NZ_C0_2, "FRACTAL_NZ_C0_2"},
    {ACL_FORMAT_FRACTAL_NZ_C0_4, "FRACTAL_NZ_C0_4"},
    {ACL_FORMAT_FRACTAL_NZ_C0_8, "FRACTAL_NZ_C0_8"},
};

using List = std::vector<const void*>;

template <class T, Kind kind>
Registry<T>& registry() {
    static auto* const kept = new Registry<T>(kind);
    return *kept;
}

Registry<Scalar>& scalars() { return registry<Scalar, Kind::scalar>(); }
Registry<std::vector<float>>& float_arrays() { return registry<std::vector<float>, Kind::float_array>(); }
Registry<std::vector<bool>>& bool_arrays() { return registry<std::vector<bool>, Kind::bool_array>(); }
Registry<List>& tensor_lists() { return registry<List, Kind::tensor_list>(); }
Registry<List>& scalar_lists() { return registry<List, Kind::scalar_list>(); }

Verdict dead(const char* parameter, const void* handle) {
    return {ACLNN_ERR_PARAM_INVALID,
            std::string(parameter) + ": " + text_of(handle) + " is not alive, must be created and not yet destroyed"};
}

// ---- tensors ----

Verdict take_axes(const char* parameter, const std::int64_t* extents, std::uint64_t count, Axes& axes) {
    if (count > most_axes) {
        return {ACLNN_ERR_PARAM_INVALID, std::string(parameter) + ": " + std::to_string(count) +
                                             " axes, must be at most " + std::to_string(most_axes)};
    }
    if (count > 0 && extents == nullptr) {
        return {ACLNN_ERR_PARAM_NULLPTR,
                std::string(parameter) + ": null, must point to " + std::to_string(count) + " extents"};
    }
    axes = {};
    axes.count = count;
    for (std::size_t axis = 0; axis < count; ++axis) axes.extent[axis] = extents[axis];
    return {};
}

// Row-major; sizes beyond int64 wrap, the operators refuse them.
Axes row_major(const Axes& shape) {
    Axes stride;
    stride.count = shape.count;
    std::uint64_t step = 1;
    for (std::size_t axis = shape.count; axis-- > 0;) {
        stride.extent[axis] = static_cast<std::int64_t>(step);
        step *= static_cast<std::uint64_t>(shape.extent[axis]);
    }
    return stride;
}

struct TensorArguments {
    const std::int64_t* shape;
    std::uint64_t shape_count;
    aclDataType dtype;
    const std::int64_t* stride;
    std::int64_t offset;
    aclFormat format;
    const std::int64_t* storage;
    std::uint64_t storage_count;
    void* data;
};

Verdict describe(const TensorArguments& given, Tensor& tensor) {
    if (Verdict v = take_axes("viewDims", given.shape, given.shape_count, tensor.shape); !v.ok()) return v;
    if (Verdict v = take_axes("storageDims", given.storage, given.storage_count, tensor.storage); !v.ok()) return v;
    tensor.stride = row_major(tensor.shape);
    if (given.stride != nullptr) {
        if (Verdict v = take_axes("stride", given.stride, given.shape_count, tensor.stride); !v.ok()) return v;
    }
    tensor.dtype = given.dtype;
    tensor.format = given.format;
    tensor.offset = given.offset;
    tensor.data = given.data;
    return {};
}

// ---- create, destroy and ask, for any kind ----

// A new handle, or null and a text. make(value) fills the value or refuses.
template <class T, class Make>
void* create(const char* function, Registry<T>& kept, const Make& make) noexcept {
    void* handle = nullptr;
    static_cast<void>(operator_call(function, [&]() -> Verdict {
        T value{};
        if (Verdict v = make(value); !v.ok()) return v;
        handle = kept.add(std::move(value));
        return {};
    }));
    return handle;
}

template <class Element, class Stored>
void* create_array(const char* function, Registry<std::vector<Stored>>& kept, const Element* value,
                   std::uint64_t size) noexcept {
    return create(function, kept, [&](std::vector<Stored>& array) -> Verdict {
        if (value == nullptr && size > 0) return null(ACLNN_ERR_PARAM_NULLPTR, "value");
        array.reserve(size);  // throws where the end of so many could not even be addressed
        array.assign(value, value + (value == nullptr ? 0 : size));
        return {};
    });
}

template <class T>
aclnnStatus destroy(const char* function, const char* parameter, Registry<T>& kept, const void* handle) noexcept {
    if (handle == nullptr) return ACLNN_SUCCESS;
    return operator_call(function,
                         [&]() -> Verdict { return kept.remove(handle) ? Verdict{} : dead(parameter, handle); });
}

// An element of a list is destroyed by the list alone.
template <class T>
aclnnStatus destroy_element(const char* function, const char* parameter, Registry<T>& kept,
                            const void* handle) noexcept {
    if (handle == nullptr) return ACLNN_SUCCESS;
    return operator_call(function, [&]() -> Verdict {
        bool in_list = false;
        const bool alive = kept.remove_if(handle, [&](T& value) {
            in_list = value.in_list;
            return !in_list;
        });
        if (!alive) return dead(parameter, handle);
        if (in_list) {
            return {ACLNN_ERR_PARAM_INVALID,
                    std::string(parameter) + ": belongs to a list, must be destroyed with that list"};
        }
        return {};
    });
}

template <class T, class Element>
void* create_list(const char* function, Registry<List>& lists, Registry<T>& kept, const Element* const* value,
                  std::uint64_t size) noexcept {
    return create(function, lists, [&](List& list) -> Verdict {
        if (value == nullptr && size > 0) return null(ACLNN_ERR_PARAM_NULLPTR, "value");
        list.reserve(size);
        for (std::uint64_t k = 0; k < size; ++k) list.push_back(value[k]);
        // Null elements are places without a tensor. Nothing is taken over unless all can be.
        for (std::size_t k = 0; k < list.size(); ++k) {
            bool taken = false;
            const bool alive = list[k] == nullptr ||
                               kept.with(list[k], [&](T& element) { taken = std::exchange(element.in_list, true); });
            if (alive && !taken) continue;
            for (std::size_t back = 0; back < k; ++back)
                kept.with(list[back], [](T& element) { element.in_list = false; });
            const std::string parameter = "value[" + std::to_string(k) + "]";
            if (!alive) return dead(parameter.c_str(), list[k]);
            return {ACLNN_ERR_PARAM_INVALID, parameter + ": belongs to a list already, must belong to none"};
        }
        return {};
    });
}

template <class T>
aclnnStatus destroy_list(const char* function, const char* parameter, Registry<List>& lists, Registry<T>& kept,
                         const void* handle) noexcept {
    if (handle == nullptr) return ACLNN_SUCCESS;
    return operator_call(function, [&]() -> Verdict {
        List list;
        const bool alive = lists.remove_if(handle, [&](List& value) {
            list.swap(value);
            return true;
        });
        if (!alive) return dead(parameter, handle);
        for (const void* element : list) kept.remove(element);
        return {};
    });
}

template <class T>
aclnnStatus size_of_array(const char* function, const char* parameter, Registry<T>& kept, const void* handle,
                          std::uint64_t* size) noexcept {
    return operator_call(function, [&]() -> Verdict {
        if (handle == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, parameter);
        if (size == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, "size");
        return kept.with(handle, [&](const T& value) { *size = value.size(); }) ? Verdict{} : dead(parameter, handle);
    });
}

// One property of a tensor; get(tensor) stores it.
template <class Target, class Get>
aclnnStatus ask(const char* function, const aclTensor* tensor, const char* parameter, const Target* target,
                const Get& get) noexcept {
    return operator_call(function, [&]() -> Verdict {
        if (tensor == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, "tensor");
        if (target == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, parameter);
        return tensors().with(tensor, get) ? Verdict{} : dead("tensor", tensor);
    });
}

aclnnStatus ask_axes(const char* function, const aclTensor* tensor, Axes Tensor::*which, const char* parameter,
                     std::int64_t** extents, const char* count_parameter, std::uint64_t* count) noexcept {
    return operator_call(function, [&]() -> Verdict {
        if (tensor == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, "tensor");
        if (extents == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, parameter);
        if (count == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, count_parameter);
        Tensor found;
        if (!tensors().read(tensor, found)) return dead("tensor", tensor);
        const Axes& axes = found.*which;
        auto* copy = new std::int64_t[axes.count];  // the caller's
        std::copy_n(axes.extent.begin(), axes.count, copy);
        *extents = copy;
        *count = axes.count;
        return {};
    });
}

}  // namespace

Registry<Tensor>& tensors() { return registry<Tensor, Kind::tensor>(); }
Registry<std::vector<std::int64_t>>& int_arrays() { return registry<std::vector<std::int64_t>, Kind::int_array>(); }

std::string name_of(aclDataType dtype) {
    for (const TypeRow& row : types) {
        if (row.dtype == dtype) return std::string(row.name);
    }
    return dtype == ACL_DT_UNDEFINED ? "UNDEFINED" : "value " + std::to_string(static_cast<int>(dtype));
}

std::string name_of(aclFormat format) {
    for (const FormatRow& row : formats) {
        if (row.format == format) return std::string(row.name);
    }
    return "value " + std::to_string(static_cast<int>(format));
}

std::size_t live_descriptors() {
    return tensors().size() + scalars().size() + int_arrays().size() + float_arrays().size() + bool_arrays().size() +
           tensor_lists().size() + scalar_lists().size();
}

}  // namespace fascore::aclnn

using namespace fascore::aclnn;

extern "C" {

// ---- acl_base.h ----

size_t aclDataTypeSize(aclDataType dataType) {
    for (const TypeRow& row : types) {
        if (row.dtype == dataType) return row.bytes;
    }
    return 0;
}

float aclFloat16ToFloat(aclFloat16 value) {
    return static_cast<float>(fascore::load_element(&value, fascore::DType::f16));
}

aclFloat16 aclFloatToFloat16(float value) {
    aclFloat16 half = 0;
    fascore::store_element(&half, fascore::DType::f16, static_cast<double>(value));
    return half;
}

// ---- create ----

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData) {
    return static_cast<aclTensor*>(create("aclCreateTensor", tensors(), [&](Tensor& tensor) {
        return describe(
            {viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorData}, tensor);
    }));
}

aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                          const int64_t* stride, int64_t offset, aclFormat format, const int64_t* storageDims,
                          uint64_t storageDimsNum, void* tensorDataAddr) {
    return operator_call("aclInitTensor", [&]() -> Verdict {
        if (tensor == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, "tensor");
        Tensor anew;
        if (Verdict v = describe(
                {viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorDataAddr},
                anew);
            !v.ok()) {
            return v;
        }
        const bool alive = tensors().with(tensor, [&](Tensor& old) {
            anew.in_list = old.in_list;
            old = anew;
        });
        return alive ? Verdict{} : dead("tensor", tensor);
    });
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
    return static_cast<aclScalar*>(create("aclCreateScalar", scalars(), [&](Scalar& scalar) -> Verdict {
        if (value == nullptr) return null(ACLNN_ERR_PARAM_NULLPTR, "value");
        scalar.dtype = dataType;
        scalar.value.resize(aclDataTypeSize(dataType));
        if (scalar.value.empty()) {
            return {ACLNN_ERR_PARAM_INVALID, "dataType: " + name_of(dataType) + ", must be a type with a size"};
        }
        std::memcpy(scalar.value.data(), value, scalar.value.size());
        return {};
    }));
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
    return static_cast<aclIntArray*>(create_array("aclCreateIntArray", int_arrays(), value, size));
}
aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
    return static_cast<aclFloatArray*>(create_array("aclCreateFloatArray", float_arrays(), value, size));
}
aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
    return static_cast<aclBoolArray*>(create_array("aclCreateBoolArray", bool_arrays(), value, size));
}
aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
    return static_cast<aclTensorList*>(create_list("aclCreateTensorList", tensor_lists(), tensors(), value, size));
}
aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
    return static_cast<aclScalarList*>(create_list("aclCreateScalarList", scalar_lists(), scalars(), value, size));
}

// ---- destroy ----

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
    return destroy_element("aclDestroyTensor", "tensor", tensors(), tensor);
}
aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
    return destroy_element("aclDestroyScalar", "scalar", scalars(), scalar);
}
aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
    return destroy("aclDestroyIntArray", "array", int_arrays(), array);
}
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
    return destroy("aclDestroyFloatArray", "array", float_arrays(), array);
}
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
    return destroy("aclDestroyBoolArray", "array", bool_arrays(), array);
}
aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
    return destroy_list("aclDestroyTensorList", "array", tensor_lists(), tensors(), array);
}
aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
    return destroy_list("aclDestroyScalarList", "array", scalar_lists(), scalars(), array);
}

// ---- ask ----

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
    return ask_axes("aclGetViewShape", tensor, &Tensor::shape, "viewDims", viewDims, "viewDimsNum", viewDimsNum);
}
aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue, uint64_t* stridesNum) {
    return ask_axes("aclGetViewStrides", tensor, &Tensor::stride, "stridesValue", stridesValue, "stridesNum",
                    stridesNum);
}
aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims, uint64_t* storageDimsNum) {
    return ask_axes("aclGetStorageShape", tensor, &Tensor::storage, "storageDims", storageDims, "storageDimsNum",
                    storageDimsNum);
}
aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
    return ask("aclGetViewOffset", tensor, "offset", offset, [&](const Tensor& found) { *offset = found.offset; });
}
aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
    return ask("aclGetFormat", tensor, "format", format, [&](const Tensor& found) { *format = found.format; });
}
aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
    return ask("aclGetDataType", tensor, "dataType", dataType, [&](const Tensor& found) { *dataType = found.dtype; });
}
aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
    return size_of_array("aclGetIntArraySize", "array", int_arrays(), array, size);
}
aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
    return size_of_array("aclGetFloatArraySize", "array", float_arrays(), array, size);
}
aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
    return size_of_array("aclGetBoolArraySize", "array", bool_arrays(), array, size);
}
aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
    return size_of_array("aclGetTensorListSize", "tensorList", tensor_lists(), tensorList, size);
}
aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
    return size_of_array("aclGetScalarListSize", "scalarList", scalar_lists(), scalarList, size);
}

}  // extern "C"
