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

}  // namespace mgpu::rl
