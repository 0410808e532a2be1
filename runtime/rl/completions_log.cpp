#include "runtime/rl/completions_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/text_table.hpp"
#include "runtime/data/row.hpp"

namespace mgpu::rl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownText = 60;

void put_range(std::map<std::string, double>& metrics, const std::string& name,
               const std::vector<double>& lengths) {
  if (lengths.empty()) return;
  double sum = 0;
  for (const double length : lengths) sum += length;
  const auto [min, max] = std::minmax_element(lengths.begin(), lengths.end());
  metrics["completions/mean" + name] = sum / static_cast<double>(lengths.size());
  metrics["completions/min" + name] = *min;
  metrics["completions/max" + name] = *max;
}

struct HealthyRange {
  const char* name;
  double min, max;
  const char* advice;
};

constexpr HealthyRange kHealthyRanges[] = {
    {"frac_reward_zero_std", 0, .8,
     "in most groups all completions have the same reward, so they have no advantage; use easier "
     "or "
     "harder prompts, or raise num_generations"},
    {"kl", -1e-3, .5,
     "the policy drifts away from the reference model; raise beta or lower learning_rate"},
    {"entropy", .05, 5, "the policy has become deterministic (low) or random (high)"},
    {"clip_ratio/region_mean", 0, .1, "updates are large; lower learning_rate or num_iterations"},
    {"sampling/sampling_logp_difference/mean", 0, .1,
     "the generating model and the trained model disagree on the same tokens"},
    {"completions/clipped_ratio", 0, .3,
     "many completions are truncated; raise max_completion_length"},
};

}  // namespace

CompletionsLog::CompletionsLog(std::string folder, std::int64_t shown,
                               std::vector<std::string> rewards)
    : folder_(std::move(folder)), shown_(shown), rewards_(std::move(rewards)) {}

void CompletionsLog::write(std::int64_t step, const Generation& generation,
                           const std::vector<Prompt>& prompts) {
  if (folder_.empty()) return;
  fs::create_directories(folder_);
  const auto path = (fs::path(folder_) / fmt::format("completions_{:05}.jsonl", step)).string();
  std::ofstream file(path, step == last_written_ ? std::ios::app : std::ios::trunc);
  last_written_ = step;
  for (const auto& completion : generation.completions) {
    nlohmann::ordered_json line{{"step", step},
                                {"prompt", prompts[completion.prompt].text},
                                {"completion", completion.text},
                                {"terminated", completion.terminated}};
    for (std::size_t i = 0; i < rewards_.size(); ++i)
      line[rewards_[i]] =
          completion.rewards[i] ? nlohmann::ordered_json(*completion.rewards[i]) : nullptr;
    line["advantage"] = completion.advantage;
    file << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }
  file.flush();
  if (!file) throw std::runtime_error("cannot write " + path);
}

std::string CompletionsLog::table(const Generation& generation,
                                  const std::vector<Prompt>& prompts) const {
  if (shown_ <= 0) return {};
  std::vector<std::vector<std::string>> rows{{"prompt", "completion"}};
  for (const auto& name : rewards_) rows[0].push_back(name);
  rows[0].push_back("advantage");
  const auto count = std::min(static_cast<std::size_t>(shown_), generation.completions.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& completion = generation.completions[i];
    rows.push_back({data::printable(prompts[completion.prompt].text, kShownText),
                    data::printable(completion.text, kShownText)});
    for (const auto& reward : completion.rewards)
      rows.back().push_back(reward ? fmt::format("{:.3g}", *reward) : "-");
    rows.back().push_back(fmt::format("{:.3g}", completion.advantage));
  }
  return rendezvous::text_table(rows);
}

std::map<std::string, double> length_metrics(const std::vector<ScoredCompletion>& completions) {
  std::vector<double> lengths, terminated;
  for (const auto& completion : completions) {
    lengths.push_back(static_cast<double>(completion.tokens.size()));
    if (completion.terminated) terminated.push_back(lengths.back());
  }
  std::map<std::string, double> metrics;
  put_range(metrics, "_length", lengths);
  put_range(metrics, "_terminated_length", terminated);
  if (!completions.empty()) {
    const auto all = static_cast<double>(completions.size());
    metrics["completions/clipped_ratio"] = 1 - static_cast<double>(terminated.size()) / all;
  }
  return metrics;
}

std::vector<std::string> HealthWatch::warnings(const std::map<std::string, double>& metrics) {
  std::vector<std::string> lines;
  for (const auto& range : kHealthyRanges) {
    const auto found = metrics.find(range.name);
    if (found == metrics.end()) continue;
    if (found->second >= range.min && found->second <= range.max) {
      unhealthy_.erase(range.name);
      continue;
    }
    if (!unhealthy_.insert(range.name).second) continue;
    lines.push_back(
        fmt::format("warning: {} is {:.3g}; {}", range.name, found->second, range.advice));
  }
  return lines;
}

}  // namespace mgpu::rl
