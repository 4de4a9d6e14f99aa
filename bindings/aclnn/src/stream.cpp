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

// How long a thread looks on before it sleeps. A sleep and a wake cost some 5 to 50 µs; looking on for longer takes the
// core away from threads that compute.
constexpr std::chrono::microseconds look_on{30};

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// True as soon as ready() is; false after look_on.
template <class Ready>
bool soon(const Ready& ready) {
    if (ready()) return true;
    const Clock::time_point end = Clock::now() + look_on;
    do {
        for (int k = 0; k < 16; ++k) {
            if (ready()) return true;
            pause();
        }
    } while (Clock::now() < end);
    return false;
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
    enqueued_.fetch_add(1, std::memory_order_release);
    if (asleep_) arrived_.notify_one();
    return true;
}

void Stream::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        if (queue_.empty() && !closed_) {
            lock.unlock();
            // Only this thread finishes, so the two differ exactly when there is work.
            const auto something = [&] {
                return enqueued_.load(std::memory_order_acquire) != finished_.load(std::memory_order_relaxed);
            };
            static_cast<void>(soon(something));
            lock.lock();
            asleep_ = true;
            arrived_.wait(lock, [&] { return !queue_.empty() || closed_; });
            asleep_ = false;
        }
        if (queue_.empty()) return;
        const Work next = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        Verdict verdict;
        try {
            verdict = next(cancel_);
        } catch (...) {
            verdict = {ACL_ERROR_BAD_ALLOC, "the system has no memory for it"};
        }
        lock.lock();
        if (!verdict.ok() && failure_.ok()) failure_ = std::move(verdict);
        finished_.fetch_add(1, std::memory_order_release);
        if (waiters_ > 0) done_.notify_all();
    }
}

std::optional<Verdict> Stream::wait(std::int64_t milliseconds) {
    const std::uint64_t goal = enqueued_.load(std::memory_order_acquire);
    const auto finished = [&] { return finished_.load(std::memory_order_acquire) >= goal; };
    const bool early = milliseconds != 0 && soon(finished);
    std::unique_lock lock(mutex_);
    if (!early) {
        ++waiters_;
        bool in_time = true;
        if (milliseconds < 0) {
            done_.wait(lock, finished);
        } else {
            in_time = done_.wait_for(lock, std::chrono::milliseconds(milliseconds), finished);
        }
        --waiters_;
        if (!in_time) return std::nullopt;
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
