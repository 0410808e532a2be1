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
  int rank = 0;            // only rank 0 shows and writes anything; the others' calls do nothing
  std::string output_dir;  // empty: the current folder
  std::string run_name;
  std::vector<std::string> report_to;  // tensorboard, wandb; none
  std::string logging_dir;             // of TensorBoard's files; empty: chosen in output_dir/runs
  bool plot_loss = true;
  std::string config;  // the recipe as it is used, for TensorBoard's text page; empty: none

  std::int64_t resume_step = 0;  // steps that were done before; 0: the run is new
  std::string log_history;       // the JSON array of the checkpoint's trainer_state.json

  int fd = 1;
  bool terminal = false;  // draw on it (see is_terminal); else plain lines
  bool colour = false;    // see wants_colour
  std::size_t width = 0;  // columns; 0: as the terminal says

  std::function<double()> clock = {};  // seconds since 1970; empty: the system's
};

// What a person sees of a run: the progress line, metrics.jsonl, TensorBoard's events, what wandb
// takes, the loss curve and the summary. One thread calls it. No call throws: what cannot be
// written is told once and left out, for training must not die of its own description.
//
// A new run puts an older one's metrics.jsonl aside (metrics.jsonl.1); a resumed one goes on in it
// and cuts off the lines of steps that are trained again.
class Telemetry {
 public:
  explicit Telemetry(Options options);
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;
  ~Telemetry();

  void step(const StepReport& report);
  // Values by their names, with or without "eval_".
  void evaluation(std::int64_t step, double epoch, const std::map<std::string, double>& metrics);
  // A line for the person, kept in metrics.jsonl too.
  void note(const std::string& text);
  // Prints the summary and writes train_results.json, all_results.json and training_loss.svg.
  void finish(const Summary& summary);

  // For trainer_state.json; empty on ranks other than 0.
  const LogHistory& history() const { return history_; }

 private:
  struct Outputs;
  void guarded(const std::function<void()>& work);
  void load_history();
  void plot();

  Options options_;
  LogHistory history_;
  std::unique_ptr<Outputs> outputs_;  // null on ranks that tell nothing
};

}  // namespace mgpu::telemetry
