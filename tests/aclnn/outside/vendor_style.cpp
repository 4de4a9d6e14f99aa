// SPDX-License-Identifier: Apache-2.0
//
// A C++11 program as programs for the accelerator are written: host vectors copied to device memory, scoped
// enumerators, explicit strides, two phases, statistics that are all 3.0, FP16. Every gradient version (SBH; TND for
// those that take packed sequences) must print finite results equal to the formulas with those statistics.
#include <climits>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"

#define CHECK_RET(cond, return_expr) \
    do {                             \
        if (!(cond)) {               \
            return_expr;             \
        }                            \
    } while (0)

namespace {

int64_t ShapeSize(const std::vector<int64_t>& shape) {
    int64_t size = 1;
    for (auto extent : shape) size *= extent;
    return size;
}

template <typename T>
int CreateTensor(const std::vector<T>& host, const std::vector<int64_t>& shape, void** device, aclDataType type,
                 aclTensor** tensor) {
    auto size = static_cast<size_t>(ShapeSize(shape)) * sizeof(T);
    auto ret = aclrtMalloc(device, size, ACL_MEM_MALLOC_HUGE_FIRST);
    CHECK_RET(ret == ACL_SUCCESS, return ret);
    ret = aclrtMemcpy(*device, size, host.data(), size, ACL_MEMCPY_HOST_TO_DEVICE);
    CHECK_RET(ret == ACL_SUCCESS, return ret);
    std::vector<int64_t> strides(shape.size(), 1);
    for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; i--) {
        strides[static_cast<size_t>(i)] = shape[static_cast<size_t>(i) + 1] * strides[static_cast<size_t>(i) + 1];
    }
    *tensor = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, aclFormat::ACL_FORMAT_ND,
                              shape.data(), shape.size(), *device);
    return *tensor == nullptr ? 1 : 0;
}

constexpr int64_t S = 96, N = 2, D = 64;

// What every version is given.
struct Tensors {
    aclTensor *q, *k, *v, *dy, *max, *sum, *attention, *dq, *dk, *dv;
    aclIntArray *prefix, *start, *lengths;
};

struct Version {
    const char* name;
    bool packed;
    std::function<aclnnStatus(const Tensors&, char*, char*, uint64_t*, aclOpExecutor**)> phase1;
    aclnnStatus (*phase2)(void*, uint64_t, aclOpExecutor*, aclrtStream);
};

const double kScale = 0.125;

