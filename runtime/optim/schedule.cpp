#include "runtime/optim/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace mgpu::optim {
namespace {

using std::numbers::pi;

// The keywords that each schedule accepts, with their defaults.
const std::vector<std::pair<std::string, std::map<std::string, double>>>& known() {
  static const std::vector<std::pair<std::string, std::map<std::string, double>>> table{
      {"linear", {}},
      {"cosine", {{"num_cycles", 0.5}}},
      {"cosine_with_restarts", {{"num_cycles", 1}}},
      {"polynomial", {{"lr_end", 1e-7}, {"power", 1}}},
      {"constant", {}},
      {"constant_with_warmup", {}},
      {"inverse_sqrt", {{"timescale", 0}}},
      {"cosine_with_min_lr", {{"num_cycles", 0.5}, {"min_lr", 0}, {"min_lr_rate", 0}}},
      {"cosine_warmup_with_min_lr",
       {{"num_cycles", 0.5}, {"min_lr", 0}, {"min_lr_rate", 0}, {"warmup_lr_rate", 0}}},
      {"warmup_stable_decay",
       {{"num_decay_steps", 0}, {"num_stable_steps", 0}, {"min_lr_ratio", 0}, {"num_cycles", 0.5}}},
  };
  return table;
}

double half_cosine(double cycles, double progress) {
  return 0.5 * (1 + std::cos(2 * pi * cycles * progress));
}

}  // namespace

const std::vector<std::string>& Schedule::names() {
  static const auto list = [] {
    std::vector<std::string> names;
    for (const auto& [name, keywords] : known()) names.push_back(name);
    return names;
  }();
  return list;
}

Schedule::Schedule(const std::string& name, double peak, double warmup, std::int64_t total,
                   const std::map<std::string, double>& keywords)
    : peak_(peak), total_(total) {
  const auto& table = known();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (found == table.end()) {
    throw std::runtime_error(
        fmt::format("lr_scheduler_type: unknown scheduler {}; supported are {}", name,
                    fmt::join(names(), ", ")));
  }
  kind_ = static_cast<Kind>(found - table.begin());
  keywords_ = found->second;
  for (const auto& [key, value] : keywords) {
    const auto known_key = keywords_.find(key);
    if (known_key == keywords_.end()) {
      throw std::runtime_error(
          fmt::format("lr_scheduler_kwargs: {} is not an argument of {}", key, name));
    }
    known_key->second = value;
  }
  if (const auto least = keywords_.find("min_lr"); least != keywords_.end() && least->second > 0)
    keywords_["min_lr_rate"] = least->second / peak_;
  warmup_ = static_cast<std::int64_t>(
      std::ceil(warmup < 1 ? warmup * static_cast<double>(total) : warmup));
}

double Schedule::at(std::int64_t step) const {
  return peak_ * factor(step);
}

double Schedule::progress(std::int64_t step) const {
  return static_cast<double>(step - warmup_) /
         static_cast<double>(std::max<std::int64_t>(1, total_ - warmup_));
}

double Schedule::warmup_stable_decay(std::int64_t step) const {
  const double least = keywords_.at("min_lr_ratio");
  auto decay = static_cast<std::int64_t>(keywords_.at("num_decay_steps"));
  auto stable = static_cast<std::int64_t>(keywords_.at("num_stable_steps"));
  if (stable == 0) stable = total_ - warmup_ - decay;
  if (step < warmup_ + stable) return 1;
  if (step >= warmup_ + stable + decay) return least;
  const double p = static_cast<double>(step - warmup_ - stable) /
                   static_cast<double>(std::max<std::int64_t>(1, decay));
  return std::max(0.0, least + (1 - least) * half_cosine(keywords_.at("num_cycles"), p));
}

double Schedule::factor(std::int64_t step) const {
  const auto warming =
      static_cast<double>(step) / static_cast<double>(std::max<std::int64_t>(1, warmup_));
  if (kind_ == Kind::constant) return 1;
  if (kind_ == Kind::cosine_warmup_with_min_lr) {
    // Unlike the others it counts steps from 1, so that the first step has a rate above 0.
    const double least = keywords_.at("min_lr_rate");
    if (step < warmup_) {
      const double from = keywords_.at("warmup_lr_rate");
      return from + (1 - from) * static_cast<double>(step + 1) / static_cast<double>(warmup_);
    }
    const double p = static_cast<double>(step + 1 - warmup_) /
                     static_cast<double>(std::max<std::int64_t>(1, total_ - warmup_));
    return std::max(0.0, half_cosine(keywords_.at("num_cycles"), p) * (1 - least) + least);
  }
  if (kind_ != Kind::inverse_sqrt && step < warmup_) return warming;
  const double p = progress(step);
  switch (kind_) {
    case Kind::linear:
      return std::max(0.0, static_cast<double>(total_ - step) /
                               static_cast<double>(std::max<std::int64_t>(1, total_ - warmup_)));
    case Kind::cosine:
      return std::max(0.0, half_cosine(keywords_.at("num_cycles"), p));
    case Kind::cosine_with_restarts:
      if (p >= 1) return 0;
      return std::max(0.0, half_cosine(0.5, std::fmod(keywords_.at("num_cycles") * p, 1.0)));
    case Kind::polynomial: {
      const double end = keywords_.at("lr_end") / peak_;
      return step > total_ ? end : (1 - end) * std::pow(1 - p, keywords_.at("power")) + end;
    }
    case Kind::inverse_sqrt: {
      const double given = keywords_.at("timescale");
      const double scale = given > 0 ? given : static_cast<double>(warmup_ > 0 ? warmup_ : 10000);
      if (step < warmup_) return warming;
      return 1 /
             std::sqrt((static_cast<double>(step) + scale - static_cast<double>(warmup_)) / scale);
    }
    case Kind::cosine_with_min_lr: {
      const double least = keywords_.at("min_lr_rate");
      return std::max(0.0, half_cosine(keywords_.at("num_cycles"), p) * (1 - least) + least);
    }
    case Kind::warmup_stable_decay:
      return warmup_stable_decay(step);
    case Kind::constant:
    case Kind::constant_with_warmup:
    case Kind::cosine_warmup_with_min_lr:
      break;
  }
  return 1;
}

}  // namespace mgpu::optim
