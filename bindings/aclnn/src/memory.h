// SPDX-License-Identifier: Apache-2.0
//
// "Device" memory, which here is the host's: aligned blocks whose sizes are remembered, so that whoever would run over
// the end of one (a copy, a workspace, a tensor) is refused. Addresses that no block holds are the program's own
// business: nothing is known of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "report.h"

namespace fascore::aclnn {

enum class Place : std::uint8_t { device, host };

/// A block of `bytes` into *address; refuses null, 0 bytes, and what the system has not.
[[nodiscard]] Verdict allocate(const char* parameter, void** address, std::size_t bytes, Place place);

/// Refuses what is not the start of a live block of that place.
[[nodiscard]] Verdict release(const char* parameter, void* address, Place place);

/// Bytes from the address to the end of the block it lies in; SIZE_MAX when it lies in none.
[[nodiscard]] std::size_t room_at(const void* address);

}  // namespace fascore::aclnn
