#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "rendezvous/base/input_error.hpp"
#include "runtime/train/session.hpp"

namespace mgpu::train {

std::string Session::best_metric_name() const {
  const auto& name = config_.metric_for_best_model;
  return name.starts_with("eval_") ? name : "eval_" + name;
}

Session::BestModelDecision Session::evaluate_best_model(
    const std::map<std::string, double>& metrics) {
  BestModelDecision decision;
  const bool keeps = config_.load_best_model_at_end || config_.save_strategy == When::best;
  const auto name = best_metric_name();
  const auto found = metrics.find(name);
  if (found == metrics.end() && !keeps && config_.early_stopping_patience == 0) return decision;
  if (found == metrics.end()) {
    std::vector<std::string> there;
    for (const auto& [metric, value] : metrics) there.push_back(metric.substr(5));
    throw rendezvous::InputError(
        fmt::format("metric_for_best_model: unknown metric {}; available are {}",
                    config_.metric_for_best_model, fmt::join(there, ", ")));
  }
  const bool greater = config_.greater_is_better.value_or(!name.ends_with("loss"));
  const double gain = progress_.best_metric
                          ? (greater ? 1 : -1) * (found->second - *progress_.best_metric)
                          : std::numeric_limits<double>::infinity();
  if (gain > 0) {
    progress_.best_metric = found->second;
    progress_.best_step = progress_.step;
    decision.keep = keeps && progress_.step > 0;
  }
  if (gain > config_.early_stopping_threshold) {
    progress_.evaluations_without_gain = 0;
  } else if (++progress_.evaluations_without_gain >= config_.early_stopping_patience &&
             config_.early_stopping_patience > 0) {
    reporter_->note(fmt::format("{} has not improved in {} evaluations: stopping early", name,
                                config_.early_stopping_patience));
    decision.stop = true;
  }
  return decision;
}

}  // namespace mgpu::train
