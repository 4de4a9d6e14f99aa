// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

namespace nb = nanobind;

namespace fascore_python {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;  // whole huge pages
};

// Lives as long as the process: arrays may outlive the module.
struct Kept {
    nb::ft_mutex lock;  // the interpreter lock where there is one
    std::vector<Block> blocks;
    std::size_t existing = 0;  // kept or in use: `blocks` has room for all

    static Kept& of_process() {
        static auto& kept = *new Kept;
        return kept;
    }

    void free_all() {
        existing -= blocks.size();
        for (const Block& block : blocks) std::free(block.memory);
        blocks.clear();  // keeps its room
    }
};

Block take(std::size_t bytes) {
    Kept& kept = Kept::of_process();
    const nb::ft_lock_guard held(kept.lock);
    const auto fits = std::ranges::find(kept.blocks, bytes, &Block::bytes);
    if (fits != kept.blocks.end()) {
        const Block block = *fits;
        kept.blocks.erase(fits);
        return block;
    }
    kept.free_all();
    kept.blocks.reserve(kept.existing + 1);
    const Block block{std::aligned_alloc(huge_page, bytes), bytes};
    if (block.memory == nullptr) throw std::bad_alloc();
    ++kept.existing;
    use_huge_pages(reinterpret_cast<std::uintptr_t>(block.memory), bytes);
    return block;
}

void keep(void* owned) noexcept {
    const Block block = *static_cast<Block*>(owned);
    delete static_cast<Block*>(owned);
#if defined(__linux__) && defined(MADV_FREE)
    (void)madvise(block.memory, block.bytes, MADV_FREE);
#endif
    Kept& kept = Kept::of_process();
    const nb::ft_lock_guard held(kept.lock);
    kept.blocks.push_back(block);
}

}  // namespace

void use_huge_pages([[maybe_unused]] std::uintptr_t address, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t page = 4096;
    const std::uintptr_t begin = (address + page - 1) / page * page;
    const std::uintptr_t end = (address + bytes) / page * page;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address is what Python has.
    if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

Bytes kept_memory(std::size_t bytes) {
    const std::size_t whole = (bytes + huge_page - 1) / huge_page * huge_page;
    std::unique_ptr<Block, void (*)(void*) noexcept> owned(new Block(take(whole)), &keep);
    void* memory = owned->memory;
    const nb::capsule owner(owned.get(), &keep);
    (void)owned.release();
    return Bytes(memory, {bytes}, owner);
}

std::size_t kept_bytes() {
    Kept& kept = Kept::of_process();
    const nb::ft_lock_guard held(kept.lock);
    return std::transform_reduce(kept.blocks.begin(), kept.blocks.end(), std::size_t{0}, std::plus<>(),
                                 [](const Block& block) { return block.bytes; });
}

void empty_cache() {
    Kept& kept = Kept::of_process();
    const nb::ft_lock_guard held(kept.lock);
    kept.free_all();
}

}  // namespace fascore_python
