// SPDX-License-Identifier: Apache-2.0
//
// Who does what when: units, slots, tickets. The schedule may differ from run to run; the sums may not, so nothing here
// decides an order of addition (plan.h does).
//
//   unit     one (batch, kv head); its tasks are handed out in ascending order. Units need not have equally many.
//   slot     room for the shared buffers of one open unit; one a thread, as far as there are units
//
//   1. A thread that has a slot opens the next unit in it and works through its tasks. While units are left, every
//   thread
//      is alone in its slot: no waiting, no sharing, one head's data in its own cache.
//   2. When no unit is left to open, threads help: they take tasks of any open unit. With fewer heads than threads this
//      is the whole run.
//
// A ticket is one atomic word: (unit + 1) in the upper half, the next task in the lower. Taking is a fetch_add; a slot
// that was never opened reads as task "all gone". No thread waits for one that has not started: any team size works,
// also one.
//
// Cancelling: `stop` is looked at between tasks by everyone and between tiles by the engine.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>

#include "base/parallel.h"
#include "fascore/attention.h"

namespace fascore {

/// Shared by the members of one run.
class RunState {
  public:
    RunState(const Execution& execution, std::int64_t total_tiles)
        : cancel_(execution.cancel), progress_(execution.progress), total_(total_tiles) {}

    /// True once the run is to end early. Cheap: looked at once a tile.
    [[nodiscard]] bool stopped() const { return cancel_ != nullptr && cancel_->cancelled(); }

    /// Counts `tiles` done; member 0, the caller's thread, also reports now and then.
    void advance(int member, std::int64_t tiles) {
        done_.fetch_add(tiles, std::memory_order_relaxed);
        if (member == 0) report();
    }

    void report() {
        if (progress_.function == nullptr) return;
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(20)) return;
        last_ = now;
        const std::int64_t done = done_.load(std::memory_order_relaxed);
        if (done < total_) progress_.function(progress_.context, done, total_);
    }

    /// The last report, once everything is done.
    void finish() {
        if (progress_.function != nullptr) progress_.function(progress_.context, total_, total_);
    }

    [[nodiscard]] bool watched() const { return progress_.function != nullptr; }

  private:
    const CancelToken* cancel_;
    ProgressCallback progress_;
    std::int64_t total_;
    std::atomic<std::int64_t> done_{0};
    std::chrono::steady_clock::time_point last_{};  // member 0 only
};

/// One line of shared state a slot.
struct alignas(64) Slot {
    std::atomic<std::uint64_t> ticket;
    std::atomic<std::int64_t> tasks_done;
};
static_assert(sizeof(Slot) == 64);

/// Runs all tasks of all units on any number of members. Body has
///   std::int64_t tasks(std::int64_t unit) const                                     how many the unit has
///   void open(std::int64_t slot, std::int64_t unit, int member)                     fills a slot's shared buffers
///   void run(std::int64_t slot, std::int64_t unit, std::int64_t task, int member)   one task
template <class Body>
class Schedule {
  public:
    Schedule(Body& body, RunState& state, Slot* slots, std::int64_t slot_count, std::int64_t units,
             std::int64_t total_tasks)
        : body_(body), state_(state), slots_(slots), slot_count_(slot_count), units_(units), total_tasks_(total_tasks) {
        for (std::int64_t s = 0; s < slot_count; ++s) {
            Slot* slot = new (&slots_[s]) Slot{};
            slot->ticket.store(task_mask, std::memory_order_relaxed);
        }
    }

    void operator()(int member) {
        if (member < slot_count_) open_units(member);
        help(member);
        // Member 0 stays to report while others finish their last tasks.
        for (int round = 0; member == 0 && state_.watched() && !all_done(); ++round) {
            if (state_.stopped()) break;
            state_.report();
            spin_pause(round);
        }
    }

  private:
    static constexpr std::uint64_t task_mask = 0xFFFFFFFFULL;

