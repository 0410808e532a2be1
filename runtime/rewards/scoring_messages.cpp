// The two lines of a request for scores: what is sent, and what an answer may be. No I/O.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/rewards/external_reward.hpp"

namespace mgpu::rewards {
namespace {

using nlohmann::json;

constexpr std::size_t kShown = 160;  // bytes shown of an answer

json prompt_of(const CompletionView& s) {
  if (s.prompt != nullptr) return *s.prompt;
  if (const auto prompt = s.row->find("prompt"); prompt != s.row->end()) return *prompt;
  for (const auto* column : {"problem", "question"})
    if (const auto found = s.row->find(column); found != s.row->end())
      return json::array({{{"role", "user"}, {"content", *found}}});
  return nullptr;
}

json completion_json(const CompletionView& s, const json& prompt) {
  std::string text(s.completion);
  if (!prompt.is_array() && !prompt.is_null()) return text;
  return json::array({{{"role", "assistant"}, {"content", std::move(text)}}});
}

}  // namespace

std::string request_line(std::span<const CompletionView* const> group) {
  json columns = json::object();
  for (const auto* s : group)
    for (const auto& [column, value] : s->row->items())
      if (column != "prompt" && column != "completion" && !columns.contains(column))
        columns[column] = json::array();
  json request = {{"prompts", json::array()},
                  {"completions", json::array()},
                  {"completion_ids", json::array()},
                  {"truncated", json::array()}};
  for (const auto* s : group) {
    auto prompt = prompt_of(*s);
    request["completions"].push_back(completion_json(*s, prompt));
    request["prompts"].push_back(std::move(prompt));
    request["completion_ids"].push_back(std::vector<int>(s->ids.begin(), s->ids.end()));
    request["truncated"].push_back(s->truncated);
    for (auto& [column, values] : columns.items())
      values.push_back(s->row->contains(column) ? (*s->row)[column] : json());
  }
  request["columns"] = std::move(columns);
  return request.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<Score> parse_scores(const std::string& answer, std::size_t count) {
  const auto parsed = rendezvous::parse_untrusted_json(answer);
  if (parsed.is_discarded())
    throw std::runtime_error("its answer is not JSON: " + rendezvous::shown(answer, kShown));
  if (parsed.is_object() && parsed.contains("error"))
    throw std::runtime_error("it failed: " +
                             rendezvous::shown(parsed["error"].is_string()
                                                   ? parsed["error"].get<std::string>()
                                                   : parsed["error"].dump(),
                                               1000));
  if (!parsed.is_object() || !parsed.contains("scores") || !parsed["scores"].is_array())
    throw std::runtime_error("its answer has no list of scores: " +
                             rendezvous::shown(answer, kShown));
  const auto& list = parsed["scores"];
  if (list.size() != count)
    throw std::runtime_error(
        fmt::format("it returned {} scores for {} completions", list.size(), count));
  std::vector<Score> scores;
  for (const auto& value : list) {
    if (value.is_null()) {
      scores.push_back(std::nullopt);
      continue;
    }
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      throw std::runtime_error(fmt::format("its score of completion {} is {}, not a finite number",
                                           scores.size() + 1, rendezvous::shown(value.dump())));
    scores.push_back(value.get<double>());
  }
  return scores;
}

}  // namespace mgpu::rewards
