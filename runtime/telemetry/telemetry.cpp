#include "runtime/telemetry/telemetry.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "runtime/telemetry/event_file.hpp"
#include "runtime/telemetry/event_folder.hpp"
#include "runtime/telemetry/loss_curve.hpp"
#include "runtime/telemetry/metrics_file.hpp"
#include "runtime/telemetry/output_file.hpp"
#include "runtime/telemetry/progress.hpp"
#include "runtime/telemetry/screen.hpp"
#include "runtime/telemetry/summary.hpp"
#include "runtime/telemetry/wandb_export.hpp"

namespace mgpu::telemetry {
namespace {

double system_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Replaces control characters that could move a terminal's cursor.
std::string printable(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) c = ' ';
  return text;
}

// TensorBoard's text page is Markdown, which shows indented lines unchanged.
std::string as_markdown(const std::string& text) {
  std::istringstream in(text);
  std::string indented;
  for (std::string line; std::getline(in, line);) indented += "    " + line + "\n";
  return indented;
}

std::string evaluation_text(std::int64_t step, const Values& values) {
  std::string text = fmt::format("evaluation at step {}:", step);
  for (const auto& [name, value] : values)
    text += fmt::format("  {} {:.5g}", name.substr(5), value);
  return text;
}

// Parts that take no time worth reading are left out.
std::string start_text(const StartReport& report) {
  constexpr double kShortest = 0.05;
  std::string text;
  for (const auto& part : report.parts) {
    const double seconds = part.end - part.begin;
    if (seconds >= kShortest)
      text += fmt::format("{} {} {:.1f} s", text.empty() ? ":" : ",", part.name, seconds);
  }
  return fmt::format("first step done {:.1f} s after the start{}", report.seconds, text);
}

}  // namespace

struct Telemetry::Outputs {
  explicit Outputs(const Options& options)
      : screen({options.fd, options.terminal, options.width, options.colour}),
        estimator(options.resume_step),
        clock(options.clock ? options.clock : system_clock),
        step(options.resume_step) {}

  void open_metrics(const std::string& path, std::int64_t resume_step) {
    KeptLines kept{-1, 0};
    if (resume_step > 0)
      kept = lines_to_keep(path, resume_step);
    else if (const auto aside = set_aside(path); !aside.empty())
      screen.print(fmt::format("moved the metrics of an earlier run to {}", aside));
    metrics = OutputFile(path, on_error, kept.bytes);
    if (resume_step > 0) metrics.append(resume_line(resume_step, kept.dropped, clock()));
  }

  void open_events(const Options& options) {
    const bool resumed = options.resume_step > 0;
    const auto folder =
        event_folder(options.output_dir, options.logging_dir, options.run_name, resumed, clock());
    make_folder(folder, on_error);
    events.emplace(folder, clock(), on_error);
    if (resumed) events->add(restart_event(clock(), options.resume_step + 1));
    if (!options.config.empty())
      events->add(text_event(clock(), options.resume_step, "args/text_summary",
                             as_markdown(options.config)));
  }

  // Logs to TensorBoard and wandb.
  void log(std::int64_t at, double epoch, const Values& values) {
    if (events) {
      for (const auto& [name, value] : values)
        events->add(scalar_event(clock(), at, tag_of(name), value));
      events->add(scalar_event(clock(), at, tag_of("epoch"), epoch));
    }
    if (wandb) wandb->add(at, epoch, values, clock());
  }

  ErrorCallback on_error = [this](const std::string& what) {
    screen.print(printable("telemetry: " + what));
  };
  Screen screen;
  ProgressEstimator estimator;
  std::function<double()> clock;
  std::int64_t step;
  OutputFile metrics;
  std::optional<EventFile> events;
  std::optional<WandbExport> wandb;
  Values last_eval;
  bool status_failed = false;  // already reported
};

