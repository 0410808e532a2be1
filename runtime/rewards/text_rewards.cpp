#include "runtime/rewards/text_rewards.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "runtime/rewards/pattern.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::rewards {
namespace {

std::size_t count(std::string_view text, std::string_view piece) {
  std::size_t times = 0;
  for (auto at = text.find(piece); at != text.npos; at = text.find(piece, at + piece.size()))
    ++times;
  return times;
}

// Python's str.split().
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const bool end = at == text.size();
    const auto character = end ? text::jinja::Character{} : text::jinja::character_at(text, at);
    if (end || text::jinja::is_space(character.code)) {
      if (at > begin) words.push_back(text.substr(begin, at - begin));
      begin = at + character.length;
    }
    if (end) break;
    at += character.length;
  }
  return words;
}

template <class Word>
double repeated_share(const std::vector<Word>& words, int n) {
  const auto size = static_cast<std::size_t>(n);
  if (words.size() < size) return 0;
  std::set<std::vector<Word>> unique;
  const std::size_t total = words.size() - size + 1;
  for (std::size_t i = 0; i < total; ++i)
    unique.emplace(words.begin() + static_cast<std::ptrdiff_t>(i),
                   words.begin() + static_cast<std::ptrdiff_t>(i + size));
  return 1 - static_cast<double>(unique.size()) / static_cast<double>(total);
}

// Completions with this many numbered or named steps get the full score.
constexpr double kFullSteps = 3;
constexpr const char* kStep = R"((Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,))";

double penalty_for(double share, double penalty) {
  return share > 0 ? share * penalty : 0;
}

}  // namespace

double format_score(std::string_view completion) {
  constexpr std::string_view kBegin = "<think>\n";
  constexpr std::string_view kMiddle = "\n</think>\n<answer>\n";
  constexpr std::string_view kEnd = "\n</answer>";
  if (!completion.starts_with(kBegin)) return 0;
  const auto middle = completion.find(kMiddle, kBegin.size());
  if (middle == completion.npos) return 0;
  for (auto end = completion.find(kEnd, middle + kMiddle.size()); end != completion.npos;
       end = completion.find(kEnd, end + 1)) {
    const auto behind = end + kEnd.size();
    if (behind == completion.size() || completion[behind] == '\n') return 1;
  }
  return 0;
}

double tag_count_score(std::string_view completion) {
  double score = 0;
  for (const auto* tag : {"<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>"})
    if (count(completion, tag) == 1) score += 0.25;
  return score;
}

double think_format_score(std::string_view completion) {
  constexpr std::string_view kOpen = "<think>";
  if (!completion.starts_with(kOpen)) return 0;
  const auto rest = completion.substr(kOpen.size());
  return rest.find(kOpen) == rest.npos && rest.find("</think>") != rest.npos ? 1 : 0;
}

double repetition_score(std::string_view completion, int n, double penalty) {
  const std::string lower = text::jinja::lower(completion);
  return penalty_for(repeated_share(words_of(lower), n), penalty);
}

double repetition_score(std::span<const int> ids, int n, double penalty) {
  return penalty_for(repeated_share(std::vector<int>(ids.begin(), ids.end()), n), penalty);
}

double overlong_score(std::size_t tokens, int longest, int cache) {
  const auto length = static_cast<double>(tokens);
  const double free = longest - cache;
  if (length <= free) return 0;
  return length <= longest ? (free - length) / cache : -1;
}

double cosine_score(double progress, double at_zero, double at_full) {
  return at_full + 0.5 * (at_zero - at_full) * (1 + std::cos(progress * std::numbers::pi));
}

std::size_t characters(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::unique_ptr<Reward> make_text_reward(const std::string& name, const Settings& settings) {
  if (name == "format")
    return per_completion(name, [](const CompletionView& s) { return format_score(s.completion); });
  if (name == "tag_count")
    return per_completion(name,
                          [](const CompletionView& s) { return tag_count_score(s.completion); });
  if (name == "think_format" || name == "think_format_reward")
    return per_completion(name,
                          [](const CompletionView& s) { return think_format_score(s.completion); });
  if (name == "reasoning_steps")
    return per_completion(name, [step = Pattern(kStep, {})](const CompletionView& s) -> Score {
      return std::min(1.0, static_cast<double>(step.count(s.completion)) / kFullSteps);
    });
  const int n = settings.repetition_n_grams;
  const double penalty = settings.repetition_max_penalty;
  if (name == "repetition_penalty")
    return per_completion(
        name, [=](const CompletionView& s) { return repetition_score(s.completion, n, penalty); });
  if (name == "get_repetition_penalty_reward" || name == "repetition_penalty_reward")
    return per_completion(
        name, [=](const CompletionView& s) { return repetition_score(s.ids, n, penalty); });
  const bool trl =
      name == "get_soft_overlong_punishment" || name == "soft_overlong_punishment_reward";
  if (trl || name == "soft_overlong_punishment") {
    const int longest = settings.max_completion_len.value_or(trl ? 1280 : 16384);
    const int cache = settings.soft_punish_cache.value_or(trl ? 256 : 4096);
    return per_completion(name, [=](const CompletionView& s) {
      return overlong_score(s.ids.size(), longest, cache);
    });
  }
  return nullptr;
}

}  // namespace mgpu::rewards
