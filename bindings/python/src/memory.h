// SPDX-License-Identifier: Apache-2.0
//
// Memory of large results, kept for the next step.
//
// malloc gives a block above 32 MiB (glibc's largest M_MMAP_THRESHOLD) back to the kernel as soon as it is freed, so a
// training step whose mask has a gradient writes it to fresh pages each time, which the kernel must clear first: of
// (1, 8, 2048, 64) in f32 that is 134 MB and a third of the step on two threads. Here such a block is kept when its
// array dies, and the next request of the same size takes it:
//
//     take(bytes)    a kept block of that size; else all kept blocks are freed and a new one is allocated
//     (array dies)   its block is kept; the kernel may have the pages when it is short of memory (MADV_FREE)
//
// Since whatever does not fit is freed before anything is allocated, blocks in use and kept are together never more
// than what the program once had in use at one time.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>

namespace fascore_python {

// Asks for huge pages behind a fresh array. A hint: what comes of it does not matter.
void use_huge_pages(std::uintptr_t address, std::size_t bytes);

using Bytes = nanobind::ndarray<nanobind::numpy, std::uint8_t, nanobind::ndim<1>>;

// So many uninitialised bytes as a NumPy array; MemoryError where there are none.
Bytes kept_memory(std::size_t bytes);

// Bytes kept and in nobody's use.
std::size_t kept_bytes();

// Gives what is kept and in nobody's use back to the system.
void empty_cache();

}  // namespace fascore_python
