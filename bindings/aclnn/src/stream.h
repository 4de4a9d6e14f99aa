// SPDX-License-Identifier: Apache-2.0
//
// A stream: a queue and a thread that empties it in order.
//
//   caller   enqueue ── enqueue ────────── wait ─────────── first failure since the last wait
//                │          │                ↑
//   thread       └── run ───┴── run ──── all done
//
// Whoever waits helps: work that the thread has not begun is run by the waiting caller itself, still one piece at a
// time and in order. Enqueue-and-wait, what most programs do, then costs no hand-over to another thread and back, which
// takes longer (10 to 50 µs) than a small attention call. A failed piece of work does not stop those behind it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "acl/acl_base.h"
#include "fascore/attention.h"
#include "report.h"

namespace fascore::aclnn {

class Stream {
  public:
    /// What runs in the stream. It may be told to stop; its failure is kept for the next wait.
    using Work = std::function<Verdict(const CancelToken&)>;

    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream();

    /// The thread starts with the first piece of work. False when the stream is closed.
    [[nodiscard]] bool enqueue(Work work);

    /// Waits until everything enqueued before this call is done, at most `milliseconds` (negative: for ever; only then
    /// it helps): the first failure since it was last asked for, or nothing when time ran out.
    [[nodiscard]] std::optional<Verdict> wait(std::int64_t milliseconds = -1);

    /// finish: runs what is queued. drop: stops what runs, drops what is queued. Then ends the thread.
    enum class Closing : std::uint8_t { finish, drop };
    void close(Closing how);

  private:
    [[nodiscard]] bool can_run() const { return !running_ && !queue_.empty(); }
    void run_next(std::unique_lock<std::mutex>& lock);
    void work();

    std::mutex mutex_;
    std::condition_variable arrived_;  // for the thread: there is work it may run, or the stream is closed
    std::condition_variable done_;     // for those who wait: a piece is finished
    std::deque<Work> queue_;
    std::uint64_t enqueued_ = 0;
    std::atomic<std::uint64_t> finished_{0};  // written under the mutex
    bool running_ = false;                    // somebody runs a piece
    bool closed_ = false;
    Verdict failure_;
    CancelToken cancel_;
    std::thread thread_;
};

/// The stream a handle stands for; null is the default stream; an empty pointer when the handle is not alive.
[[nodiscard]] std::shared_ptr<Stream> find_stream(aclrtStream stream);

[[nodiscard]] aclrtStream add_stream();
/// Removes the handle; the stream is the caller's to close. Empty when the handle is not alive.
[[nodiscard]] std::shared_ptr<Stream> take_stream(aclrtStream stream);

/// Waits for every stream; the first failure among them.
[[nodiscard]] Verdict wait_for_streams();

[[nodiscard]] std::size_t live_streams();

}  // namespace fascore::aclnn
