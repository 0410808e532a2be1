#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/telemetry/log_history.hpp"
#include "runtime/telemetry/report.hpp"

namespace mgpu::telemetry {

struct Options {
  int rank = 0;  // only rank 0 shows and writes anything; on other ranks, calls do nothing
  std::string output_dir;  // empty: the current folder
  std::string run_name;
  std::string wandb_project;
  std::vector<std::string> report_to;  // tensorboard, wandb; none
  std::string logging_dir;             // for TensorBoard's files; empty: see event_folder
  bool plot_loss = true;
  std::string config;  // the effective recipe, for TensorBoard's text page; empty: none

  std::int64_t resume_step = 0;  // completed steps of the resumed run; 0: a new run
  std::string log_history;       // the JSON array of the checkpoint's trainer_state.json

  int fd = 1;
  bool terminal = false;  // redraw one line (see is_terminal); else plain lines
  bool colour = false;    // see wants_colour
  std::size_t width = 0;  // columns; 0: the terminal's width

  std::function<double()> clock = {};  // seconds since 1970; empty: the system clock
};

// All output of a run: the progress line, metrics.jsonl, TensorBoard events, the wandb files, the
// loss curve and the summary. It must be called by one thread only. No call throws: output that
// cannot be written is reported once and left out, because logging must not stop training.
//
// A new run renames an older metrics.jsonl (to metrics.jsonl.1). A resumed run appends to it and
// first removes the lines of steps that are trained again.
class Telemetry {
 public:
  explicit Telemetry(Options options);
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;
  ~Telemetry();

  void step(const StepReport& report);
  // Values by name, with or without the prefix "eval_".
  void evaluation(std::int64_t step, double epoch, const std::map<std::string, double>& metrics);
  // A line for the user, also written to metrics.jsonl.
  void note(const std::string& text);
  // How long it took until the first step was done.
  void start(std::int64_t step, const StartReport& report);
  // How long a checkpoint took; only in metrics.jsonl.
  void checkpoint(const CheckpointReport& report);
  // Replaces training_status.json.
  void status(const std::string& json);
  // Prints the summary and writes train_results.json, all_results.json and training_loss.svg.
  void finish(const Summary& summary);

  // For trainer_state.json; empty on ranks other than 0.
  const LogHistory& history() const { return history_; }

 private:
  struct Outputs;
  void report_errors(const std::function<void()>& work);
  void load_history();
  void plot();

  Options options_;
  LogHistory history_;
  std::unique_ptr<Outputs> outputs_;  // null on ranks other than 0
};

}  // namespace mgpu::telemetry