Telemetry::Telemetry(Options options) : options_(std::move(options)) {
  if (options_.rank != 0) return;
  if (options_.output_dir.empty()) options_.output_dir = ".";
  outputs_ = std::make_unique<Outputs>(options_);
  report_errors([&] { make_folder(options_.output_dir, outputs_->on_error); });
  report_errors([&] { load_history(); });
  report_errors([&] {
    outputs_->open_metrics(options_.output_dir + "/metrics.jsonl", options_.resume_step);
  });
  report_errors([&] {
    if (has(options_.report_to, "tensorboard")) outputs_->open_events(options_);
  });
  report_errors([&] {
    if (!has(options_.report_to, "wandb")) return;
    auto& wandb = outputs_->wandb;
    wandb.emplace(options_.output_dir, WandbRun{options_.run_name, options_.wandb_project},
                  options_.resume_step, outputs_->clock(), outputs_->on_error);
    outputs_->screen.print(wandb->upload_hint());
  });
}

Telemetry::~Telemetry() = default;

void Telemetry::report_errors(const std::function<void()>& work) {
  if (!outputs_) return;
  try {
    work();
  } catch (const std::exception& failure) {
    outputs_->on_error(failure.what());
  }
}

void Telemetry::load_history() {
  if (options_.resume_step <= 0) return;
  // The history from metrics.jsonl is used if that of the checkpoint is unusable.
  history_ = LogHistory::from_metrics(options_.output_dir + "/metrics.jsonl", options_.resume_step);
  if (!options_.log_history.empty()) history_ = LogHistory::from_json(options_.log_history);
  history_.cut(options_.resume_step);
}

void Telemetry::step(const StepReport& report) {
  report_errors([&] {
    auto& out = *outputs_;
    out.step = report.step;
    const ProgressEstimate estimate = out.estimator.update(report);
    out.screen.draw([&](std::size_t width, bool colour) {
      return progress_line(report, estimate, width, colour);
    });
    out.metrics.append(train_line(report, out.clock()));
    auto values = logged_values(report);
    history_.add({report.step, report.epoch, values});
    values.merge(measured_values(report));
    out.log(report.step, report.epoch, values);
  });
}

void Telemetry::evaluation(std::int64_t step, double epoch,
                           const std::map<std::string, double>& metrics) {
  report_errors([&] {
    auto& out = *outputs_;
    const auto values = eval_values(metrics);
    out.step = step;
    out.last_eval = values;
    out.screen.print(evaluation_text(step, values));
    out.metrics.append(values_line(event::kEval, step, epoch, values, out.clock()));
    history_.add({step, epoch, values});
    out.log(step, epoch, values);
  });
}

void Telemetry::note(const std::string& text) {
  report_errors([&] {
    outputs_->screen.print(printable(text));
    outputs_->metrics.append(note_line(outputs_->step, text, outputs_->clock()));
  });
}

void Telemetry::start(std::int64_t step, const StartReport& report) {
  report_errors([&] {
    outputs_->screen.print(start_text(report));
    outputs_->metrics.append(start_line(step, report, outputs_->clock()));
  });
}

void Telemetry::checkpoint(const CheckpointReport& report) {
  report_errors([&] { outputs_->metrics.append(checkpoint_line(report, outputs_->clock())); });
}

void Telemetry::status(const std::string& json) {
  report_errors([&] {
    replace_file(options_.output_dir + "/training_status.json", json, [&](const std::string& what) {
      if (!std::exchange(outputs_->status_failed, true)) outputs_->on_error(what);
    });
  });
}

void Telemetry::finish(const Summary& summary) {
  report_errors([&] {
    auto& out = *outputs_;
    const auto values = summary_values(summary);
    out.screen.finish_line();
    out.screen.print(summary_text(summary));
    out.metrics.append(
        values_line(event::kSummary, summary.step, summary.epoch, values, out.clock()));
    history_.add({summary.step, summary.epoch, values});
    out.log(summary.step, summary.epoch, values);
    write_results(options_.output_dir, values, out.last_eval, out.on_error);
  });
  report_errors([&] {
    if (options_.plot_loss) plot();
  });
}

void Telemetry::plot() {
  const auto svg = loss_curve_svg(options_.run_name.empty() ? "loss" : options_.run_name,
                                  history_.series("loss"), history_.series("eval_loss"));
  if (svg.empty()) return;
  const auto path = options_.output_dir + "/training_loss.svg";
  replace_file(path, svg, [&](const std::string& what) { outputs_->on_error(what); });
}

}  // namespace mgpu::telemetry
