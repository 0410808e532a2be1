#include "runtime/rollout/generation_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace mgpu::rollout {
namespace {

constexpr std::size_t kSpecialTokens = 8;  // that may lie within a stop text and have no text

void check_allowed(const GenerationSettings& settings, std::int64_t vocabulary) {
  const auto& allowed = *settings.allowed;
  const auto& stops = settings.stop_tokens;
  if (std::ranges::find(stops, allowed.end_token()) == stops.end())
    throw std::runtime_error(fmt::format(
        "the end token {} of the allowed completions is not a stop token", allowed.end_token()));
  for (const auto stop : stops)
    if (std::ranges::binary_search(allowed.vocabulary(), stop))
      throw std::runtime_error(
          fmt::format("an allowed completion contains the stop token {} before its end", stop));
  const auto largest = std::max(allowed.vocabulary().back(), allowed.end_token());
  if (largest >= vocabulary)
    throw std::runtime_error(fmt::format(
        "an allowed completion contains the token {}, but the model's vocabulary has {} tokens",
        largest, vocabulary));
}

}  // namespace

std::optional<StopReason> stop_reason(std::span<const std::int32_t> tokens,
                                      const GenerationSettings& settings) {
  const auto& stops = settings.stop_tokens;
  if (std::find(stops.begin(), stops.end(), tokens.back()) != stops.end())
    return StopReason::stop_token;
  for (const auto& stop : settings.stop_texts) {
    // Every token except special ones has at least one byte of text.
    const auto tail = std::min(tokens.size(), stop.size() + kSpecialTokens);
    const auto text = settings.text_of(tokens.last(tail));
    if (text.find(stop) != std::string::npos) return StopReason::stop_text;
  }
  if (static_cast<std::int64_t>(tokens.size()) >= settings.max_tokens) return StopReason::length;
  return std::nullopt;
}

void check_settings(const GenerationSettings& settings, std::int64_t vocabulary) {
  if (settings.allowed != nullptr) check_allowed(settings, vocabulary);
  if (settings.beams.count == 0) return;
  if (settings.repetition_penalty != 1)
    throw std::runtime_error("beam search does not support a repetition penalty");
  const auto beams = static_cast<std::size_t>(settings.beams.count);
  if (settings.allowed != nullptr && beams > settings.allowed->size())
    throw std::runtime_error(
        fmt::format("{} beams are requested, but only {} different completions are allowed", beams,
                    settings.allowed->size()));
}

}  // namespace mgpu::rollout
