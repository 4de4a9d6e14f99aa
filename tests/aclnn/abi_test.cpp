// SPDX-License-Identifier: Apache-2.0
//
// The numbers programs are compiled with. They are facts of the interface, written down here a second time.
#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"

extern "C" int fascore_c11_program(void);

namespace {

static_assert(std::is_same_v<aclError, int> && std::is_same_v<aclnnStatus, std::int32_t>);
static_assert(std::is_same_v<aclrtStream, void*> && std::is_same_v<aclrtContext, void*> &&
              std::is_same_v<aclrtEvent, void*> && std::is_same_v<aclrtNotify, void*>);
static_assert(std::is_same_v<aclFloat16, std::uint16_t>);
static_assert(OK == 0);
// Enumerations are int-sized: they travel in int registers and in structs of other people.
static_assert(sizeof(aclDataType) == 4 && sizeof(aclFormat) == 4 && sizeof(aclrtMemMallocPolicy) == 4 &&
              sizeof(aclrtMemcpyKind) == 4 && sizeof(aclSysParamOpt) == 4 && sizeof(aclMemType) == 4 &&
              sizeof(aclrtRunMode) == 4);

struct Number {
    const char* name;
    long long is;
    long long must_be;
};

#define FASCORE_NUMBER(name, value) \
    { #name, static_cast < long long>(name), value }
constexpr Number numbers[] = {
    FASCORE_NUMBER(ACL_DT_UNDEFINED, -1),
    FASCORE_NUMBER(ACL_FLOAT, 0),
    FASCORE_NUMBER(ACL_FLOAT16, 1),
    FASCORE_NUMBER(ACL_INT8, 2),
    FASCORE_NUMBER(ACL_INT32, 3),
    FASCORE_NUMBER(ACL_UINT8, 4),
    FASCORE_NUMBER(ACL_INT16, 6),
    FASCORE_NUMBER(ACL_UINT16, 7),
    FASCORE_NUMBER(ACL_UINT32, 8),
    FASCORE_NUMBER(ACL_INT64, 9),
    FASCORE_NUMBER(ACL_UINT64, 10),
    FASCORE_NUMBER(ACL_DOUBLE, 11),
    FASCORE_NUMBER(ACL_BOOL, 12),
    FASCORE_NUMBER(ACL_STRING, 13),
    FASCORE_NUMBER(ACL_COMPLEX64, 16),
    FASCORE_NUMBER(ACL_COMPLEX128, 17),
    FASCORE_NUMBER(ACL_BF16, 27),
    FASCORE_NUMBER(ACL_INT4, 29),
    FASCORE_NUMBER(ACL_UINT1, 30),
    FASCORE_NUMBER(ACL_COMPLEX32, 33),
    FASCORE_NUMBER(ACL_HIFLOAT8, 34),
    FASCORE_NUMBER(ACL_FLOAT8_E5M2, 35),
    FASCORE_NUMBER(ACL_FLOAT8_E4M3FN, 36),
    FASCORE_NUMBER(ACL_FLOAT8_E8M0, 37),
    FASCORE_NUMBER(ACL_FLOAT6_E3M2, 38),
    FASCORE_NUMBER(ACL_FLOAT6_E2M3, 39),
    FASCORE_NUMBER(ACL_FLOAT4_E2M1, 40),
    FASCORE_NUMBER(ACL_FLOAT4_E1M2, 41),
    FASCORE_NUMBER(ACL_HIFLOAT4, 42),

    FASCORE_NUMBER(ACL_FORMAT_UNDEFINED, -1),
    FASCORE_NUMBER(ACL_FORMAT_NCHW, 0),
    FASCORE_NUMBER(ACL_FORMAT_NHWC, 1),
    FASCORE_NUMBER(ACL_FORMAT_ND, 2),
    FASCORE_NUMBER(ACL_FORMAT_NC1HWC0, 3),
    FASCORE_NUMBER(ACL_FORMAT_FRACTAL_Z, 4),
    FASCORE_NUMBER(ACL_FORMAT_NC1HWC0_C04, 12),
    FASCORE_NUMBER(ACL_FORMAT_HWCN, 16),
    FASCORE_NUMBER(ACL_FORMAT_NDHWC, 27),
    FASCORE_NUMBER(ACL_FORMAT_FRACTAL_NZ, 29),
    FASCORE_NUMBER(ACL_FORMAT_NCDHW, 30),
    FASCORE_NUMBER(ACL_FORMAT_NDC1HWC0, 32),
    FASCORE_NUMBER(ACL_FRACTAL_Z_3D, 33),
    FASCORE_NUMBER(ACL_FORMAT_NC, 35),
    FASCORE_NUMBER(ACL_FORMAT_NCL, 47),
    FASCORE_NUMBER(ACL_FORMAT_FRACTAL_NZ_C0_16, 50),
    FASCORE_NUMBER(ACL_FORMAT_FRACTAL_NZ_C0_32, 51),
    FASCORE_NUMBER(ACL_FORMAT_FRACTAL_NZ_C0_2, 52),
    FASCORE_NUMBER(ACL_FORMAT_FRACTAL_NZ_C0_4, 53),
    FASCORE_NUMBER(ACL_FORMAT_FRACTAL_NZ_C0_8, 54),

    FASCORE_NUMBER(ACL_MEM_MALLOC_HUGE_FIRST, 0),
    FASCORE_NUMBER(ACL_MEM_MALLOC_HUGE_ONLY, 1),
    FASCORE_NUMBER(ACL_MEM_MALLOC_NORMAL_ONLY, 2),
    FASCORE_NUMBER(ACL_MEM_MALLOC_HUGE_FIRST_P2P, 3),
    FASCORE_NUMBER(ACL_MEM_MALLOC_HUGE_ONLY_P2P, 4),
    FASCORE_NUMBER(ACL_MEM_MALLOC_NORMAL_ONLY_P2P, 5),
    FASCORE_NUMBER(ACL_MEM_MALLOC_HUGE1G_ONLY, 6),
    FASCORE_NUMBER(ACL_MEM_MALLOC_HUGE1G_ONLY_P2P, 7),
    FASCORE_NUMBER(ACL_MEM_TYPE_LOW_BAND_WIDTH, 0x0100),
    FASCORE_NUMBER(ACL_MEM_TYPE_HIGH_BAND_WIDTH, 0x1000),
    FASCORE_NUMBER(ACL_MEM_ACCESS_USER_SPACE_READONLY, 0x100000),

    FASCORE_NUMBER(ACL_MEMCPY_HOST_TO_HOST, 0),
    FASCORE_NUMBER(ACL_MEMCPY_HOST_TO_DEVICE, 1),
    FASCORE_NUMBER(ACL_MEMCPY_DEVICE_TO_HOST, 2),
    FASCORE_NUMBER(ACL_MEMCPY_DEVICE_TO_DEVICE, 3),
    FASCORE_NUMBER(ACL_MEMCPY_DEFAULT, 4),
    FASCORE_NUMBER(ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, 5),
    FASCORE_NUMBER(ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, 6),
    FASCORE_NUMBER(ACL_MEMCPY_INTER_DEVICE_TO_DEVICE, 7),
    FASCORE_NUMBER(ACL_OPT_DETERMINISTIC, 0),
    FASCORE_NUMBER(ACL_OPT_ENABLE_DEBUG_KERNEL, 1),
    FASCORE_NUMBER(ACL_MEMTYPE_DEVICE, 0),
    FASCORE_NUMBER(ACL_MEMTYPE_HOST, 1),
    FASCORE_NUMBER(ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT, 2),
    FASCORE_NUMBER(ACL_DEVICE, 0),
    FASCORE_NUMBER(ACL_HOST, 1),

    FASCORE_NUMBER(ACL_SUCCESS, 0),
    FASCORE_NUMBER(ACL_ERROR_NONE, 0),
    FASCORE_NUMBER(ACL_ERROR_INVALID_PARAM, 100000),
    FASCORE_NUMBER(ACL_ERROR_UNINITIALIZE, 100001),
    FASCORE_NUMBER(ACL_ERROR_REPEAT_INITIALIZE, 100002),
    FASCORE_NUMBER(ACL_ERROR_INVALID_FILE, 100003),
    FASCORE_NUMBER(ACL_ERROR_UNSUPPORTED_DATA_TYPE, 100026),
    FASCORE_NUMBER(ACL_ERROR_FORMAT_NOT_MATCH, 100027),
    FASCORE_NUMBER(ACL_ERROR_REPEAT_FINALIZE, 100037),
    FASCORE_NUMBER(ACL_ERROR_BAD_ALLOC, 200000),
    FASCORE_NUMBER(ACL_ERROR_API_NOT_SUPPORT, 200001),
    FASCORE_NUMBER(ACL_ERROR_INVALID_DEVICE, 200002),
    FASCORE_NUMBER(ACL_ERROR_MEMORY_ADDRESS_UNALIGNED, 200003),
    FASCORE_NUMBER(ACL_ERROR_RESOURCE_NOT_MATCH, 200004),
    FASCORE_NUMBER(ACL_ERROR_INVALID_RESOURCE_HANDLE, 200005),
    FASCORE_NUMBER(ACL_ERROR_FEATURE_UNSUPPORTED, 200006),
    FASCORE_NUMBER(ACL_ERROR_STORAGE_OVER_LIMIT, 300000),
    FASCORE_NUMBER(ACL_ERROR_INTERNAL_ERROR, 500000),
    FASCORE_NUMBER(ACL_ERROR_FAILURE, 500001),
    FASCORE_NUMBER(ACL_ERROR_GE_FAILURE, 500002),
    FASCORE_NUMBER(ACL_ERROR_RT_FAILURE, 500003),
    FASCORE_NUMBER(ACL_ERROR_DRV_FAILURE, 500004),
    FASCORE_NUMBER(ACL_ERROR_PROFILING_FAILURE, 500005),

    FASCORE_NUMBER(ACLNN_SUCCESS, 0),
    FASCORE_NUMBER(ACLNN_ERR_PARAM_NULLPTR, 161001),
    FASCORE_NUMBER(ACLNN_ERR_PARAM_INVALID, 161002),
    FASCORE_NUMBER(ACLNN_ERR_RUNTIME_ERROR, 361001),
    FASCORE_NUMBER(ACLNN_ERR_INNER, 561000),
    FASCORE_NUMBER(ACLNN_ERR_INNER_INFERSHAPE_ERROR, 561001),
    FASCORE_NUMBER(ACLNN_ERR_INNER_TILING_ERROR, 561002),
    FASCORE_NUMBER(ACLNN_ERR_INNER_FIND_KERNEL_ERROR, 561003),
    FASCORE_NUMBER(ACLNN_ERR_INNER_CREATE_EXECUTOR, 561101),
    FASCORE_NUMBER(ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR, 561102),
    FASCORE_NUMBER(ACLNN_ERR_INNER_NULLPTR, 561103),
    FASCORE_NUMBER(ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE, 561104),
    FASCORE_NUMBER(ACLNN_ERR_INNER_KEY_CONFILICT, 561105),
    FASCORE_NUMBER(ACLNN_ERR_INNER_INVALID_IMPL_MODE, 561106),
    FASCORE_NUMBER(ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND, 561107),
    FASCORE_NUMBER(ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID, 561119),
};
#undef FASCORE_NUMBER

TEST(Abi, NumbersAreThoseOfTheInterface) {
    for (const Number& number : numbers) EXPECT_EQ(number.is, number.must_be) << number.name;
}

TEST(Abi, ScopedEnumeratorsCompile) {
    EXPECT_EQ(static_cast<int>(aclDataType::ACL_FLOAT), 0);
    EXPECT_EQ(static_cast<int>(aclFormat::ACL_FORMAT_ND), 2);
}

// What phase two looks like is the same for every version: one pointer type holds them all.
TEST(Abi, SecondPhasesHaveOneType) {
    using SecondPhase = aclnnStatus (*)(void*, std::uint64_t, aclOpExecutor*, aclrtStream);
    const SecondPhase all[] = {
        aclnnFlashAttentionScore,
        aclnnFlashAttentionScoreV2,
        aclnnFlashAttentionScoreV3,
        aclnnFlashAttentionScoreV4,
        aclnnFlashAttentionVarLenScore,
        aclnnFlashAttentionVarLenScoreV2,
        aclnnFlashAttentionVarLenScoreV3,
        aclnnFlashAttentionVarLenScoreV4,
        aclnnFlashAttentionVarLenScoreV5,
        aclnnQuantFlashAttentionScore,
        aclnnFlashAttentionScoreGrad,
        aclnnFlashAttentionScoreGradV2,
        aclnnFlashAttentionScoreGradV3,
        aclnnFlashAttentionScoreGradV4,
        aclnnFlashAttentionUnpaddingScoreGrad,
        aclnnFlashAttentionUnpaddingScoreGradV2,
        aclnnFlashAttentionUnpaddingScoreGradV3,
        aclnnFlashAttentionUnpaddingScoreGradV4,
        aclnnFlashAttentionUnpaddingScoreGradV5,
        aclnnQuantFlashAttentionScoreGrad,
    };
    for (const SecondPhase phase : all) EXPECT_EQ(phase(nullptr, 0, nullptr, nullptr), 161001);
}

// The parameter counts of the first phases, both trailing ones included, as the interface lists them.
template <class... Parameters>
constexpr std::size_t parameters(aclnnStatus (*)(Parameters...)) {
    return sizeof...(Parameters);
}
static_assert(parameters(aclnnFlashAttentionScoreGetWorkspaceSize) == 22);
static_assert(parameters(aclnnFlashAttentionScoreV2GetWorkspaceSize) == 25);
static_assert(parameters(aclnnFlashAttentionScoreV3GetWorkspaceSize) == 26);
static_assert(parameters(aclnnFlashAttentionScoreV4GetWorkspaceSize) == 37);
static_assert(parameters(aclnnFlashAttentionVarLenScoreGetWorkspaceSize) == 24);
static_assert(parameters(aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize) == 27);
static_assert(parameters(aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize) == 29);
static_assert(parameters(aclnnFlashAttentionVarLenScoreV4GetWorkspaceSize) == 25);
static_assert(parameters(aclnnFlashAttentionVarLenScoreV5GetWorkspaceSize) == 31);
static_assert(parameters(aclnnQuantFlashAttentionScoreGetWorkspaceSize) == 20);
static_assert(parameters(aclnnFlashAttentionScoreGradGetWorkspaceSize) == 27);
static_assert(parameters(aclnnFlashAttentionScoreGradV2GetWorkspaceSize) == 30);
static_assert(parameters(aclnnFlashAttentionScoreGradV3GetWorkspaceSize) == 32);
static_assert(parameters(aclnnFlashAttentionScoreGradV4GetWorkspaceSize) == 47);
static_assert(parameters(aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize) == 29);
static_assert(parameters(aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize) == 32);
static_assert(parameters(aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize) == 36);
static_assert(parameters(aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize) == 30);
static_assert(parameters(aclnnFlashAttentionUnpaddingScoreGradV5GetWorkspaceSize) == 39);
static_assert(parameters(aclnnQuantFlashAttentionScoreGradGetWorkspaceSize) == 26);

TEST(Abi, HeadersAreC11) { EXPECT_EQ(fascore_c11_program(), 0); }

}  // namespace