    void open_units(int member) {
        Slot& slot = slots_[member];
        while (!state_.stopped()) {
            const std::int64_t unit = next_unit_.fetch_add(1, std::memory_order_relaxed);
            if (unit >= units_) return;
            body_.open(member, unit, member);
            const std::int64_t tasks = body_.tasks(unit);
            slot.tasks_done.store(0, std::memory_order_relaxed);
            slot.ticket.store(static_cast<std::uint64_t>(unit + 1) << 32, std::memory_order_release);
            opened_.fetch_add(1, std::memory_order_release);
            while (take_and_run(member, member)) {
            }
            // Helpers come only when no unit is left, so this loop turns only before the last return.
            for (int round = 0; slot.tasks_done.load(std::memory_order_acquire) < tasks && !state_.stopped(); ++round) {
                if (next_unit_.load(std::memory_order_relaxed) >= units_) return;
                spin_pause(round);
            }
        }
    }

    void help(int member) {
        for (int round = 0; !state_.stopped(); ++round) {
            const bool all_open = opened_.load(std::memory_order_acquire) >= units_;
            bool worked = false;
            for (std::int64_t s = 0; s < slot_count_; ++s) {
                const std::int64_t slot = (member + s) % slot_count_;
                while (take_and_run(slot, member)) worked = true;
            }
            if (worked) {
                round = 0;
            } else if (all_open) {
                return;
            }
            spin_pause(round);
        }
    }

    bool take_and_run(std::int64_t index, int member) {
        if (state_.stopped()) return false;
        Slot& slot = slots_[index];
        const std::uint64_t seen = slot.ticket.load(std::memory_order_acquire);
        if (!holds_task(seen)) return false;
        const std::uint64_t ticket = slot.ticket.fetch_add(1, std::memory_order_acq_rel);
        if (!holds_task(ticket)) return false;
        body_.run(index, unit_of(ticket), task_of(ticket), member);
        slot.tasks_done.fetch_add(1, std::memory_order_acq_rel);
        tasks_finished_.fetch_add(1, std::memory_order_acq_rel);
        return true;
    }

    static std::int64_t unit_of(std::uint64_t ticket) { return static_cast<std::int64_t>(ticket >> 32) - 1; }
    static std::int64_t task_of(std::uint64_t ticket) { return static_cast<std::int64_t>(ticket & task_mask); }
    [[nodiscard]] bool holds_task(std::uint64_t ticket) const {
        return unit_of(ticket) >= 0 && task_of(ticket) < body_.tasks(unit_of(ticket));
    }

    [[nodiscard]] bool all_done() const { return tasks_finished_.load(std::memory_order_acquire) >= total_tasks_; }

    Body& body_;
    RunState& state_;
    Slot* slots_;
    std::int64_t slot_count_;
    std::int64_t units_;
    std::int64_t total_tasks_;
    std::atomic<std::int64_t> next_unit_{0};
    std::atomic<std::int64_t> opened_{0};
    std::atomic<std::int64_t> tasks_finished_{0};
};

/// Work that whoever comes first does and everyone else waits for. What it leaves may be used up and made again for
/// another `use` of the same place: the word counts 3·use untouched, + 1 under way, + 2 done. A use that has not begun
/// is waited for.
template <class Work>
void once(std::uint32_t& word, std::uint32_t use, const RunState& state, const Work& work) {
    const std::uint32_t untouched = 3 * use;
    std::atomic_ref<std::uint32_t> ready(word);
    for (int round = 0;; ++round) {
        std::uint32_t seen = ready.load(std::memory_order_acquire);
        if (seen == untouched + 2) return;
        if (seen == untouched && ready.compare_exchange_strong(seen, untouched + 1, std::memory_order_acq_rel)) {
            work();
            ready.store(untouched + 2, std::memory_order_release);
            return;
        }
        if (state.stopped()) return;
        spin_pause(round);
    }
}

/// Somebody has begun or done the work of this use.
[[nodiscard]] inline bool begun(std::uint32_t& word, std::uint32_t use) {
    return std::atomic_ref<std::uint32_t>(word).load(std::memory_order_relaxed) > 3 * use;
}

/// Nobody needs the place for this use any more.
inline void use_up(std::uint32_t& word, std::uint32_t use) {
    std::atomic_ref<std::uint32_t>(word).store(3 * (use + 1), std::memory_order_release);
}

}  // namespace fascore
