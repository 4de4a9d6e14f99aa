// SPDX-License-Identifier: Apache-2.0
//
// The runtime: start and end, device, contexts, memory, error texts. Streams have a file of their own.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

// The address sanitizer ends a program that asks for too much memory, unless told that it may be refused.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
    return "allocator_may_return_null=1";
}

namespace fascore::aclnn_test {

namespace {

class Runtime : public ::testing::Test {
  protected:
    void SetUp() override { last_error(); }
};

TEST_F(Runtime, InitCountsReferences) {
    EXPECT_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
    EXPECT_EQ(aclInit(nullptr), 0);
    EXPECT_EQ(aclInit(""), 0);
    std::uint64_t left = 99;
    EXPECT_EQ(aclFinalizeReference(&left), 0);
    EXPECT_EQ(left, 1U);
    EXPECT_EQ(aclFinalizeReference(nullptr), 0);
    EXPECT_EQ(aclFinalizeReference(&left), ACL_ERROR_REPEAT_FINALIZE);
    EXPECT_EQ(aclInit(nullptr), 0);
    EXPECT_EQ(aclInit(nullptr), 0);
    EXPECT_EQ(aclFinalize(), 0);
    EXPECT_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
}

TEST_F(Runtime, InitReadsItsFile) {
    EXPECT_EQ(aclInit("/nonexistent/acl.json"), ACL_ERROR_INVALID_FILE);
    EXPECT_EQ(last_error(),
              "aclInit: configPath: '/nonexistent/acl.json' cannot be read, must be null, empty or a readable file");
    const std::string path = ::testing::TempDir() + "fascore_acl.json";
    std::ofstream(path) << "{}";
    EXPECT_EQ(aclInit(path.c_str()), 0);
    std::remove(path.c_str());
    EXPECT_EQ(aclFinalize(), 0);
}

TEST_F(Runtime, ThereIsOneDevice) {
    std::uint32_t count = 0;
    EXPECT_EQ(aclrtGetDeviceCount(&count), 0);
    EXPECT_EQ(count, 1U);
    EXPECT_EQ(aclrtSetDevice(0), 0);
    std::int32_t device = -1;
    EXPECT_EQ(aclrtGetDevice(&device), 0);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(aclrtSetDevice(1), ACL_ERROR_INVALID_DEVICE);
    EXPECT_EQ(last_error(), "aclrtSetDevice: deviceId: given 1, must be 0");
    EXPECT_EQ(aclrtResetDevice(-1), ACL_ERROR_INVALID_DEVICE);
    aclrtRunMode mode = ACL_DEVICE;
    EXPECT_EQ(aclrtGetRunMode(&mode), 0);
    EXPECT_EQ(mode, ACL_HOST);
    EXPECT_EQ(aclrtSynchronizeDevice(), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
    std::int32_t major = 0, minor = -1, patch = -1;
    EXPECT_EQ(aclrtGetVersion(&major, &minor, &patch), 0);
    EXPECT_GE(major, 1);
    EXPECT_EQ(aclrtGetDevice(nullptr), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtGetDeviceCount(nullptr), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtGetRunMode(nullptr), ACL_ERROR_INVALID_PARAM);
}

TEST_F(Runtime, ContextsAreOfTheThread) {
    EXPECT_EQ(aclrtSetDevice(0), 0);
    aclrtContext usual = nullptr;
    ASSERT_EQ(aclrtGetCurrentContext(&usual), 0);
    ASSERT_NE(usual, nullptr);
    aclrtContext mine = nullptr;
    ASSERT_EQ(aclrtCreateContext(&mine, 0), 0);
    aclrtContext current = nullptr;
    EXPECT_EQ(aclrtGetCurrentContext(&current), 0);
    EXPECT_EQ(current, mine) << "a new context is current";
    std::thread([&] {
        aclrtContext other = nullptr;
        EXPECT_EQ(aclrtGetCurrentContext(&other), 0);
        EXPECT_EQ(other, usual);
        EXPECT_EQ(aclrtSetCurrentContext(mine), 0);
    }).join();
    EXPECT_EQ(aclrtSetCurrentContext(usual), 0);
    EXPECT_EQ(aclrtDestroyContext(mine), 0);
    EXPECT_EQ(aclrtDestroyContext(mine), ACL_ERROR_INVALID_RESOURCE_HANDLE) << "destroyed twice";
    EXPECT_EQ(aclrtSetCurrentContext(mine), ACL_ERROR_INVALID_RESOURCE_HANDLE) << "used after destroy";
    EXPECT_EQ(aclrtDestroyContext(usual), ACL_ERROR_INVALID_PARAM) << "the device's own";
    EXPECT_EQ(aclrtCreateContext(&mine, 3), ACL_ERROR_INVALID_DEVICE);
    EXPECT_EQ(aclrtCreateContext(nullptr, 0), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtSetCurrentContext(nullptr), ACL_ERROR_INVALID_PARAM);
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), 0);
    EXPECT_EQ(aclrtSetCurrentContext(stream), ACL_ERROR_INVALID_RESOURCE_HANDLE) << "a stream is no context";
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST_F(Runtime, OptionsAreKept) {
    std::int64_t value = -1;
    EXPECT_EQ(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1), 0);
    EXPECT_EQ(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 0);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 0);
    EXPECT_EQ(value, 0) << "a context has its own";
    EXPECT_EQ(aclrtCtxSetSysParamOpt(ACL_OPT_ENABLE_DEBUG_KERNEL, 7), 0);
    EXPECT_EQ(aclrtCtxGetSysParamOpt(ACL_OPT_ENABLE_DEBUG_KERNEL, &value), 0);
    EXPECT_EQ(value, 7);
    EXPECT_EQ(aclrtSetSysParamOpt(static_cast<aclSysParamOpt>(9), 1), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, nullptr), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 0), 0);
}

