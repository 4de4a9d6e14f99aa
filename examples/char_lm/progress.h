// SPDX-License-Identifier: Apache-2.0
//
// What one sees while it trains: on a terminal a bar that redraws itself, elsewhere (a file, a pipe) a plain line every
// tenth of the way.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "plot.h"

namespace char_lm {

class Progress {
  public:
    /// `characters` read so far in `seconds`; `losses` of the steps done.
    void show(Index step, Index steps, const std::vector<double>& losses, double rate, double characters,
              double seconds) {
        const double loss = smooth(losses).back();
        const double share = static_cast<double>(step) / static_cast<double>(steps);
        const double left = seconds / share * (1 - share);
        const std::string numbers = fmt::format("loss {:.3f}  rate {:.1e}  {:5.1f}k char/s  {:3.0f} s left", loss, rate,
                                                characters / seconds / 1000, left);
        if (is_terminal_) {
            if (seconds - drawn_ < 0.1 && step < steps) return;
            drawn_ = seconds;
            constexpr int bar_width = 24;
            const int eighths = static_cast<int>(share * bar_width * 8);
            std::string bar;
            for (int cell = 0; cell < bar_width; ++cell) bar += horizontal_block(eighths - 8 * cell);
            fmt::print("\r\x1b[K  {:>3.0f}% ▕{}▏ {}/{}  {}  {}", 100 * share, bar, step, steps, numbers,
                       sparkline(losses, 16));
            if (step == steps) fmt::print("\n");
            std::fflush(stdout);
        } else if (step == steps || step * 10 / steps > (step - 1) * 10 / steps) {
            fmt::print("  step {:>5}/{}  {}\n", step, steps, numbers);
            std::fflush(stdout);
        }
    }

  private:
    /// A block that fills `eighths` of a cell from the left.
    static std::string_view horizontal_block(int eighths) {
        static constexpr std::array<std::string_view, 9> blocks = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
        return blocks.at(static_cast<std::size_t>(std::clamp(eighths, 0, 8)));
    }

    bool is_terminal_ = isatty(fileno(stdout)) != 0;
    double drawn_ = -1;
};

}  // namespace char_lm
