// SPDX-License-Identifier: Apache-2.0
//
// Descriptors: created, asked, destroyed, misused.
#include <memory>
#include <vector>

#include "support.h"

namespace fascore::aclnn_test {

namespace {

using Extents = std::vector<std::int64_t>;

// An array the library made with new[].
Extents taken(std::int64_t* values, std::uint64_t count) {
    const std::unique_ptr<std::int64_t[]> owner(values);
    return {values, values + count};
}

class Meta : public ::testing::Test {
  protected:
    void SetUp() override {
        last_error();
        before_ = live_handles();
    }
    void TearDown() override { EXPECT_EQ(live_handles(), before_) << "handles leak"; }

  private:
    std::size_t before_ = 0;
};

TEST_F(Meta, TensorsAnswer) {
    const Extents shape = {2, 3}, stride = {1, 2}, storage = {10};
    int data = 0;
    aclTensor* tensor =
        aclCreateTensor(shape.data(), 2, ACL_BF16, stride.data(), 4, ACL_FORMAT_ND, storage.data(), 1, &data);
    ASSERT_NE(tensor, nullptr);
    std::int64_t* values = nullptr;
    std::uint64_t count = 0;
    ASSERT_EQ(aclGetViewShape(tensor, &values, &count), 0);
    EXPECT_EQ(taken(values, count), shape);
    ASSERT_EQ(aclGetViewStrides(tensor, &values, &count), 0);
    EXPECT_EQ(taken(values, count), stride);
    ASSERT_EQ(aclGetStorageShape(tensor, &values, &count), 0);
    EXPECT_EQ(taken(values, count), storage);
    std::int64_t offset = 0;
    EXPECT_EQ(aclGetViewOffset(tensor, &offset), 0);
    EXPECT_EQ(offset, 4);
    aclFormat format = ACL_FORMAT_NCHW;
    EXPECT_EQ(aclGetFormat(tensor, &format), 0);
    EXPECT_EQ(format, ACL_FORMAT_ND);
    aclDataType type = ACL_FLOAT;
    EXPECT_EQ(aclGetDataType(tensor, &type), 0);
    EXPECT_EQ(type, ACL_BF16);

    const Extents anew = {4, 5, 6};
    EXPECT_EQ(aclInitTensor(tensor, anew.data(), 3, ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCL, anew.data(), 3, nullptr), 0);
    ASSERT_EQ(aclGetViewShape(tensor, &values, &count), 0);
    EXPECT_EQ(taken(values, count), anew);
    ASSERT_EQ(aclGetViewStrides(tensor, &values, &count), 0);
    EXPECT_EQ(taken(values, count), (Extents{30, 6, 1})) << "no strides: row-major";
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST_F(Meta, TensorsOfRankZeroAndWithoutDataExist) {
    aclTensor* tensor = aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
    ASSERT_NE(tensor, nullptr);
    std::int64_t* values = nullptr;
    std::uint64_t count = 9;
    ASSERT_EQ(aclGetViewShape(tensor, &values, &count), 0);
    EXPECT_TRUE(taken(values, count).empty());
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST_F(Meta, WhatCannotBeDescribedIsNull) {
    const Extents shape(20, 1);
    EXPECT_EQ(aclCreateTensor(nullptr, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(), 2, nullptr), nullptr);
    EXPECT_EQ(last_error(), "aclCreateTensor: viewDims: null, must point to 2 extents");
    EXPECT_EQ(aclCreateTensor(shape.data(), 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 2, nullptr), nullptr);
    EXPECT_EQ(aclCreateTensor(shape.data(), 17, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(), 2, nullptr),
              nullptr);
    EXPECT_EQ(aclCreateScalar(nullptr, ACL_FLOAT), nullptr);
    EXPECT_EQ(aclCreateIntArray(nullptr, 3), nullptr);
    EXPECT_EQ(aclCreateFloatArray(nullptr, 3), nullptr);
    EXPECT_EQ(aclCreateBoolArray(nullptr, 3), nullptr);
    EXPECT_EQ(aclCreateTensorList(nullptr, 1), nullptr);
    const std::int64_t one = 1;
    EXPECT_EQ(aclCreateIntArray(&one, std::uint64_t{1} << 62), nullptr) << "more than fits into memory";
}

TEST_F(Meta, ArraysCount) {
    const Extents ints = {1, 2, 3};
    const std::vector<float> floats = {1, 2};
    const bool bools[] = {true};
    aclIntArray* int_array = aclCreateIntArray(ints.data(), 3);
    aclIntArray* empty = aclCreateIntArray(nullptr, 0);
    aclFloatArray* float_array = aclCreateFloatArray(floats.data(), 2);
    aclBoolArray* bool_array = aclCreateBoolArray(bools, 1);
    std::uint64_t size = 9;
    EXPECT_EQ(aclGetIntArraySize(int_array, &size), 0);
    EXPECT_EQ(size, 3U);
    EXPECT_EQ(aclGetIntArraySize(empty, &size), 0);
    EXPECT_EQ(size, 0U);
    EXPECT_EQ(aclGetFloatArraySize(float_array, &size), 0);
    EXPECT_EQ(size, 2U);
    EXPECT_EQ(aclGetBoolArraySize(bool_array, &size), 0);
    EXPECT_EQ(size, 1U);
    EXPECT_EQ(aclDestroyIntArray(int_array), 0);
    EXPECT_EQ(aclDestroyIntArray(empty), 0);
    EXPECT_EQ(aclDestroyFloatArray(float_array), 0);
    EXPECT_EQ(aclDestroyBoolArray(bool_array), 0);
}

TEST_F(Meta, ListsOwnTheirElements) {
    const auto tensor = [] {
        return aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
    };
    const aclTensor* elements[] = {tensor(), nullptr, tensor()};
    aclTensorList* list = aclCreateTensorList(elements, 3);
    ASSERT_NE(list, nullptr);
    std::uint64_t size = 0;
    EXPECT_EQ(aclGetTensorListSize(list, &size), 0);
    EXPECT_EQ(size, 3U);
    EXPECT_EQ(aclDestroyTensor(elements[0]), 161002) << "the list's";
    EXPECT_EQ(aclCreateTensorList(elements, 1), nullptr) << "in a list already";
    aclTensor* loose = tensor();
    const aclTensor* mixed[] = {loose, elements[2]};
    EXPECT_EQ(aclCreateTensorList(mixed, 2), nullptr);
    EXPECT_EQ(aclDestroyTensor(loose), 0) << "a list that was refused took nothing over";
    EXPECT_EQ(aclDestroyTensorList(list), 0);
    EXPECT_EQ(aclDestroyTensorList(list), 161002);
    EXPECT_EQ(aclDestroyTensor(elements[0]), 161002) << "gone with the list";

    float one = 1;
    const aclScalar* scalars[] = {aclCreateScalar(&one, ACL_FLOAT)};
    aclScalarList* scalar_list = aclCreateScalarList(scalars, 1);
    EXPECT_EQ(aclGetScalarListSize(scalar_list, &size), 0);
    EXPECT_EQ(size, 1U);
    EXPECT_EQ(aclDestroyScalarList(scalar_list), 0);
}

TEST_F(Meta, NullIsDestroyedAndNotAsked) {
    EXPECT_EQ(aclDestroyTensor(nullptr), 0);
    EXPECT_EQ(aclDestroyScalar(nullptr), 0);
    EXPECT_EQ(aclDestroyIntArray(nullptr), 0);
    EXPECT_EQ(aclDestroyFloatArray(nullptr), 0);
    EXPECT_EQ(aclDestroyBoolArray(nullptr), 0);
    EXPECT_EQ(aclDestroyTensorList(nullptr), 0);
    EXPECT_EQ(aclDestroyScalarList(nullptr), 0);
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);

    std::int64_t* values = nullptr;
    std::int64_t offset = 0;
    std::uint64_t count = 0;
    aclFormat format{};
    aclDataType type{};
    const Data data(ACL_FLOAT, {2});
    aclTensor* tensor = data.handle();
    const aclnnStatus refusals[] = {
        aclGetViewShape(nullptr, &values, &count),
        aclGetViewShape(tensor, nullptr, &count),
        aclGetViewShape(tensor, &values, nullptr),
        aclGetViewStrides(nullptr, &values, &count),
        aclGetStorageShape(nullptr, &values, &count),
        aclGetViewOffset(nullptr, &offset),
        aclGetViewOffset(tensor, nullptr),
        aclGetFormat(nullptr, &format),
        aclGetFormat(tensor, nullptr),
        aclGetDataType(nullptr, &type),
        aclGetDataType(tensor, nullptr),
        aclGetIntArraySize(nullptr, &count),
        aclGetFloatArraySize(nullptr, &count),
        aclGetBoolArraySize(nullptr, &count),
        aclGetTensorListSize(nullptr, &count),
        aclGetScalarListSize(nullptr, &count),
        aclInitTensor(nullptr, nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr),
    };
    for (const aclnnStatus status : refusals) EXPECT_EQ(status, 161001);
}

TEST_F(Meta, MisuseIsCaught) {
    const std::int64_t extent = 1;
    aclTensor* tensor = aclCreateTensor(&extent, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &extent, 1, nullptr);
    aclIntArray* array = aclCreateIntArray(&extent, 1);
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
    EXPECT_EQ(aclDestroyTensor(tensor), 161002);
    EXPECT_NE(last_error().find("is not alive, must be created and not yet destroyed"), std::string::npos);
    aclTensor* next = aclCreateTensor(&extent, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &extent, 1, nullptr);
    EXPECT_NE(next, tensor) << "a handle is never used again";
    std::int64_t offset = 0;
    EXPECT_EQ(aclGetViewOffset(tensor, &offset), 161002) << "used after destroy";
    EXPECT_EQ(aclDestroyTensor(reinterpret_cast<aclTensor*>(array)), 161002) << "another kind";
    EXPECT_EQ(aclDestroyTensor(reinterpret_cast<const aclTensor*>(&extent)), 161002) << "no handle at all";
    EXPECT_EQ(aclDestroyTensor(next), 0);
    EXPECT_EQ(aclDestroyIntArray(array), 0);
}

}  // namespace

}  // namespace fascore::aclnn_test
