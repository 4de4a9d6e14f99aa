// SPDX-License-Identifier: Apache-2.0
//
// A long call that one can watch and stop. The progress callback runs in the calling thread and draws a percentage; the
// cancel token is set from another thread, as a button or a signal handler would. The call returns within a tile with
// StatusCode::cancelled, and the same workspace and token serve the next call.
//
//   1  a run that is stopped     by a thread that waits until a tenth of the work is done
//   2  a run that is not         to its end, 100 %
//
// A call that is over in a blink could finish before the other thread has had its turn. So in run 1 the callback waits
// for it, and the example comes out the same on any machine; a real callback would just return.
#include <fascore/fascore.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstddef>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr double stop_at = 0.1;

/// What the callback leaves for the other thread.
struct Watch {
    std::atomic<double> share{0};
    std::int64_t last_percent = -1;
    const fascore::CancelToken* wait_for = nullptr;  // run 1: hold the callback until this is set
};

void on_progress(void* context, std::int64_t done, std::int64_t total) {
    Watch& watch = *static_cast<Watch*>(context);
    watch.share = double(done) / double(total);
    const std::int64_t percent = 100 * done / total;
    if (watch.last_percent < 0 || percent / 10 > watch.last_percent / 10) {
        watch.last_percent = percent;
        std::printf(" %lld%%", static_cast<long long>(percent));
        std::fflush(stdout);
    }
    while (watch.wait_for != nullptr && watch.share >= stop_at && !watch.wait_for->cancelled())
        std::this_thread::yield();
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

int main() {
    using fascore::DType, fascore::ConstTensorView, fascore::TensorView;
    constexpr std::int64_t B = 1, N = 4, S = 2048, D = 64;
    constexpr auto f32 = DType::f32;
    constexpr std::size_t count = B * N * S * D;

    // Statistics are taken as given, so a gradient needs no forward before it; these numbers mean nothing.
    std::vector<float> query(count), key(count), value(count), dy(count), attention_out(count), dq(count), dk(count),
        dv(count), softmax_max(B * N * S, 1.0F), softmax_sum(B * N * S, float(S));
    for (std::size_t i = 0; i < count; ++i) {
        query[i] = float(std::sin(0.1 * double(i)));
        key[i] = float(std::sin(0.2 * double(i % 7919)));
        value[i] = dy[i] = float(std::cos(0.3 * double(i)));
    }
    fascore::AttentionParams params;
    params.scale = 1 / std::sqrt(double(D));
    fascore::BackwardInputs in;
    in.query = ConstTensorView(query.data(), f32, {B, N, S, D});
    in.key = ConstTensorView(key.data(), f32, {B, N, S, D});
    in.value = ConstTensorView(value.data(), f32, {B, N, S, D});
    in.dy = ConstTensorView(dy.data(), f32, {B, N, S, D});
    in.attention_out = ConstTensorView(attention_out.data(), f32, {B, N, S, D});
    in.softmax_max = ConstTensorView(softmax_max.data(), f32, {B, N, S});
    in.softmax_sum = ConstTensorView(softmax_sum.data(), f32, {B, N, S});
    fascore::BackwardOutputs out;
    out.dq = TensorView(dq.data(), f32, {B, N, S, D});
    out.dk = TensorView(dk.data(), f32, {B, N, S, D});
    out.dv = TensorView(dv.data(), f32, {B, N, S, D});

    Watch watch;
    fascore::CancelToken token;
    fascore::Execution execution;
    execution.cancel = &token;
    execution.progress = {on_progress, &watch};

    std::size_t bytes = 0;
    fascore::Status status = fascore::backward_workspace_bytes(params, in, out, execution, bytes);
    std::vector<std::byte> workspace(bytes);

    // 1. Stopped as soon as a tenth is done.
    std::printf("to be stopped:");
    watch.wait_for = &token;
    std::atomic<bool> finished{false};
    Clock::time_point asked{};
    std::thread stopper([&] {
        while (watch.share < stop_at && !finished) std::this_thread::yield();
        asked = Clock::now();
        token.cancel();
    });
    if (status.ok()) status = fascore::attention_backward(params, in, out, execution, workspace);
    const Clock::time_point returned = Clock::now();
    finished = true;
    stopper.join();
    const double waited = std::chrono::duration<double>(returned - asked).count();
    std::printf("\n  %s, %.1f ms after the request, %.0f %% done\n", std::string(fascore::name(status.code())).c_str(),
                1000 * waited, 100 * watch.share);
    if (status.code() != fascore::StatusCode::cancelled) {
        std::fprintf(stderr, "watch_and_stop: expected a cancelled call, got: %s\n", status.message().c_str());
        return 1;
    }

    // 2. The same call again, now left alone.
    std::printf("left alone:");
    token.reset();
    watch.wait_for = nullptr;
    watch.share = 0;
    watch.last_percent = -1;
    const Clock::time_point start = Clock::now();
    status = fascore::attention_backward(params, in, out, execution, workspace);
    std::printf("\n  %s after %.0f ms, %.0f %% done\n", std::string(fascore::name(status.code())).c_str(),
                1000 * seconds_since(start), 100 * watch.share);
    return status.ok() && watch.share == 1 ? 0 : 1;
}
