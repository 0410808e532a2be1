#include "runtime/telemetry/summary.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::telemetry {
namespace {

using nlohmann::json;

// A duration in Python's format: 1:02:03.45.
std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "-";
  const auto hundredths = std::llround(seconds * 100);
  const auto whole = hundredths / 100;
  return fmt::format("{}:{:02}:{:02}.{:02}", whole / 3600, whole / 60 % 60, whole % 60,
                     hundredths % 100);
}

std::string flos_text(double flos) {
  for (const auto& [size, name] :
       {std::pair(1e18, "EFLOP"), {1e15, "PFLOP"}, {1e12, "TFLOP"}, {1e9, "GFLOP"}})
    if (flos >= size) return fmt::format("{:.2f} {}", flos / size, name);
  return fmt::format("{:.0f} FLOP", flos);
}

std::string value_text(const std::string& name, double value) {
  if (name.ends_with("_runtime")) return clock_text(value);
  if (name == "total_flos") return flos_text(value);
  if (name.find("memory_bytes") != name.npos) return fmt::format("{:.2f} GiB", value / kGiB);
  if (name.ends_with("_mfu")) return fmt::format("{:.1f} %", 100 * value);
  if (std::floor(value) == value && std::fabs(value) < 1e15) return fmt::format("{:.0f}", value);
  if (std::fabs(value) < 1e-3) return fmt::format("{:.3e}", value);
  return fmt::format("{:.4f}", value);
}

json json_of(const Values& values) {
  json object = json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

std::string dump(const json& object) {
  return object.dump(4, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string summary_text(const Summary& summary) {
  auto values = summary_values(summary);
  if (summary.skipped_steps == 0) values.erase("skipped_steps");
  std::size_t name_width = 0, value_width = 0;
  for (const auto& [name, value] : values) {
    name_width = std::max(name_width, name.size());
    value_width = std::max(value_width, value_text(name, value).size());
  }
  std::string text = "***** train metrics *****\n";
  for (const auto& [name, value] : values)
    text +=
        fmt::format("  {:<{}} = {:>{}}\n", name, name_width, value_text(name, value), value_width);
  const auto peak = fullest(summary.peak_memory_by_gpu);
  if (peak > 0 && summary.planned_memory_bytes > 0)
    text += fmt::format(
        "  planned memory differs from the measured peak by {:+.1f} %\n",
        100.0 *
            (static_cast<double>(summary.planned_memory_bytes) / static_cast<double>(peak) - 1));
  return text;
}

void write_results(const std::string& folder, const Values& train, const Values& last_eval,
                   const ErrorCallback& on_error) {
  replace_file(folder + "/train_results.json", dump(json_of(train)), on_error);
  const auto path = folder + "/all_results.json";
  constexpr std::size_t kMostBytes = 16 << 20;
  json all = rendezvous::parse_untrusted_json(rendezvous::read_small_file(path, kMostBytes).text);
  if (!all.is_object()) all = json::object();
  for (const auto* values : {&last_eval, &train}) all.update(json_of(*values));
  replace_file(path, dump(all), on_error);
}

}  // namespace mgpu::telemetry
