#include "runtime/telemetry/metrics_file.hpp"

#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/telemetry/json_number.hpp"

namespace mgpu::telemetry {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json head(const char* event, std::int64_t step, double time) {
  return {{"event", event}, {"step", step}, {"time", time}};
}

void add(Json& object, const Values& values) {
  for (const auto& [name, value] : values)
    if (!object.contains(name))
      object[name] = is_measured(name) ? json_number<Json>(value) : Json(value);
}

}  // namespace

std::string train_line(const StepReport& report, double time) {
  Json object = head(event::kTrain, report.step, time);
  if (report.total_steps > 0) object["total_steps"] = report.total_steps;
  object["epoch"] = report.epoch;
  object["loss"] = report.loss;
  object["learning_rate"] = report.learning_rate;
  object["grad_norm"] = report.grad_norm;
  add(object, measured_values(report));
  add(object, logged_values(report));
  return line_of(object);
}

std::string values_line(const char* event, std::int64_t step, double epoch, const Values& values,
                        double time) {
  Json object = head(event, step, time);
  object["epoch"] = epoch;
  add(object, values);
  return line_of(object);
}

std::string note_line(std::int64_t step, const std::string& text, double time) {
  Json object = head(event::kNote, step, time);
  object["text"] = text;
  return line_of(object);
}

std::string resume_line(std::int64_t step, std::int64_t dropped, double time) {
  Json object = head(event::kResume, step, time);
  object["dropped_lines"] = dropped;
  return line_of(object);
}

std::string start_line(std::int64_t step, const StartReport& report, double time) {
  Json object = head(event::kStart, step, time);
  object["seconds"] = report.seconds;
  object["parts"] = Json::array();
  for (const auto& part : report.parts)
    object["parts"].push_back({{"name", part.name}, {"begin", part.begin}, {"end", part.end}});
  return line_of(object);
}

std::string checkpoint_line(const CheckpointReport& report, double time) {
  Json object = head(event::kCheckpoint, report.step, time);
  object["in_background"] = report.in_background;
  object["stalled_seconds"] = report.stalled_seconds;
  object["seconds"] = report.seconds;
  return line_of(object);
}

std::string wandb_line(std::int64_t step, double epoch, const Values& values, double time) {
  Json object = {{"_step", step}, {"_timestamp", time}, {"train/global_step", step}};
  object["train/epoch"] = epoch;
  for (const auto& [name, value] : values)
    if (std::isfinite(value)) object[tag_of(name)] = value;
  return line_of(object);
}

KeptLines lines_to_keep(const std::string& path, std::int64_t last_step, const char* step_key) {
  KeptLines kept;
  std::ifstream in(path, std::ios::binary);
  bool keeping = true;
  for (std::string line; std::getline(in, line);) {
    const bool whole = !in.eof();  // the line ends with a newline
    if (keeping && whole) {
      const auto object = rendezvous::parse_untrusted_json(line);
      const auto step = object.is_object() ? object.find(step_key) : object.end();
      // Lines of other programs are kept.
      keeping = !object.is_object() || step == object.end() || !step->is_number() ||
                step->get<double>() <= static_cast<double>(last_step);
    }
    keeping = keeping && whole;
    if (keeping)
      kept.bytes += static_cast<std::int64_t>(line.size()) + 1;
    else
      ++kept.dropped;
  }
  return kept;
}

std::string set_aside(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0) return {};
  for (int number = 1; number < 10000; ++number) {
    const auto name = fmt::format("{}.{}", path, number);
    if (::lstat(name.c_str(), &found) == 0) continue;
    return std::rename(path.c_str(), name.c_str()) == 0 ? name : std::string();
  }
  return {};
}

}  // namespace mgpu::telemetry
