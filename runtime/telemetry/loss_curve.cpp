#include "runtime/telemetry/loss_curve.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace mgpu::telemetry {
namespace {

constexpr double kWidth = 800, kHeight = 480;
constexpr double kLeft = 70, kRight = 780, kTop = 50, kBottom = 425;
constexpr std::size_t kMaxPoints = 2000;  // more than the width in pixels

constexpr const char* kTrainColour = "#1f77b4";
constexpr const char* kEvalColour = "#d62728";

struct Range {
  double low = 0, high = 1;

  double share(double value) const { return (value - low) / (high - low); }
};

// The points without their highest and lowest hundredth, so that spikes do not set the range.
Points without_spikes(Points points) {
  const auto cut = static_cast<std::ptrdiff_t>(points.size() / 100);
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  return {points.begin() + cut, points.end() - cut};
}

Range range_of(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double margin =
      *high > *low ? 0.05 * (*high - *low) : std::max(0.05 * std::fabs(*low), 0.5);
  return {*low - margin, *high + margin};
}

struct Frame {
  Range x, y;

  double left(double value) const { return kLeft + x.share(value) * (kRight - kLeft); }
  double top(double value) const { return kBottom - y.share(value) * (kBottom - kTop); }
};

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      safe += c;  // XML cannot represent control characters
  }
  return safe;
}

Points finite(const Points& points) {
  Points kept;
  for (const auto& point : points)
    if (std::isfinite(point.first) && std::isfinite(point.second)) kept.push_back(point);
  return kept;
}

// Reduces the points to the lowest and the highest of each interval, so that spikes stay visible.
Points thinned(const Points& points) {
  if (points.size() <= kMaxPoints) return points;
  const std::size_t stretch = (2 * points.size() + kMaxPoints - 1) / kMaxPoints;
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  Points kept;
  for (std::size_t i = 0; i < points.size(); i += stretch) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end =
        points.begin() + static_cast<std::ptrdiff_t>(std::min(i + stretch, points.size()));
    auto [low, high] = std::minmax_element(begin, end, by_value);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  return kept;
}

std::string path_of(const Points& points, const Frame& frame) {
  std::string path;
  for (const auto& [step, value] : thinned(points))
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", frame.left(step),
                        std::clamp(frame.top(value), -1e4, 1e4));
  return path;
}

// Formats a value with as many decimals as ticks `step` apart need.
std::string tick_text(double value, double step) {
  if (std::fabs(value) >= 1e6) return fmt::format("{:g}", value);
  const int places = std::clamp(-static_cast<int>(std::floor(std::log10(step) + 1e-9)), 0, 12);
  return fmt::format("{:.{}f}", std::fabs(value) < step / 2 ? 0.0 : value, places);
}

double distance_of(const std::vector<double>& ticks) {
  return ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
}

std::string axes(const Frame& frame) {
  std::string svg;
  const auto ys = round_ticks(frame.y.low, frame.y.high, 7);
  for (const double tick : ys)
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{0:g},{1:.1f} H{2:g}\"/>\n"
        "<text x=\"{3:g}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, frame.top(tick), kRight, kLeft - 8, frame.top(tick) + 4,
        tick_text(tick, distance_of(ys)));
  const auto xs = round_ticks(frame.x.low, frame.x.high, 9);
  for (const double tick : xs)
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f},{1:g} V{2:g}\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{3:g}\" text-anchor=\"middle\">{4}</text>\n",
        frame.left(tick), kTop, kBottom, kBottom + 18, tick_text(tick, distance_of(xs)));
  svg += fmt::format("<path class=\"axis\" d=\"M{0:g},{1:g} V{2:g} H{3:g}\"/>\n", kLeft, kTop,
                     kBottom, kRight);
  svg += fmt::format(
      "<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\">step</text>\n"
      "<text x=\"18\" y=\"{:g}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {:g})\">"
      "loss</text>\n",
      (kLeft + kRight) / 2, kBottom + 42, (kTop + kBottom) / 2, (kTop + kBottom) / 2);
  return svg;
}

std::string legend_line(double y, const char* colour, const std::string& text) {
  return fmt::format(
      "<path d=\"M{0:g},{1:g} h24\" stroke=\"{2}\" stroke-width=\"2.5\"/>\n"
      "<text x=\"{3:g}\" y=\"{4:g}\">{5}</text>\n",
      kRight - 150, y, colour, kRight - 118, y + 4, text);
}

