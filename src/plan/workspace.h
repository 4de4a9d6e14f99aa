// SPDX-License-Identifier: Apache-2.0
//
// The workspace ledger. While planning, buffers are *booked* by name; the total is what the query function returns; at
// run time a booking and a copy number are turned into an address inside the caller's one block.
//
//   block   | slack to 64 | name A copy 0 | name A copy 1 | … | name B copy 0 | …
//
// Every copy starts on a 64-byte line. Copies whose size is a multiple of 4 KiB get one line more, so that buffers used
// side by side do not fall on the same cache sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fascore {

class Workspace {
  public:
    struct Booking {
        std::int64_t offset = 0;
        std::int64_t pitch = 0;  ///< bytes from one copy to the next
    };

    /// Books `copies` buffers of `bytes` each. `name` must outlive the ledger (a literal).
    Booking book(const char* name, std::int64_t bytes, std::int64_t copies);

    /// Bytes of a block of any alignment that holds everything booked; 0 when nothing is.
    [[nodiscard]] std::size_t total_bytes() const;

    struct Line {
        const char* name;
        std::int64_t bytes_each;
        std::int64_t copies;
    };
    [[nodiscard]] const std::vector<Line>& lines() const { return lines_; }

  private:
    std::vector<Line> lines_;
    std::int64_t end_ = 0;
};

/// The caller's block, aligned: where bookings become addresses.
class Grant {
  public:
    explicit Grant(std::byte* block);

    template <class T = std::byte>
    [[nodiscard]] T* at(const Workspace::Booking& booking, std::int64_t copy = 0) const {
        return reinterpret_cast<T*>(base_ + booking.offset + copy * booking.pitch);
    }

  private:
    std::byte* base_;
};

}  // namespace fascore