std::vector<Version> Versions() {
    return {
        {"V1", false,
         [](const Tensors& t, char* layout, char*, uint64_t* size, aclOpExecutor** executor) {
             return aclnnFlashAttentionScoreGradGetWorkspaceSize(
                 t.q, t.k, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr, t.attention, t.prefix,
                 kScale, 1.0, INT32_MAX, INT32_MAX, N, layout, 0, 0, t.dq, t.dk, t.dv, nullptr, size, executor);
         },
         aclnnFlashAttentionScoreGrad},
        {"V2", false,
         [](const Tensors& t, char* layout, char*, uint64_t* size, aclOpExecutor** executor) {
             return aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
                 t.q, t.k, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr, t.attention, t.prefix,
                 t.start, t.start, kScale, 1.0, 65536, 65536, N, layout, 0, 0, 1, t.dq, t.dk, t.dv, nullptr, size,
                 executor);
         },
         aclnnFlashAttentionScoreGradV2},
        {"V3", false,
         [](const Tensors& t, char* layout, char*, uint64_t* size, aclOpExecutor** executor) {
             return aclnnFlashAttentionScoreGradV3GetWorkspaceSize(
                 t.q, t.k, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr, t.attention, nullptr,
                 t.prefix, t.start, t.start, kScale, 1.0, INT32_MAX, INT32_MAX, N, layout, 0, 0, 1, t.dq, t.dk, t.dv,
                 nullptr, nullptr, size, executor);
         },
         aclnnFlashAttentionScoreGradV3},
        {"V4", false,
         [](const Tensors& t, char* layout, char*, uint64_t* size, aclOpExecutor** executor) {
             char order[] = "";
             return aclnnFlashAttentionScoreGradV4GetWorkspaceSize(
                 t.q, t.k, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr, t.attention, nullptr,
                 nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, t.prefix, nullptr, nullptr, t.start,
                 t.start, kScale, 1.0, INT32_MAX, INT32_MAX, N, layout, order, 0, 0, 1, 0, 0, 0, t.dq, t.dk, t.dv,
                 nullptr, nullptr, nullptr, nullptr, size, executor);
         },
         aclnnFlashAttentionScoreGradV4},
        {"Unpadding V1", true,
         [](const Tensors& t, char* layout, char*, uint64_t* size, aclOpExecutor** executor) {
             return aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
                 t.q, t.k, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr, t.attention, t.prefix,
                 t.lengths, t.lengths, kScale, 1.0, INT32_MAX, INT32_MAX, N, layout, 0, 0, t.dq, t.dk, t.dv, nullptr,
                 size, executor);
         },
         aclnnFlashAttentionUnpaddingScoreGrad},
        {"Unpadding V2", true,
         [](const Tensors& t, char* layout, char*, uint64_t* size, aclOpExecutor** executor) {
             return aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
                 t.q, t.k, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr, t.attention, t.prefix,
                 t.lengths, t.lengths, t.start, t.start, kScale, 1.0, INT32_MAX, INT32_MAX, N, layout, 0, 0, 1, t.dq,
                 t.dk, t.dv, nullptr, size, executor);
         },
         aclnnFlashAttentionUnpaddingScoreGradV2},
        {"Unpadding V3", true,
         [](const Tensors& t, char* layout, char*, uint64_t* size, aclOpExecutor** executor) {
             return aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
                 t.q, nullptr, t.k, nullptr, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr,
                 t.attention, t.prefix, t.lengths, t.lengths, t.start, t.start, kScale, 1.0, INT32_MAX, INT32_MAX, N,
                 layout, 0, 0, 1, t.dq, nullptr, t.dk, nullptr, t.dv, nullptr, size, executor);
         },
         aclnnFlashAttentionUnpaddingScoreGradV3},
        {"Unpadding V4", true,
         [](const Tensors& t, char* layout, char* order, uint64_t* size, aclOpExecutor** executor) {
             return aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize(
                 t.q, t.k, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr, t.attention, t.prefix,
                 t.lengths, t.lengths, kScale, 1.0, INT32_MAX, INT32_MAX, N, layout, 0, 0, t.dq, t.dk, t.dv, nullptr,
                 order, size, executor);
         },
         aclnnFlashAttentionUnpaddingScoreGradV4},
        {"Unpadding V5", true,
         [](const Tensors& t, char* layout, char* order, uint64_t* size, aclOpExecutor** executor) {
             return aclnnFlashAttentionUnpaddingScoreGradV5GetWorkspaceSize(
                 t.q, nullptr, t.k, nullptr, t.v, t.dy, nullptr, nullptr, nullptr, nullptr, t.max, t.sum, nullptr,
                 t.attention, nullptr, t.prefix, t.lengths, t.lengths, t.start, t.start, kScale, 1.0, INT32_MAX,
                 INT32_MAX, N, layout, 0, 0, 1, order, t.dq, nullptr, t.dk, nullptr, t.dv, nullptr, nullptr, size,
                 executor);
         },
         aclnnFlashAttentionUnpaddingScoreGradV5},
    };
}

double Wave(int64_t index, double step) {
    return static_cast<double>(
        aclFloat16ToFloat(aclFloatToFloat16(static_cast<float>(std::sin(step * static_cast<double>(index))))));
}

std::vector<aclFloat16> Half(double step) {
    std::vector<aclFloat16> values;
    for (int64_t i = 0; i < S * N * D; ++i) values.push_back(aclFloatToFloat16(static_cast<float>(Wave(i, step))));
    return values;
}

}  // namespace

