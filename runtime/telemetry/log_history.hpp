#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/telemetry/values.hpp"

namespace mgpu::telemetry {

struct LogEntry {
  std::int64_t step = 0;
  double epoch = 0;
  Values values;
};

// Everything that a run logged, also before it was resumed: the log_history of trainer_state.json.
// A value that is not finite is null in JSON and NaN here.
class LogHistory {
 public:
  // Reads such a JSON array. Throws if it is not an array; skips values that are not numbers.
  static LogHistory from_json(const std::string& text);
  // Reads the lines of metrics.jsonl up to this step. Empty if the file cannot be read.
  static LogHistory from_metrics(const std::string& path, std::int64_t last_step);

  void add(LogEntry entry) { entries_.push_back(std::move(entry)); }
  // Removes the entries after this step.
  void cut(std::int64_t last_step);

  std::string to_json(int indent = -1) const;
  const std::vector<LogEntry>& entries() const { return entries_; }
  // Step and value of every entry that has this name.
  std::vector<std::pair<double, double>> series(const std::string& name) const;

 private:
  std::vector<LogEntry> entries_;
};

// The other values that transformers keeps in trainer_state.json.
struct TrainerState {
  std::int64_t global_step = 0;
  std::int64_t max_steps = 0;
  double epoch = 0;
  double num_train_epochs = 0;
  double logging_steps = 0;
  double eval_steps = 0;
  double save_steps = 0;
  std::int64_t train_batch_size = 0;
  std::int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  std::optional<double> best_metric = {};
  std::optional<std::int64_t> best_global_step = {};
  std::optional<std::string> best_model_checkpoint = {};
};

// The text of trainer_state.json, readable by transformers.
std::string trainer_state_json(const TrainerState& state, const LogHistory& history);

}  // namespace mgpu::telemetry
