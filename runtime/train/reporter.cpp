#include "runtime/train/reporter.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "rendezvous/base/printable.hpp"
#include "runtime/telemetry/peak_flops.hpp"
#include "runtime/telemetry/screen.hpp"
#include "runtime/telemetry/telemetry.hpp"
#include "runtime/train/device.hpp"

namespace mgpu::train {
namespace {

telemetry::Options options_of(const TrainConfig& config, const Reporter::Facts& facts) {
  telemetry::Options options;
  options.rank = facts.rank;
  options.output_dir = config.output_dir;
  options.run_name = config.run_name;
  options.wandb_project = config.wandb_project;
  options.report_to = config.report_to;
  options.logging_dir = config.logging_dir;
  options.plot_loss = config.plot_loss;
  options.resume_step = facts.first_step;
  options.log_history = facts.log_history;
  options.terminal = telemetry::is_terminal(STDOUT_FILENO);
  options.colour = telemetry::wants_colour(STDOUT_FILENO);
  return options;
}

// NaN if every step was skipped: the mean is unknown, not 0.
double per_target_token(double sum, const Interval& interval) {
  return interval.target_tokens > 0 ? sum / static_cast<double>(interval.target_tokens)
                                    : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

struct Reporter::Sinks {
  telemetry::Telemetry telemetry;
};

Reporter::Reporter(const TrainConfig& config, Facts facts)
    : facts_(std::move(facts)), begin_(Clock::now()), last_(begin_) {
  sinks_.reset(new Sinks{telemetry::Telemetry(options_of(config, facts_))});
}

Reporter::~Reporter() = default;

double Reporter::since(Clock::time_point& from) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - from).count();
  from = now;
  return std::max(seconds, 1e-9);
}

void Reporter::note(const std::string& line) {
  sinks_->telemetry.note(rendezvous::printable_output(line));
}

void Reporter::start(std::int64_t step, const telemetry::StartReport& report) {
  sinks_->telemetry.start(step, report);
}

void Reporter::checkpoint(const telemetry::CheckpointReport& report) {
  sinks_->telemetry.checkpoint(report);
}

// The peak of every GPU, by number: those of all ranks, and those on which this rank has the
// reference model or a reward model.
std::map<std::int64_t, std::int64_t> Reporter::memory_by_gpu(const Interval& interval) const {
  std::map<std::int64_t, std::int64_t> bytes;
  const auto number_of = [&](std::size_t rank) {
    return facts_.rank_gpus.empty() ? static_cast<std::int64_t>(rank) : facts_.rank_gpus[rank];
  };
  for (std::size_t rank = 0; rank < interval.rank_memory.size(); ++rank)
    bytes[number_of(rank)] = interval.rank_memory[rank];
  auto& own = bytes[number_of(static_cast<std::size_t>(facts_.rank))];
  own = std::max(own, peak_memory(facts_.device));
  for (const auto device : facts_.other_devices) bytes[device.index()] = peak_memory(device);
  return bytes;
}

void Reporter::interval(const Interval& i) {
  const double seconds = since(last_);
  const auto memory = device_memory(facts_.device);
  telemetry::StepReport report;
  report.step = i.step;
  report.total_steps = i.total_steps;
  report.epoch = i.epoch;
  report.loss = i.loss.value_or(per_target_token(i.loss_sum, i));
  report.learning_rate = i.learning_rate;
  report.grad_norm = i.grad_norm;
  report.tokens = i.tokens;
  report.label_tokens = i.target_tokens;
  report.seconds = seconds;
  report.flops = i.flops;
  report.peak_tflops_per_gpu = telemetry::peak_tflops(facts_.device_name);
  report.world = facts_.world;
  report.memory_by_gpu = memory_by_gpu(i);
  report.memory_total = memory.total;
  report.comm_share = facts_.world > 1 ? std::min(1.0, i.comm_seconds / seconds) : -1;
  skipped_ += i.skipped;
  report.skipped_steps = skipped_;
  report.loss_scale = i.loss_scale;
  report.loss_scale_changed = loss_scale_ > 0 && i.loss_scale != loss_scale_;
  loss_scale_ = i.loss_scale;
  report.extra = i.extra;
  for (const auto& [label, value] : i.highlights) report.highlights.push_back({label, value});
  if (i.extra.empty()) {
    report.extra = {{"mean_token_accuracy", per_target_token(i.correct, i)},
                    {"entropy", per_target_token(i.entropy_sum, i)}};
  }
  sinks_->telemetry.step(report);
}

void Reporter::evaluation(std::int64_t step, double epoch,
                          const std::map<std::string, double>& metrics) {
  sinks_->telemetry.evaluation(step, epoch, metrics);
  last_ = Clock::now();  // exclude the evaluation from the next interval
}

void Reporter::summary(const Interval& whole) {
  auto begin = begin_;
  telemetry::Summary summary;
  summary.step = whole.step;
  summary.epoch = whole.epoch;
  summary.train_loss = whole.loss.value_or(per_target_token(whole.loss_sum, whole));
  summary.train_runtime = since(begin);
  summary.samples = whole.examples;
  summary.steps = whole.steps;
  summary.tokens = whole.tokens;
  summary.label_tokens = whole.target_tokens;
  summary.flops = whole.flops;
  summary.total_flos = summary.flops;
  summary.peak_tflops_per_gpu = telemetry::peak_tflops(facts_.device_name);
  summary.world = facts_.world;
  const auto memory = device_memory(facts_.device);
  summary.peak_memory_by_gpu = memory_by_gpu(whole);
  summary.planned_memory_bytes = facts_.planned_bytes;
  if (facts_.device.is_cuda()) {
    summary.extra = {{"peak_memory_reserved_bytes", static_cast<double>(memory.peak_reserved)},
                     {"gpu_memory_used_bytes", static_cast<double>(memory.used)}};
  }
  summary.extra.insert(whole.extra.begin(), whole.extra.end());
  summary.skipped_steps = whole.skipped;
  sinks_->telemetry.finish(summary);
}

void Reporter::status(const std::string& json) {
  sinks_->telemetry.status(json);
}

std::string Reporter::log_history() const {
  return sinks_->telemetry.history().to_json();
}

}  // namespace mgpu::train
