#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mgpu::telemetry {

using Points = std::vector<std::pair<double, double>>;  // step and value, in the order of steps

// Values between which and at which an axis from `low` to `high` is marked: 1, 2 or 5 times a power
// of ten apart, at most `most` of them.
std::vector<double> round_ticks(double low, double high, int most);

// What lies around each point on average, its weight falling off to both sides at the same pace
// however far apart the points are; values that are no numbers are left out.
Points smoothed(const Points& points);

// The losses of a run as a picture: every report thin, smoothed thick, evaluations as dots. Empty
// when there is no number to show.
std::string loss_curve_svg(const std::string& title, const Points& train, const Points& eval);

}  // namespace mgpu::telemetry
