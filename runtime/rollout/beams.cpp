#include "runtime/rollout/beams.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace mgpu::rollout {

Beams::Beams(const GenerationSettings& settings)
    : settings_(&settings), count_(static_cast<std::size_t>(settings.beams.count)), running_(1) {}

// In the worst case every stop token is among the most likely continuations of every beam.
std::int64_t Beams::candidates() const {
  const auto stops = static_cast<std::int64_t>(settings_->stop_tokens.size());
  return std::max<std::int64_t>(2, 1 + stops) * settings_->beams.count;
}

void Beams::advance(const std::vector<Continuation>& continuations) {
  std::vector<std::pair<float, std::size_t>> order;  // score, number of the continuation
  for (std::size_t i = 0; i < continuations.size(); ++i)
    order.emplace_back(running_[continuations[i].beam].score + continuations[i].log_prob, i);
  const auto kept = std::min(order.size(), static_cast<std::size_t>(candidates()));
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(kept);
  // Of equal scores the first one wins.
  std::partial_sort(order.begin(), end, order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  ++length_;
  const auto before = std::exchange(running_, {});
  for (std::size_t rank = 0; rank < kept; ++rank) {
    const auto [score, number] = order[rank];
    const auto& [parent, token, log_prob] = continuations[number];
    const auto last = static_cast<std::ptrdiff_t>(tokens_.size());
    tokens_.push_back({before[parent].last, token, log_prob});
    if (const auto reason = ends(last)) {
      // As in transformers, the candidates after the first `count` only replace those that ended.
      if (rank < count_) complete_.push_back({penalized(score, length_), last, *reason});
    } else if (running_.size() < count_) {
      const auto node = settings_->allowed == nullptr
                            ? AllowedSequences::kStart
                            : settings_->allowed->after(before[parent].node, token);
      running_.push_back({score, parent, token, last, node});
    }
  }
  std::ranges::stable_sort(complete_, std::greater<>(), &Complete::score);
  if (complete_.size() > count_) complete_.resize(count_);
  if (!can_improve()) running_.clear();
}

bool Beams::can_improve() const {
  if (running_.empty()) return false;
  if (complete_.size() < count_) return true;
  using enum BeamSettings::EarlyStopping;
  const auto& [count, length_penalty, early_stopping] = settings_->beams;
  if (early_stopping == yes || count == 1) return false;
  const bool may_grow = early_stopping == never && length_penalty > 0;
  return penalized(running_.front().score, may_grow ? settings_->max_tokens : length_) >
         complete_.back().score;
}

float Beams::penalized(float score, std::int64_t length) const {
  return score /
         static_cast<float>(std::pow(static_cast<double>(length), settings_->beams.length_penalty));
}

std::vector<std::int32_t> Beams::tokens_until(std::ptrdiff_t last) const {
  std::vector<std::int32_t> tokens;
  for (; last >= 0; last = tokens_[static_cast<std::size_t>(last)].previous)
    tokens.push_back(tokens_[static_cast<std::size_t>(last)].id);
  std::ranges::reverse(tokens);
  return tokens;
}

std::optional<StopReason> Beams::ends(std::ptrdiff_t last) const {
  return stop_reason(tokens_until(last), *settings_);
}

std::vector<Completion> Beams::completions() const {
  std::vector<Completion> all;
  for (const auto& [score, last, reason] : complete_) {
    auto& one = all.emplace_back();
    one.tokens = tokens_until(last);
    for (auto at = last; at >= 0; at = tokens_[static_cast<std::size_t>(at)].previous)
      one.log_probs.push_back(tokens_[static_cast<std::size_t>(at)].log_prob);
    std::ranges::reverse(one.log_probs);
    one.stop_reason = reason;
    one.score = score;
  }
  return all;
}

}  // namespace mgpu::rollout
