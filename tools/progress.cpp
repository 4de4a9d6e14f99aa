// SPDX-License-Identifier: Apache-2.0
//
// Progress bar and Ctrl-C: see progress.h.
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <utility>

#include "command.h"

namespace fascore::cli {
namespace {

CancelToken token;
std::atomic<int> scopes{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "the handler may only touch lock-free atomics");

extern "C" void on_interrupt(int) {
    if (scopes.load() == 0 || token.cancelled()) _exit(exit_interrupted);
    token.cancel();
}

constexpr const char* wipe_line = "\r\x1b[K";

std::string seconds_text(double seconds) {
    if (seconds < 100.0) return fmt::format("{:.1f} s", seconds);
    return fmt::format("{:.0f} min {:02.0f} s", std::floor(seconds / 60.0), std::fmod(seconds, 60.0));
}

}  // namespace

void install_interrupt_handler() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
}

const CancelToken& interrupt_token() noexcept { return token; }

InterruptScope::InterruptScope() noexcept { scopes.fetch_add(1); }
InterruptScope::~InterruptScope() { scopes.fetch_sub(1); }

std::string progress_text(const std::string& label, std::int64_t done, std::int64_t total, double elapsed_seconds) {
    constexpr int width = 30;
    const double share = total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 1.0;
    const auto filled = static_cast<std::size_t>(share * width);
    std::string text =
        fmt::format("{}  [{}{}] {:3.0f} %  {}", label, std::string(filled, '#'), std::string(width - filled, '-'),
                    std::floor(share * 100.0), seconds_text(elapsed_seconds));
    if (share > 0.0 && share < 1.0) {
        text += fmt::format(", {} left", seconds_text(elapsed_seconds * (1.0 - share) / share));
    }
    return text;
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), on_terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_(start_) {}

ProgressBar::~ProgressBar() {
    if (drawn_) fmt::print(stderr, "{}", wipe_line);
}

ProgressCallback ProgressBar::callback() noexcept {
    if (!on_terminal_) return {};
    return {&ProgressBar::advance, this};
}

void ProgressBar::advance(void* context, std::int64_t done, std::int64_t total) {
    auto& bar = *static_cast<ProgressBar*>(context);
    const auto now = Clock::now();
    const auto wait = bar.drawn_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(300);
    if (now - bar.last_ < wait) return;
    bar.last_ = now;
    bar.drawn_ = true;
    const double elapsed = std::chrono::duration<double>(now - bar.start_).count();
    fmt::print(stderr, "{}{}", wipe_line, progress_text(bar.label_, done, total, elapsed));
    std::fflush(stderr);
}

WaitNote::WaitNote(const std::string& text) {
    if (isatty(STDERR_FILENO) != 1) return;
    drawn_ = true;
    fmt::print(stderr, "{}{}", wipe_line, text);
    std::fflush(stderr);
}

WaitNote::~WaitNote() {
    if (drawn_) fmt::print(stderr, "{}", wipe_line);
}

}  // namespace fascore::cli
