// Computes losses for tests/peers/test_grpo_loss.py, which compares them with formulas in torch.
//   grpo_loss CASES.json OUTPUT.json
// A case with "rows" is about advantages: {"rows", "groups", "weights", "scale", "aggregation"}.
// Any other is {"settings": {recipe key: value}, "denominators": {...}, "double": bool, and lists
// of numbers by the names of LossInput}. The answer is a list of {"loss", "log_prob_gradient",
// "entropy_gradient", "metrics"}, plus "entropy_threshold" if the case has a quantile.
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/grpo/advantages.hpp"
#include "runtime/grpo/loss.hpp"

namespace {

using namespace mgpu;
using nlohmann::json;

std::vector<double> numbers(const json& list) {
  std::vector<double> all;
  for (const auto& item : list)
    all.push_back(item.is_null() ? std::numeric_limits<double>::quiet_NaN() : item.get<double>());
  return all;
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const auto host = tensor.to(at::kCPU).to(at::kDouble).contiguous();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

grpo::LossInput input_of(const json& one, at::ScalarType dtype) {
  const auto tensor = [&](const char* name, at::ScalarType type) {
    if (!one.contains(name)) return at::Tensor();
    return at::tensor(numbers(one.at(name)), at::kDouble).to(type);
  };
  return {.log_probs = tensor("log_probs", dtype),
          .entropies = tensor("entropies", dtype),
          .old_log_probs = tensor("old_log_probs", dtype),
          .ref_log_probs = tensor("ref_log_probs", dtype),
          .sampler_log_probs = tensor("sampler_log_probs", dtype),
          .sequence = tensor("sequence", at::kLong),
          .advantages = tensor("advantages", dtype),
          .weights = tensor("weights", dtype),
          .entropy_threshold = {}};
}

grpo::Denominators denominators_of(const json& one) {
  return {.completions = one.at("completions"),
          .tokens = one.at("tokens"),
          .micro_batches = one.at("micro_batches"),
          .generation_completions = one.at("generation_completions"),
          .generation_tokens = one.at("generation_tokens"),
          .max_completion_length = one.at("max_completion_length")};
}

json advantages_of(const json& one) {
  grpo::Scores scores{
      .functions = {}, .weights = one.at("weights"), .rows = {}, .groups = one.at("groups")};
  for (std::size_t i = 0; i < scores.weights.size(); ++i)
    scores.functions.push_back(fmt::format("f{}", i));
  for (const auto& row : one.at("rows")) {
    scores.rows.emplace_back();
    for (const auto& score : row)
      scores.rows.back().push_back(score.is_null() ? std::nullopt
                                                   : std::optional(score.get<double>()));
  }
  train::TrainConfig config;
  config.grpo["scale_rewards"] = one.at("scale");
  config.grpo["multi_objective_aggregation"] = one.at("aggregation");
  const auto got = grpo::advantages(scores, grpo::advantage_options(config));
  return {{"advantages", got.advantages}, {"metrics", got.metrics}};
}

json answer(const json& one) {
  if (one.contains("rows")) return advantages_of(one);
  train::TrainConfig config;
  config.task = train::Task::grpo;
  for (const auto& [key, value] : one.at("settings").items())
    config.grpo[key] = value.is_string() ? value.get<std::string>() : value.dump();
  const auto settings = grpo::loss_settings(config);
  auto input = input_of(one, one.at("double") ? at::kDouble : at::kFloat);
  if (settings.top_entropy_quantile < 1)
    input.entropy_threshold =
        grpo::entropy_threshold(grpo::entropies_to_share(input), settings.top_entropy_quantile);
  const auto loss = grpo::loss(input, settings, denominators_of(one.at("denominators")));
  json out{{"loss", numbers(loss.value).at(0)},
           {"log_prob_gradient", numbers(loss.log_prob_gradient)},
           {"metrics",
            grpo::metric_values(settings, numbers(loss.metrics.sums), numbers(loss.metrics.most))}};
  if (loss.entropy_gradient.defined()) out["entropy_gradient"] = numbers(loss.entropy_gradient);
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("CASES OUTPUT");
  std::ifstream in(argv[1]);
  json out = json::array();
  for (const auto& one : json::parse(in)) out.push_back(answer(one));
  std::ofstream(argv[2]) << out.dump();
} catch (const std::exception& e) {
  fmt::print(stderr, "grpo_loss: {}\n", e.what());
  return 1;
}
