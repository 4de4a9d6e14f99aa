// SPDX-License-Identifier: Apache-2.0
//
// Handles. What a C program holds as aclTensor* or aclrtStream is not an address: it is a number that was never used
// before and will never be used again, shown as a pointer.
//
//   bits 63 … 56   55 … 48   47 … 4                 3 … 0
//   0              0xAC      the how-manieth        kind
//
// No x86-64 or AArch64 process can have memory at such an address, so a program that follows one stops at once; and a
// handle that was destroyed is not found any more, instead of being found to be something else: use after destroy,
// double destroy, an uninitialised variable or a stream passed as a context are all the same lookup that fails.
// Cost: one hash lookup under a lock, some 50 ns.
//
// Registries live until the process ends: threads of streams may still look into them while it ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace fascore::aclnn {

enum class Kind : std::uint8_t {
    tensor,
    scalar,
    int_array,
    float_array,
    bool_array,
    tensor_list,
    scalar_list,
    executor,
    context,
    stream
};

template <class T>
class Registry {
  public:
    explicit Registry(Kind kind) : kind_(static_cast<std::uintptr_t>(kind)) {}

    [[nodiscard]] void* add(T value) {
        static_assert(sizeof(std::uintptr_t) == 8, "handles need 64 bits");
        const std::uintptr_t handle = (std::uintptr_t{0xAC} << 48U) | (next_.fetch_add(1) << 4U) | kind_;
        const std::lock_guard lock(mutex_);
        alive_.emplace(handle, std::move(value));
        return reinterpret_cast<void*>(handle);
    }

    /// Copies what the handle stands for; false when it is not alive.
    [[nodiscard]] bool read(const void* handle, T& copy) const {
        const std::lock_guard lock(mutex_);
        const auto found = alive_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == alive_.end()) return false;
        copy = found->second;
        return true;
    }

    /// use(T&) under the lock; false when the handle is not alive.
    template <class Use>
    bool with(const void* handle, const Use& use) {
        const std::lock_guard lock(mutex_);
        const auto found = alive_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == alive_.end()) return false;
        use(found->second);
        return true;
    }

    /// Removes the handle if take(T&) says so; false when it is not alive.
    template <class Take>
    bool remove_if(const void* handle, const Take& take) {
        const std::lock_guard lock(mutex_);
        const auto found = alive_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == alive_.end()) return false;
        if (take(found->second)) alive_.erase(found);
        return true;
    }

    bool remove(const void* handle) {
        return remove_if(handle, [](T&) { return true; });
    }

    template <class Use>
    void for_each(const Use& use) {
        const std::lock_guard lock(mutex_);
        for (auto& [handle, value] : alive_) use(value);
    }

    [[nodiscard]] std::size_t size() const {
        const std::lock_guard lock(mutex_);
        return alive_.size();
    }

  private:
    const std::uintptr_t kind_;
    std::atomic<std::uintptr_t> next_{1};
    mutable std::mutex mutex_;
    std::unordered_map<std::uintptr_t, T> alive_;
};

}  // namespace fascore::aclnn
