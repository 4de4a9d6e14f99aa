// SPDX-License-Identifier: Apache-2.0
//
// Threads by OpenMP where the build has it (FASCORE_HAS_OPENMP): its pool keeps threads warm between calls and is the
// one the frameworks around us already run, so that cores are not claimed twice. Otherwise std::thread, started and
// joined within the call. Sanitizers that cannot see into the OpenMP runtime use the second form, and so does a child
// made by fork: the pool's threads stayed with its parent, and the runtime would wait for them for ever.
#include "base/parallel.h"

#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>

#include <cerrno>
#endif
#if defined(FASCORE_HAS_OPENMP)
#include <omp.h>
#include <pthread.h>
#endif

namespace fascore {

namespace {

#if defined(__linux__)
// CPUs of this process's affinity mask; 0 when the system does not say. The kernel refuses a set smaller than its
// own, so the set is doubled until it fits.
int affinity_count() noexcept {
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
        if (set == nullptr) return 0;
        const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
        CPU_ZERO_S(bytes, set);
        const int failed = sched_getaffinity(0, bytes, set);
        const int reason = errno;
        const int count = failed == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (failed == 0) return count;
        if (reason != EINVAL) return 0;
    }
    return 0;
}
#else
int affinity_count() noexcept { return 0; }
#endif

void run_own_threads(int threads, void (*body)(void* context, int member), void* context) noexcept {
    std::vector<std::thread> others;
    try {
        others.reserve(static_cast<std::size_t>(threads - 1));
        for (int member = 1; member < threads; ++member) others.emplace_back(body, context, member);
    } catch (...) {
        // The system has no more threads (or memory) to give: the members that came do the work.
    }
    body(context, 0);
    for (std::thread& other : others) other.join();
}

#if defined(FASCORE_HAS_OPENMP)
// Set in a child of fork. Whoever made the pool, ours or another library's call, so this is known from the start on.
bool forked = false;
[[maybe_unused]] const bool watching = pthread_atfork(nullptr, nullptr, [] { forked = true; }) == 0;
#endif

}  // namespace

int hardware_threads() noexcept {
    int count = affinity_count();
    if (count < 1) count = static_cast<int>(std::thread::hardware_concurrency());
    return count < 1 ? 1 : count;
}

void run_team(int threads, void (*body)(void* context, int member), void* context) noexcept {
    if (threads <= 1) {
        body(context, 0);
        return;
    }
#if defined(FASCORE_HAS_OPENMP)
    if (!forked) {
#pragma omp parallel num_threads(threads)
        body(context, omp_get_thread_num());
        return;
    }
#endif
    run_own_threads(threads, body, context);
}

void spin_pause(int round) noexcept {
    // For some tens of turns the other side is probably running and about to finish: stay on the core. After that it
    // may be waiting for this very core.
    constexpr int patient_rounds = 64;
    if (round >= patient_rounds) {
        std::this_thread::yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace fascore