std::string curves(const Points& train, const Points& smooth, const Points& eval,
                   const Frame& frame) {
  std::string svg = fmt::format(
      "<clipPath id=\"frame\"><rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"/>"
      "</clipPath>\n<g clip-path=\"url(#frame)\" fill=\"none\" stroke-linejoin=\"round\">\n",
      kLeft, kTop, kRight - kLeft, kBottom - kTop);
  if (!train.empty())
    svg += fmt::format(
        "<path d=\"{0}\" stroke=\"{2}\" stroke-opacity=\"0.3\"/>\n"
        "<path d=\"{1}\" stroke=\"{2}\" stroke-width=\"2\"/>\n",
        path_of(train, frame), path_of(smooth, frame), kTrainColour);
  if (!eval.empty())
    svg += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
                       path_of(eval, frame), kEvalColour);
  svg += "</g>\n";
  for (const auto& [step, value] : thinned(eval))
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>step {:g}: {:.4f}"
        "</title></circle>\n",
        frame.left(step), frame.top(value), kEvalColour, step, value);
  double y = kTop + 12;
  if (!train.empty())
    svg += legend_line(y, kTrainColour, fmt::format("train {:.4f}", smooth.back().second));
  if (!train.empty()) y += 20;
  if (!eval.empty())
    svg += legend_line(y, kEvalColour, fmt::format("eval {:.4f}", eval.back().second));
  return svg;
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int most) {
  if (!(high > low) || most < 1 || !std::isfinite(high - low)) return {};
  const double rough = (high - low) / most;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1, 2, 5})
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  // Multiplies each time, because repeated addition would drift off the round numbers.
  for (int i = 0; i <= most && (first + i) * step <= high + 1e-9 * step; ++i)
    ticks.push_back((first + i) * step);
  return ticks;
}

Points smoothed(const Points& points) {
  const Points given = finite(points);
  if (given.empty()) return {};
  const double reach = std::max((given.back().first - given.front().first) / 60, 1e-9);
  const auto fade = [&](std::size_t i) {  // weight between a point and the previous one
    return std::exp(-std::max(given[i].first - given[i - 1].first, 0.0) / reach);
  };
  const std::size_t count = given.size();
  std::vector<double> sums(count), weights(count);
  double sum = 0, weight = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = sum = (i > 0 ? sum * fade(i) : 0) + given[i].second;
    weights[i] = weight = (i > 0 ? weight * fade(i) : 0) + 1;
  }
  // And from the other side, without counting the point itself twice.
  sum = weight = 0;
  Points smooth(count);
  for (std::size_t i = count; i-- > 0;) {
    smooth[i] = {given[i].first, (sums[i] + sum) / (weights[i] + weight)};
    if (i == 0) break;
    sum = (sum + given[i].second) * fade(i);
    weight = (weight + 1) * fade(i);
  }
  return smooth;
}

std::string loss_curve_svg(const std::string& title, const Points& train_points,
                           const Points& eval_points) {
  const Points train = finite(train_points), eval = finite(eval_points);
  const Points smooth = smoothed(train);
  if (train.empty() && eval.empty()) return {};
  std::vector<double> steps, values;
  for (const auto& points : {without_spikes(train), smooth, eval})
    for (const auto& [step, value] : points) {
      steps.push_back(step);
      values.push_back(value);
    }
  const auto [first, last] = std::minmax_element(steps.begin(), steps.end());
  const Frame frame{*last > *first ? Range{*first, *last} : Range{*first - 1, *first + 1},
                    range_of(values)};
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" "
             "width=\"{0:g}\" height=\"{1:g}\" font-family=\"sans-serif\" font-size=\"12\">\n"
             "<style>.grid{{stroke:#ddd}} .axis{{stroke:#333;fill:none}} text{{fill:#333}}"
             "</style>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
             "<text x=\"{2:g}\" y=\"28\" font-size=\"16\">{3}</text>\n",
             kWidth, kHeight, kLeft, escaped(title)) +
         axes(frame) + curves(train, smooth, eval, frame) + "</svg>\n";
}

}  // namespace mgpu::telemetry
