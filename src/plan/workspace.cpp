// SPDX-License-Identifier: Apache-2.0
#include "plan/workspace.h"

namespace fascore {

namespace {
constexpr std::int64_t line_bytes = 64;
constexpr std::int64_t page_bytes = 4096;
}  // namespace

Workspace::Booking Workspace::book(const char* name, std::int64_t bytes, std::int64_t copies) {
    Booking booking;
    booking.offset = end_;
    booking.pitch = (bytes + line_bytes - 1) / line_bytes * line_bytes;
    if (booking.pitch != 0 && booking.pitch % page_bytes == 0) booking.pitch += line_bytes;
    end_ += booking.pitch * copies;
    lines_.push_back({name, booking.pitch, copies});
    return booking;
}

std::size_t Workspace::total_bytes() const { return end_ == 0 ? 0 : static_cast<std::size_t>(end_ + line_bytes); }

Grant::Grant(std::byte* block) {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    base_ = block + (line_bytes - static_cast<std::int64_t>(address % line_bytes)) % line_bytes;
}

}  // namespace fascore
