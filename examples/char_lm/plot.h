// SPDX-License-Identifier: Apache-2.0
//
// The loss curve, three ways: one line of blocks beside the progress bar, a chart in the terminal, and an SVG file.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common.h"

namespace char_lm {

/// A point of the validation curve.
struct Measurement {
    Index step;
    double loss;
};

/// Each value averaged with those before it: 1/(1 − keep) steps of memory, corrected at the start.
inline std::vector<double> smooth(const std::vector<double>& values, double keep = 0.9) {
    std::vector<double> smoothed;
    double sum = 0, weight = 0;
    for (const double value : values) {
        sum = keep * sum + (1 - keep) * value;
        weight = keep * weight + (1 - keep);
        smoothed.push_back(sum / weight);
    }
    return smoothed;
}

/// `count` averages of consecutive pieces of `values` (fewer when there are fewer values).
inline std::vector<double> resample(const std::vector<double>& values, std::size_t count) {
    std::vector<double> means;
    count = std::min(count, values.size());
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t first = i * values.size() / count, last = (i + 1) * values.size() / count;
        double sum = 0;
        for (std::size_t k = first; k < last; ++k) sum += values[k];
        means.push_back(sum / static_cast<double>(last - first));
    }
    return means;
}

/// A block that fills `eighths` of a character cell from below, 0 … 8.
inline std::string_view block(int eighths) {
    static constexpr std::array<std::string_view, 9> blocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    return blocks.at(static_cast<std::size_t>(std::clamp(eighths, 0, 8)));
}

/// The whole curve in one line of `width` characters.
inline std::string sparkline(const std::vector<double>& values, std::size_t width) {
    if (values.empty()) return {};
    const auto [low, high] = std::ranges::minmax(values);
    std::string line;
    for (const double value : resample(values, width)) {
        line += block(high > low ? 1 + static_cast<int>(std::lround(7 * (value - low) / (high - low))) : 1);
    }
    return line;
}

/// A chart of `height` lines: bars from the bottom of the scale up to the loss.
inline std::string terminal_chart(const std::vector<double>& losses, std::size_t width, int height) {
    const std::vector<double> columns = resample(losses, width);
    const double high = *std::ranges::max_element(columns);
    const double low = std::floor(2 * *std::ranges::min_element(columns)) / 2 - 0.25;
    std::string chart;
    for (int line = height - 1; line >= 0; --line) {
        const double top = low + (high - low) * (line + 1) / height;
        chart += fmt::format("  {:5.2f} ┤", top);
        for (const double value : columns) {
            const double filled = (value - low) / (high - low) * height - line;  // cells above this line's floor
            chart += block(static_cast<int>(std::lround(8 * std::clamp(filled, 0.0, 1.0))));
        }
        chart += '\n';
    }
    chart += fmt::format("  {:5.2f} ┼", low);
    for (std::size_t i = 0; i < columns.size(); ++i) chart += "─";
    chart += fmt::format("\n         1{:>{}}\n", fmt::format("step {}", losses.size()), columns.size() - 1);
    return chart;
}

/// The training loss of every step (thin), its moving average (thick) and the validation losses (dots).
inline void write_svg(const std::string& path, const std::vector<double>& losses,
                      const std::vector<Measurement>& validation, const std::string& subtitle) {
    constexpr double width = 860, height = 460, left = 64, right = 24, top = 64, bottom = 52;
    double high = *std::ranges::max_element(losses), low = *std::ranges::min_element(losses);
    for (const Measurement& point : validation) {
        high = std::max(high, point.loss);
        low = std::min(low, point.loss);
    }
    high = std::ceil(2 * high) / 2;
    low = std::floor(2 * low) / 2;
    const double last_step = static_cast<double>(std::max<std::size_t>(2, losses.size()));
    const auto x = [&](double step) { return left + (width - left - right) * (step - 1) / (last_step - 1); };
    const auto y = [&](double loss) { return top + (height - top - bottom) * (high - loss) / (high - low); };
    const auto polyline = [&](const std::vector<double>& values, std::string_view style) {
        std::string points;
        for (std::size_t i = 0; i < values.size(); ++i) {
            points += fmt::format("{:.1f},{:.1f} ", x(static_cast<double>(i + 1)), y(values[i]));
        }
        return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", style, points);
    };
    const auto text = [](double at_x, double at_y, std::string_view style, std::string_view content) {
        return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", at_x, at_y, style, content);
    };

    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#444\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        width, height);
    svg += text(left, 28, "font-size=\"18\" fill=\"#111\"", "Loss of a small transformer trained with fascore");
    svg += text(left, 48, "", subtitle);
    for (double loss = low; loss <= high + 1e-9; loss += 0.5) {
        svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e4e4e4\"/>\n", left,
                           width - right, y(loss), y(loss));
        svg += text(left - 8, y(loss) + 4, "text-anchor=\"end\"", fmt::format("{:.1f}", loss));
    }
    for (int i = 0; i <= 5; ++i) {
        const double step = std::round(1 + (last_step - 1) * i / 5);
        svg += text(x(step), height - bottom + 20, "text-anchor=\"middle\"", fmt::format("{:.0f}", step));
    }
    svg += text((left + width - right) / 2, height - 10, "text-anchor=\"middle\"", "step");
    svg += fmt::format("<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                       (top + height - bottom) / 2, "cross-entropy per character (nats)");
    svg += polyline(losses, "stroke=\"#9ecae1\" stroke-width=\"1\"");
    svg += polyline(smooth(losses), "stroke=\"#08519c\" stroke-width=\"2.5\"");
    for (const Measurement& point : validation) {
        svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#d94801\"/>\n",
                           x(static_cast<double>(point.step)), y(point.loss));
    }
    constexpr double legend = width - right - 190;
    svg += text(legend, top + 16, "fill=\"#08519c\"", "━ training, moving average");
    svg += text(legend, top + 34, "fill=\"#5a9bc4\"", "─ training, every step");
    svg += text(legend, top + 52, "fill=\"#d94801\"", "● validation (unseen text)");
    svg += "</svg>\n";

    std::ofstream file(path, std::ios::binary);
    if (!(file << svg)) throw std::runtime_error(fmt::format("--svg: {}, cannot be written", path));
}

}  // namespace char_lm
