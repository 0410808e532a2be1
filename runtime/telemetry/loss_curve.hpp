#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mgpu::telemetry {

using Points = std::vector<std::pair<double, double>>;  // step and value, in the order of steps

// Tick marks for an axis from `low` to `high`: 1, 2 or 5 times a power of ten apart, at most `most`
// of them.
std::vector<double> round_ticks(double low, double high, int most);

// A weighted average around each point. The weight decreases with the distance to both sides,
// however far apart the points are. Values that are not finite are left out.
Points smoothed(const Points& points);

// The loss curve of a run as SVG: reported values thin, smoothed values thick, evaluations as dots.
// Empty if there is no finite value to show.
std::string loss_curve_svg(const std::string& title, const Points& train, const Points& eval);

}  // namespace mgpu::telemetry
