// SPDX-License-Identifier: Apache-2.0
//
// An outside program, built against an installed or embedded fascore with strict warnings as errors. With query 0 every
// pair of a row weighs the same, so the answers are plain averages:
//
//   attention_out = mean of value rows = 2        dv = Σ_i dy[i] / S2 = (1 + 3) / 2 = 2        dq = scale · Σ_j dS key
#include <cmath>
#include <cstdio>

#include "fascore/fascore.h"

int main() {
    const float query[2] = {0, 0};
    const float key[2] = {1, -1};
    const float value[2] = {1, 3};
    const float dy[2] = {1, 3};
    float out[2] = {-1, -1};
    float dq[2] = {-1, -1};
    float dk[2] = {-1, -1};
    float dv[2] = {-1, -1};
    float softmax_max[2] = {};
    float softmax_sum[2] = {};
    const auto data = [](auto* memory) { return fascore::ConstTensorView(memory, fascore::DType::f32, {1, 1, 2, 1}); };
    const auto result = [](float* memory) { return fascore::TensorView(memory, fascore::DType::f32, {1, 1, 2, 1}); };
    const auto statistic = [](float* memory) { return fascore::TensorView(memory, fascore::DType::f32, {1, 1, 2}); };

    fascore::BackwardInputs in;
    in.query = data(query);
    in.key = data(key);
    in.value = data(value);
    in.dy = data(dy);
    in.softmax_max = statistic(softmax_max);
    in.softmax_sum = statistic(softmax_sum);
    in.attention_out = result(out);
    fascore::Status status =
        fascore::attention_forward({}, {in}, {result(out), statistic(softmax_max), statistic(softmax_sum)});
    if (!status.ok()) {
        std::fprintf(stderr, "forward: %s\n", status.message().c_str());
        return 1;
    }
    status = fascore::attention_backward({}, in, {result(dq), result(dk), result(dv)});
    if (!status.ok()) {
        std::fprintf(stderr, "backward: %s\n", status.message().c_str());
        return 1;
    }
    // dS(i,j) = P (dP − dy·out) = ½ · dy[i] · (value[j] − 2), so dq[i] = ½ · dy[i] · (−1 · 1 + 1 · −1) = −dy[i].
    const float wanted[8] = {2, 2, -1, -3, 0, 0, 2, 2};
    const float got[8] = {out[0], out[1], dq[0], dq[1], dk[0], dk[1], dv[0], dv[1]};
    for (int i = 0; i < 8; ++i) {
        if (!(std::fabs(got[i] - wanted[i]) <= 1e-6F)) {
            std::fprintf(stderr, "value %d is %g, must be %g\n", i, static_cast<double>(got[i]),
                         static_cast<double>(wanted[i]));
            return 1;
        }
    }
    std::printf("fascore %d.%d.%d: ok\n", fascore::version_major, fascore::version_minor, fascore::version_patch);
    return 0;
}
