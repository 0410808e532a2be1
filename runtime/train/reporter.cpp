#include "runtime/train/reporter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/train/device.hpp"

namespace mgpu::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

struct Reporter::Sinks {
  std::ofstream metrics;
};

Reporter::Reporter(const TrainConfig& config, Facts facts)
    : facts_(std::move(facts)), begin_(Clock::now()), last_(begin_) {
  if (facts_.rank != 0) return;
  sinks_ = std::make_unique<Sinks>();
  sinks_->metrics.open(std::filesystem::path(config.output_dir) / "metrics.jsonl", std::ios::app);
}

Reporter::~Reporter() = default;

void Reporter::note(const std::string& line) {
  if (facts_.rank == 0) fmt::print("{}\n", line);
}

nlohmann::json Reporter::interval(const Interval& i) {
  const double seconds = std::max(1e-9, seconds_since(last_));
  last_ = Clock::now();
  const double labels = static_cast<double>(std::max<std::int64_t>(1, i.labels));
  nlohmann::json entry{{"step", i.step},
                       {"epoch", i.epoch},
                       {"loss", i.loss_sum / labels},
                       {"grad_norm", i.grad_norm},
                       {"learning_rate", i.learning_rate},
                       {"mean_token_accuracy", i.correct / labels},
                       {"entropy", i.entropy_sum / labels},
                       {"num_tokens", i.tokens}};
  if (facts_.rank == 0) {
    sinks_->metrics << entry.dump() << "\n" << std::flush;
    fmt::print("step {}/{} | loss {:.4f} | lr {:.3e} | norm {:.3f} | {:.0f} tok/s\n", i.step,
               i.total_steps, i.loss_sum / labels, i.learning_rate, i.grad_norm,
               static_cast<double>(i.tokens) / seconds);
    std::fflush(stdout);
  }
  return entry;
}

nlohmann::json Reporter::evaluation(std::int64_t step, double epoch,
                                    const std::map<std::string, double>& metrics) {
  nlohmann::json entry{{"step", step}, {"epoch", epoch}};
  for (const auto& [name, value] : metrics) entry[name] = value;
  if (facts_.rank == 0) {
    sinks_->metrics << entry.dump() << "\n" << std::flush;
    fmt::print("step {} | eval_loss {:.4f}\n", step, metrics.at("eval_loss"));
  }
  return entry;
}

void Reporter::summary(const Interval& whole, const std::string& where) {
  if (facts_.rank != 0) return;
  const double seconds = seconds_since(begin_);
  fmt::print("train_runtime {:.2f} s, {:.1f} tokens/s, train_loss {:.4f}; {}\n", seconds,
             static_cast<double>(whole.tokens) / seconds,
             whole.loss_sum / static_cast<double>(std::max<std::int64_t>(1, whole.labels)), where);
}

}  // namespace mgpu::train
