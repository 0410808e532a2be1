#include "runtime/telemetry/log_history.hpp"

#include <cmath>
#include <fstream>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/telemetry/json_number.hpp"
#include "runtime/telemetry/metrics_file.hpp"

namespace mgpu::telemetry {
namespace {

using nlohmann::json;

constexpr auto kReplace = json::error_handler_t::replace;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

json array_of(const std::vector<LogEntry>& entries) {
  json all = json::array();
  for (const auto& entry : entries) {
    json one = entry.values;
    one["step"] = entry.step;
    one["epoch"] = entry.epoch;
    all.push_back(std::move(one));
  }
  return all;
}

LogEntry entry_of(const json& object) {
  LogEntry entry;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_number() && !value.is_null()) continue;
    const double number_or_nan = value.is_null() ? kNaN : value.get<double>();
    if (name == "step")
      // The value may come from another program: a step must fit into 64 bits.
      entry.step = std::fabs(number_or_nan) < 9e15 ? static_cast<std::int64_t>(number_or_nan) : 0;
    else if (name == "epoch")
      entry.epoch = number_or_nan;
    else
      entry.values[name] = number_or_nan;
  }
  return entry;
}

template <class Value>
json or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

}  // namespace

LogHistory LogHistory::from_json(const std::string& text) {
  const auto all = rendezvous::parse_untrusted_json(text);
  if (!all.is_array())
    throw std::runtime_error("log_history of trainer_state.json must be an array of objects");
  LogHistory history;
  for (const auto& one : all)
    if (one.is_object()) history.add(entry_of(one));
  return history;
}

LogHistory LogHistory::from_metrics(const std::string& path, std::int64_t last_step) {
  LogHistory history;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    auto object = rendezvous::parse_untrusted_json(line);
    if (!object.is_object()) continue;
    const auto kind = object.find("event");
    if (kind == object.end() || (*kind != event::kTrain && *kind != event::kEval)) continue;
    for (const char* name : {"time", "total_steps"}) object.erase(name);
    LogEntry entry = entry_of(object);
    std::erase_if(entry.values, [](const auto& one) { return is_measured(one.first); });
    if (entry.step <= last_step) history.add(std::move(entry));
  }
  return history;
}

void LogHistory::cut(std::int64_t last_step) {
  std::erase_if(entries_, [&](const LogEntry& entry) { return entry.step > last_step; });
}

std::string LogHistory::to_json(int indent) const {
  return array_of(entries_).dump(indent, ' ', false, kReplace);
}

std::vector<std::pair<double, double>> LogHistory::series(const std::string& name) const {
  std::vector<std::pair<double, double>> points;
  for (const auto& entry : entries_)
    if (const auto found = entry.values.find(name); found != entry.values.end())
      points.emplace_back(static_cast<double>(entry.step), found->second);
  return points;
}

std::string trainer_state_json(const TrainerState& state, const LogHistory& history) {
  const json all = {{"best_global_step", or_null(state.best_global_step)},
                    {"best_metric", or_null(state.best_metric)},
                    {"best_model_checkpoint", or_null(state.best_model_checkpoint)},
                    {"epoch", state.epoch},
                    {"eval_steps", json_number<json>(state.eval_steps)},
                    {"global_step", state.global_step},
                    {"is_hyper_param_search", false},
                    {"is_local_process_zero", true},
                    {"is_world_process_zero", true},
                    {"log_history", array_of(history.entries())},
                    {"logging_steps", json_number<json>(state.logging_steps)},
                    {"max_steps", state.max_steps},
                    {"num_input_tokens_seen", state.num_input_tokens_seen},
                    {"num_train_epochs", json_number<json>(state.num_train_epochs)},
                    {"save_steps", json_number<json>(state.save_steps)},
                    {"stateful_callbacks", json::object()},
                    {"total_flos", state.total_flos},
                    {"train_batch_size", state.train_batch_size},
                    {"trial_name", nullptr},
                    {"trial_params", nullptr}};
  return all.dump(2, ' ', false, kReplace) + "\n";
}

}  // namespace mgpu::telemetry
