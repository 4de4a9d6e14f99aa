// SPDX-License-Identifier: Apache-2.0
//
// Threads: the only file that names OpenMP. A team runs one function once per member; members share work through
// atomics of their own. Fewer members than asked may come (nested regions, limits of the runtime), so a body must be
// right for any number, also one: it may never wait for a member that has not started.
#pragma once

#include <type_traits>

namespace fascore {

/// Threads this machine offers (the CPUs this process may run on).
int hardware_threads() noexcept;

/// Runs body(context, member) on up to `threads` members, 0 ≤ member < threads, member 0 on the calling thread; returns
/// when all are done. The body must not throw.
void run_team(int threads, void (*body)(void* context, int member), void* context) noexcept;

template <class Body>
void run_team(int threads, Body& body) noexcept {
    run_team(
        threads, [](void* context, int member) { (*static_cast<Body*>(context))(member); }, &body);
}

/// Gives the core away for a moment inside a spin loop: `round` counts the turns, later ones yield to the system.
void spin_pause(int round) noexcept;

}  // namespace fascore
