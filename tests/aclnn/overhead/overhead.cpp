// SPDX-License-Identifier: Apache-2.0
//
// What the C interface costs over the C++ call: both phases, the hand-over to the stream's thread and back, against
// attention_backward with a workspace. Not a test: a time depends on the machine. The smallest of many rounds counts,
// for other programs only ever add to it.
//
//   overhead = (first phase + second phase + synchronize) − attention_backward        target: below 20 µs
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "fascore/fascore.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t S = 16, N = 1, D = 64;
constexpr int rounds = 20000;

double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

[[noreturn]] void fail(const char* what) {
    const char* text = aclGetRecentErrMsg();
    std::fprintf(stderr, "%s failed\n%s\n", what, text == nullptr ? "" : text);
    std::exit(1);
}

}  // namespace

int main() {
    std::vector<float> data[8];
    for (std::vector<float>& values : data) values.assign(S * N * D, 1.0F);
    std::vector<float> statistics(N * S * 8, 3.0F);
    const std::int64_t shape[] = {1, N, S, D}, statistics_shape[] = {1, N, S, 8};
    const auto tensor = [&](std::vector<float>& values, const std::int64_t* extents) {
        return aclCreateTensor(extents, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, extents, 4, values.data());
    };
    aclTensor* t[8];
    for (int k = 0; k < 8; ++k) t[k] = tensor(data[k], shape);
    aclTensor* statistic = tensor(statistics, statistics_shape);

    fascore::AttentionParams params;
    fascore::BackwardInputs in;
    fascore::BackwardOutputs out;
    const auto view = [&](std::vector<float>& values) {
        return fascore::TensorView(values.data(), fascore::DType::f32, {1, N, S, D});
    };
    in.query = view(data[0]);
    in.key = view(data[1]);
    in.value = view(data[2]);
    in.dy = view(data[3]);
    in.attention_out = view(data[4]);
    in.softmax_max = in.softmax_sum = fascore::ConstTensorView(statistics.data(), fascore::DType::f32, {1, N, S, 8});
    out.dq = view(data[5]);
    out.dk = view(data[6]);
    out.dv = view(data[7]);
    std::size_t bytes = 0;
    if (!fascore::backward_workspace_bytes(params, in, out, {}, bytes).ok()) fail("backward_workspace_bytes");
    std::vector<std::byte> workspace(bytes);

    aclrtStream stream = nullptr;
    if (aclrtCreateStream(&stream) != 0) fail("aclrtCreateStream");
    char layout[] = "BNSD";
    double cxx = 1e9, first = 1e9, second = 1e9, both = 1e9;
    for (int round = 0; round < rounds; ++round) {
        const Clock::time_point a = Clock::now();
        if (!fascore::attention_backward(params, in, out, {}, workspace).ok()) fail("attention_backward");
        const Clock::time_point b = Clock::now();
        std::uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        if (aclnnFlashAttentionScoreGradV2GetWorkspaceSize(t[0], t[1], t[2], t[3], nullptr, nullptr, nullptr, nullptr,
                                                           statistic, statistic, nullptr, t[4], nullptr, nullptr,
                                                           nullptr, 1.0, 1.0, 2147483647, 2147483647, N, layout, 0, 0,
                                                           1, t[5], t[6], t[7], nullptr, &size, &executor) != 0) {
            fail("first phase");
        }
        const Clock::time_point c = Clock::now();
        if (aclnnFlashAttentionScoreGradV2(workspace.data(), workspace.size(), executor, stream) != 0)
            fail("second phase");
        const Clock::time_point d = Clock::now();
        if (aclrtSynchronizeStream(stream) != 0) fail("aclrtSynchronizeStream");
        const Clock::time_point e = Clock::now();
        cxx = std::min(cxx, microseconds(b - a));
        first = std::min(first, microseconds(c - b));
        second = std::min(second, microseconds(d - c));
        both = std::min(both, microseconds(e - b));
    }
    std::printf(
        "C++ call %.1f us; C: first phase %.1f, second phase %.1f, all until synchronised %.1f; overhead %.1f us\n",
        cxx, first, second, both, both - cxx);
    return 0;
}
