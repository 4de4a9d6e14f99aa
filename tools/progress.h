// SPDX-License-Identifier: Apache-2.0
//
// Watching and stopping a long run: a progress bar on a terminal, and Ctrl-C.
//
//   grad  [#############-----------------]  43 %  12.1 s, 16.0 s left
//
// The bar is drawn on stderr, only when that is a terminal, first after 0.3 s (short runs show nothing) and then at
// most ten times a second; it is wiped when the run ends, so that it never mixes with results. In a file or a pipe
// nothing of it appears.
//
// Ctrl-C sets a CancelToken while the library runs, so that the call returns within a tile and the command ends with
// status 130 and no half-written output. At other times, and on the second Ctrl-C, the process ends at once with 130.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "fascore/attention.h"

namespace fascore::cli {

/// Installs the Ctrl-C handler; once, from main().
void install_interrupt_handler();

/// The token that Ctrl-C sets.
[[nodiscard]] const CancelToken& interrupt_token() noexcept;

/// While one lives, Ctrl-C asks instead of ending the process. Whoever holds it looks at interrupt_token() afterwards.
class InterruptScope {
  public:
    InterruptScope() noexcept;
    ~InterruptScope();
    InterruptScope(const InterruptScope&) = delete;
    InterruptScope& operator=(const InterruptScope&) = delete;
};

/// Text of a bar, without terminal control: what is drawn, made testable.
[[nodiscard]] std::string progress_text(const std::string& label, std::int64_t done, std::int64_t total,
                                        double elapsed_seconds);

class ProgressBar {
  public:
    explicit ProgressBar(std::string label);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    /// For Execution::progress; empty when stderr is no terminal. The bar must outlive the call.
    [[nodiscard]] ProgressCallback callback() noexcept;

  private:
    static void advance(void* context, std::int64_t done, std::int64_t total);
    using Clock = std::chrono::steady_clock;
    std::string label_;
    bool on_terminal_ = false;
    bool drawn_ = false;
    Clock::time_point start_;
    Clock::time_point last_;
};

/// One line on stderr while something without tiles runs ("reference ..."), wiped at the end; terminal only.
class WaitNote {
  public:
    explicit WaitNote(const std::string& text);
    ~WaitNote();
    WaitNote(const WaitNote&) = delete;
    WaitNote& operator=(const WaitNote&) = delete;

  private:
    bool drawn_ = false;
};

}  // namespace fascore::cli
