// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "acl/acl.h"

namespace fascore::aclnn {

namespace {

struct Block {
    std::size_t bytes = 0;
    Place place = Place::device;
};

struct Blocks {
    std::mutex mutex;
    std::map<std::uintptr_t, Block> by_address;
};

Blocks& blocks() {
    static auto* const kept = new Blocks;
    return *kept;
}

constexpr std::size_t block_alignment = 64;  // a cache line, and what the widest loads like

}  // namespace

Verdict allocate(const char* parameter, void** address, std::size_t bytes, Place place) {
    if (address == nullptr) return null(ACL_ERROR_INVALID_PARAM, parameter);
    if (bytes == 0) return {ACL_ERROR_INVALID_PARAM, "size: given 0, must be 1 or more"};
    void* fresh = nullptr;
    if (posix_memalign(&fresh, block_alignment, bytes) != 0) {
        return {ACL_ERROR_BAD_ALLOC, "size: given " + std::to_string(bytes) + ", the system has no memory for it"};
    }
    try {
        const std::lock_guard lock(blocks().mutex);
        blocks().by_address[reinterpret_cast<std::uintptr_t>(fresh)] = {bytes, place};
    } catch (...) {
        std::free(fresh);
        throw;
    }
    *address = fresh;
    return {};
}

Verdict release(const char* parameter, void* address, Place place) {
    if (address == nullptr) return null(ACL_ERROR_INVALID_PARAM, parameter);
    {
        const std::lock_guard lock(blocks().mutex);
        const auto found = blocks().by_address.find(reinterpret_cast<std::uintptr_t>(address));
        if (found == blocks().by_address.end() || found->second.place != place) {
            return {ACL_ERROR_INVALID_PARAM, std::string(parameter) + ": " + text_of(address) +
                                                 ", must be a live block of " +
                                                 (place == Place::device ? "aclrtMalloc" : "aclrtMallocHost")};
        }
        blocks().by_address.erase(found);
    }
    std::free(address);
    return {};
}

std::size_t room_at(const void* address) {
    const auto where = reinterpret_cast<std::uintptr_t>(address);
    const std::lock_guard lock(blocks().mutex);
    auto after = blocks().by_address.upper_bound(where);
    if (after == blocks().by_address.begin()) return SIZE_MAX;
    const auto& [start, block] = *--after;
    return where - start < block.bytes ? block.bytes - (where - start) : SIZE_MAX;
}

}  // namespace fascore::aclnn