int main() {
    int32_t deviceId = 0;
    aclrtStream stream;
    aclrtContext context;
    auto ret = aclInit(nullptr);
    CHECK_RET(ret == ACL_SUCCESS, return ret);
    ret = aclrtSetDevice(deviceId);
    CHECK_RET(ret == ACL_SUCCESS, return ret);
    ret = aclrtCreateContext(&context, deviceId);
    CHECK_RET(ret == ACL_SUCCESS, return ret);
    ret = aclrtSetCurrentContext(context);
    CHECK_RET(ret == ACL_SUCCESS, return ret);
    ret = aclrtCreateStream(&stream);
    CHECK_RET(ret == ACL_SUCCESS, return ret);

    // SBH with one batch, [S, 1, N*D], and TND with one sequence, [S, N, D], hold the same numbers.
    const double steps[5] = {0.37, 0.53, 0.71, 0.11, 0.23};  // q, k, v, dy, attention
    std::vector<double> dq(S * N * D, 0), dk(S * N * D, 0), dv(S * N * D, 0);
    for (int64_t n = 0; n < N; ++n) {
        auto at = [&](int which, int64_t s, int64_t d) { return Wave((s * N + n) * D + d, steps[which]); };
        for (int64_t i = 0; i < S; ++i) {
            double delta = 0;
            for (int64_t d = 0; d < D; ++d) delta += at(3, i, d) * at(4, i, d);
            for (int64_t j = 0; j < S; ++j) {
                double x = 0, dp = 0;
                for (int64_t d = 0; d < D; ++d) {
                    x += at(0, i, d) * at(1, j, d);
                    dp += at(3, i, d) * at(2, j, d);
                }
                const double p = std::exp(x * kScale - 3.0) / 3.0, ds = p * (dp - delta) * kScale;
                for (int64_t d = 0; d < D; ++d) {
                    dq[static_cast<size_t>((i * N + n) * D + d)] += ds * at(1, j, d);
                    dk[static_cast<size_t>((j * N + n) * D + d)] += ds * at(0, i, d);
                    dv[static_cast<size_t>((j * N + n) * D + d)] += p * at(3, i, d);
                }
            }
        }
    }

    int failures = 0;
    for (const Version& version : Versions()) {
        const std::vector<int64_t> shape =
            version.packed ? std::vector<int64_t>{S, N, D} : std::vector<int64_t>{S, 1, N * D};
        const std::vector<int64_t> statistics =
            version.packed ? std::vector<int64_t>{S, N, 8} : std::vector<int64_t>{1, N, S, 8};
        const std::vector<float> three(S * N * 8, 3.0f);
        const std::vector<aclFloat16> zero(S * N * D, 0);
        void* memory[10] = {};
        Tensors t = {};
        aclTensor** tensors[10] = {&t.q, &t.k, &t.v, &t.dy, &t.attention, &t.dq, &t.dk, &t.dv, &t.max, &t.sum};
        for (int i = 0; i < 10; ++i) {
            if (i < 8) {
                ret = CreateTensor(i < 5 ? Half(steps[i]) : zero, shape, &memory[i], aclDataType::ACL_FLOAT16,
                                   tensors[i]);
            } else {
                ret = CreateTensor(three, statistics, &memory[i], aclDataType::ACL_FLOAT, tensors[i]);
            }
            CHECK_RET(ret == ACL_SUCCESS, return ret);
        }
        const std::vector<int64_t> none = {0}, length = {S};
        t.prefix = aclCreateIntArray(none.data(), 1);
        t.start = aclCreateIntArray(none.data(), 1);
        t.lengths = aclCreateIntArray(length.data(), 1);

        char layout[5] = {'S', 'B', 'H', 0}, tnd[5] = {'T', 'N', 'D', 0}, order[16] = "same_as_input";
        uint64_t workspaceSize = 0;
        aclOpExecutor* executor;
        ret = version.phase1(t, version.packed ? tnd : layout, order, &workspaceSize, &executor);
        CHECK_RET(ret == ACL_SUCCESS, std::cerr << version.name << " phase 1: " << ret << "\n"
                                                << aclGetRecentErrMsg() << "\n";
                  return ret);
        void* workspace = nullptr;
        if (workspaceSize > 0) {
            ret = aclrtMalloc(&workspace, workspaceSize, ACL_MEM_MALLOC_HUGE_FIRST);
            CHECK_RET(ret == ACL_SUCCESS, return ret);
        }
        ret = version.phase2(workspace, workspaceSize, executor, stream);
        CHECK_RET(ret == ACL_SUCCESS, std::cerr << version.name << " phase 2: " << ret << "\n"; return ret);
        ret = aclrtSynchronizeStream(stream);
        CHECK_RET(ret == ACL_SUCCESS, std::cerr << version.name << " synchronize: " << ret << "\n"; return ret);

        std::cout << version.name;
        const std::vector<double>* expected[3] = {&dq, &dk, &dv};
        for (int i = 0; i < 3; ++i) {
            std::vector<aclFloat16> result(S * N * D, 0);
            ret = aclrtMemcpy(result.data(), result.size() * sizeof(result[0]), memory[5 + i],
                              result.size() * sizeof(result[0]), ACL_MEMCPY_DEVICE_TO_HOST);
            CHECK_RET(ret == ACL_SUCCESS, return ret);
            double off = 0, largest = 0;
            bool finite = true;
            for (size_t k = 0; k < result.size(); ++k) {
                const double value = static_cast<double>(aclFloat16ToFloat(result[k]));
                finite = finite && std::isfinite(value);
                off = std::fmax(off, std::fabs(value - (*expected[i])[k]));
                largest = std::fmax(largest, std::fabs((*expected[i])[k]));
            }
            // FP16: 2^-11 for the result, and as much for terms of the sums that were rounded to it.
            const bool right = finite && off <= largest / 1024;
            failures += right ? 0 : 1;
            std::cout << "  "
                      << (i == 0   ? "dq "
                          : i == 1 ? "dk "
                                   : "dv ")
                      << aclFloat16ToFloat(result[0])
                      << (right    ? ""
                          : finite ? " WRONG"
                                   : " NOT FINITE");
        }
        std::cout << "\n";
        for (int i = 0; i < 10; ++i) {
            aclDestroyTensor(*tensors[i]);
            aclrtFree(memory[i]);
        }
        aclDestroyIntArray(t.prefix);
        aclDestroyIntArray(t.start);
        aclDestroyIntArray(t.lengths);
        if (workspaceSize > 0) aclrtFree(workspace);
    }
    aclrtDestroyStream(stream);
    aclrtDestroyContext(context);
    aclrtResetDevice(deviceId);
    aclFinalize();
    return failures == 0 ? 0 : 1;
}
