// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <unistd.h>

#include <chrono>
#include <utility>
#include <vector>

#include "fascore/info.h"
#include "registry.h"

namespace fascore::aclnn {

namespace {

using Clock = std::chrono::steady_clock;

// How long a caller looks on, while the stream's thread works, before it sleeps: waking up takes as long again.
constexpr std::chrono::microseconds look_on{20};

// True as soon as ready() is; false after look_on. Gives way to the thread it waits for where they share a core.
template <class Ready>
bool soon(const Ready& ready) {
    const Clock::time_point end = Clock::now() + look_on;
    do {
        if (ready()) return true;
        std::this_thread::yield();
    } while (Clock::now() < end);
    return ready();
}

Registry<std::shared_ptr<Stream>>& streams() {
    static auto* const kept = new Registry<std::shared_ptr<Stream>>(Kind::stream);
    return *kept;
}

const std::shared_ptr<Stream>& default_stream() {
    static auto* const kept = new std::shared_ptr<Stream>(std::make_shared<Stream>());
    return *kept;
}

std::vector<std::shared_ptr<Stream>> all_streams() {
    std::vector<std::shared_ptr<Stream>> all{default_stream()};
    streams().for_each([&](const std::shared_ptr<Stream>& stream) { all.push_back(stream); });
    return all;
}

// A program may end without destroying its streams, even while they work. Their threads must be gone before the
// variables they use are: those of the library below are made first (and so destroyed last). A forked child has no
// such threads.
class StopAtExit {
  public:
    StopAtExit() : process_(getpid()) {
        int threads = 0;
        std::string isa;
        std::string why;
        static_cast<void>(default_threads(threads));
        static_cast<void>(select_isa({}, isa, why));
    }
    StopAtExit(const StopAtExit&) = delete;
    StopAtExit& operator=(const StopAtExit&) = delete;
    ~StopAtExit() {
        if (getpid() != process_) return;
        for (const std::shared_ptr<Stream>& stream : all_streams()) stream->close(Stream::Closing::drop);
    }

  private:
    pid_t process_;
};

}  // namespace

Stream::~Stream() { close(Closing::drop); }

bool Stream::enqueue(Work work) {
    static const StopAtExit stop_at_exit;
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    queue_.push_back(std::move(work));
    if (!thread_.joinable()) {
        try {
            thread_ = std::thread(&Stream::work, this);
        } catch (...) {
            queue_.pop_back();
            throw;
        }
    }
    ++enqueued_;
    if (!running_) arrived_.notify_one();
    return true;
}

// The lock is held before and after, not while the work runs.
void Stream::run_next(std::unique_lock<std::mutex>& lock) {
    const Work next = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    Verdict verdict;
    try {
        verdict = next(cancel_);
    } catch (...) {
        verdict = {ACL_ERROR_BAD_ALLOC, "the system has no memory for it"};
    }
    lock.lock();
    running_ = false;
    if (!verdict.ok() && failure_.ok()) failure_ = std::move(verdict);
    finished_.fetch_add(1, std::memory_order_release);
    done_.notify_all();
    if (can_run() || closed_) arrived_.notify_one();
}

void Stream::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        arrived_.wait(lock, [&] { return can_run() || (closed_ && queue_.empty() && !running_); });
        if (!can_run()) return;
        run_next(lock);
    }
}

std::optional<Verdict> Stream::wait(std::int64_t milliseconds) {
    std::unique_lock lock(mutex_);
    const std::uint64_t goal = enqueued_;
    const auto finished = [&] { return finished_.load(std::memory_order_acquire) >= goal; };
    if (milliseconds >= 0) {
        if (!done_.wait_for(lock, std::chrono::milliseconds(milliseconds), finished)) return std::nullopt;
    }
    while (!finished()) {
        if (can_run()) {
            run_next(lock);
            continue;
        }
        lock.unlock();
        const bool early = soon(finished);
        lock.lock();
        if (!early) done_.wait(lock, [&] { return finished() || can_run(); });
    }
    return std::exchange(failure_, Verdict{});
}

void Stream::close(Closing how) {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        if (how == Closing::drop) {
            cancel_.cancel();
            finished_.fetch_add(queue_.size(), std::memory_order_release);
            queue_.clear();
        }
        arrived_.notify_all();
        done_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Stream> find_stream(aclrtStream stream) {
    if (stream == nullptr) return default_stream();
    std::shared_ptr<Stream> found;
    static_cast<void>(streams().read(stream, found));
    return found;
}

aclrtStream add_stream() { return streams().add(std::make_shared<Stream>()); }

std::shared_ptr<Stream> take_stream(aclrtStream stream) {
    std::shared_ptr<Stream> taken;
    streams().remove_if(stream, [&](std::shared_ptr<Stream>& kept) {
        taken = std::move(kept);
        return true;
    });
    return taken;
}

Verdict wait_for_streams() {
    Verdict first;
    for (const std::shared_ptr<Stream>& stream : all_streams()) {
        std::optional<Verdict> verdict = stream->wait();
        if (first.ok() && verdict) first = std::move(*verdict);
    }
    return first;
}

std::size_t live_streams() { return streams().size(); }

}  // namespace fascore::aclnn