// ---- memory ----

TEST_F(Runtime, MemoryComesAlignedAndGoesOnce) {
    void* block = nullptr;
    for (auto* const allocate : {aclrtMalloc, aclrtMallocAlign32, aclrtMallocCached}) {
        ASSERT_EQ(allocate(&block, 100, ACL_MEM_MALLOC_HUGE_FIRST), 0);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
        std::memset(block, 7, 100);
        EXPECT_EQ(aclrtFreeHost(block), ACL_ERROR_INVALID_PARAM) << "device memory is not host memory";
        EXPECT_EQ(aclrtFree(block), 0);
        EXPECT_EQ(aclrtFree(block), ACL_ERROR_INVALID_PARAM) << "freed twice";
    }
    last_error();
    ASSERT_EQ(aclrtMallocHost(&block, 1), 0);
    EXPECT_EQ(aclrtFree(block), ACL_ERROR_INVALID_PARAM);
    EXPECT_NE(last_error().find("must be a live block of aclrtMalloc"), std::string::npos);
    EXPECT_EQ(aclrtFreeHost(block), 0);
    int not_ours = 0;
    EXPECT_EQ(aclrtFree(&not_ours), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtFree(nullptr), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtMalloc(nullptr, 1, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtMalloc(&block, 0, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_ERROR_INVALID_PARAM);
    last_error();
    EXPECT_EQ(aclrtMalloc(&block, SIZE_MAX / 2, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_ERROR_BAD_ALLOC);
    EXPECT_NE(last_error().find("the system has no memory for it"), std::string::npos);
}

TEST_F(Runtime, CopiesAreChecked) {
    void* block = nullptr;
    ASSERT_EQ(aclrtMalloc(&block, 16, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    std::vector<unsigned char> source(16), back(16);
    for (std::size_t k = 0; k < 16; ++k) source[k] = static_cast<unsigned char>(k);
    EXPECT_EQ(aclrtMemcpy(block, 16, source.data(), 16, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    EXPECT_EQ(aclrtMemcpy(back.data(), 16, block, 16, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    EXPECT_EQ(back, source);
    EXPECT_EQ(aclrtMemset(block, 16, 0x5A, 8), 0);
    EXPECT_EQ(aclrtMemcpy(back.data(), 16, block, 16, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    EXPECT_EQ(back[7], 0x5A);
    EXPECT_EQ(back[8], 8);
    EXPECT_EQ(aclrtMemcpy(nullptr, 0, nullptr, 0, ACL_MEMCPY_DEFAULT), 0) << "nothing to copy";

    last_error();
    EXPECT_EQ(aclrtMemcpy(block, 15, source.data(), 16, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(last_error(), "aclrtMemcpy: count: given 16, must be at most destMax 15");
    EXPECT_EQ(aclrtMemcpy(static_cast<char*>(block) + 4, 16, source.data(), 16, ACL_MEMCPY_HOST_TO_DEVICE),
              ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(last_error(), "aclrtMemcpy: dst: 16 bytes, its block has 12 from there");
    EXPECT_EQ(aclrtMemcpy(nullptr, 16, source.data(), 16, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtMemcpy(block, 16, nullptr, 16, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtMemcpy(block, 16, source.data(), 16, static_cast<aclrtMemcpyKind>(8)), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtMemset(block, 32, 0, 17), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclrtFree(block), 0);
}

TEST_F(Runtime, PlanesAreCopiedRowByRow) {
    const std::vector<unsigned char> source = {1, 2, 3, 9, 4, 5, 6, 9};  // 2 rows of 3, pitch 4
    std::vector<unsigned char> target(10, 0);
    EXPECT_EQ(aclrtMemcpy2d(target.data(), 5, source.data(), 4, 3, 2, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    EXPECT_EQ(target, (std::vector<unsigned char>{1, 2, 3, 0, 0, 4, 5, 6, 0, 0}));
    EXPECT_EQ(aclrtMemcpy2d(target.data(), 2, source.data(), 4, 3, 2, ACL_MEMCPY_HOST_TO_DEVICE),
              ACL_ERROR_INVALID_PARAM)
        << "rows overlap";
    EXPECT_EQ(aclrtMemcpy2d(target.data(), SIZE_MAX / 2, source.data(), 4, 3, 5, ACL_MEMCPY_HOST_TO_DEVICE),
              ACL_ERROR_INVALID_PARAM);
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), 0);
    std::vector<unsigned char> later(6, 0);
    EXPECT_EQ(aclrtMemcpy2dAsync(later.data(), 3, target.data(), 5, 3, 2, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
    EXPECT_EQ(later, (std::vector<unsigned char>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

// ---- error texts ----

TEST_F(Runtime, TextsAreNewestFirstAndTakenOnce) {
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
    EXPECT_NE(aclrtSetDevice(5), 0);
    EXPECT_NE(aclrtSetDevice(6), 0);
    EXPECT_EQ(last_error(),
              "aclrtSetDevice: deviceId: given 6, must be 0\naclrtSetDevice: deviceId: given 5, must be 0");
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
}

TEST_F(Runtime, TextsAreOfTheThread) {
    EXPECT_NE(aclrtSetDevice(5), 0);
    std::thread([] { EXPECT_EQ(aclGetRecentErrMsg(), nullptr); }).join();
    EXPECT_NE(aclGetRecentErrMsg(), nullptr);
}

TEST_F(Runtime, UnreadTextsDoNotPileUp) {
    for (int k = 0; k < 1000; ++k) EXPECT_NE(aclrtSetDevice(k + 1), 0);
    const std::string text = last_error();
    EXPECT_LT(text.size(), 2000U);
    EXPECT_EQ(text.rfind("aclrtSetDevice: deviceId: given 1000,", 0), 0U) << "the newest are kept";
}

// ---- types ----

TEST_F(Runtime, TypesHaveSizes) {
    EXPECT_EQ(aclDataTypeSize(ACL_FLOAT), 4U);
    EXPECT_EQ(aclDataTypeSize(ACL_FLOAT16), 2U);
    EXPECT_EQ(aclDataTypeSize(ACL_BF16), 2U);
    EXPECT_EQ(aclDataTypeSize(ACL_BOOL), 1U);
    EXPECT_EQ(aclDataTypeSize(ACL_INT64), 8U);
    EXPECT_EQ(aclDataTypeSize(ACL_COMPLEX128), 16U);
    EXPECT_EQ(aclDataTypeSize(ACL_FLOAT8_E5M2), 1U);
    EXPECT_EQ(aclDataTypeSize(ACL_DT_UNDEFINED), 0U);
    EXPECT_EQ(aclDataTypeSize(static_cast<aclDataType>(99)), 0U);
}

TEST_F(Runtime, HalvesConvert) {
    EXPECT_EQ(aclFloatToFloat16(1.0F), 0x3C00);
    EXPECT_EQ(aclFloatToFloat16(-2.5F), 0xC100);
    EXPECT_EQ(aclFloatToFloat16(65504.0F), 0x7BFF);
    EXPECT_EQ(aclFloatToFloat16(1.0F + 0x1p-11F), 0x3C00) << "halfway, to even";
    EXPECT_EQ(aclFloatToFloat16(0x1p-24F), 0x0001) << "the smallest";
    for (int bits = 0; bits < 0x7C00; ++bits) {
        const auto half = static_cast<aclFloat16>(bits);
        ASSERT_EQ(aclFloatToFloat16(aclFloat16ToFloat(half)), half);
    }
}

}  // namespace

}  // namespace fascore::aclnn_test
