#include "runtime/config/planning/batch_arithmetic.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/config/planning/generation_arithmetic.hpp"
#include "runtime/config/planning/roles.hpp"
#include "runtime/config/resolve.hpp"

namespace mgpu::train {
namespace {

constexpr std::size_t kMostListed = 8;
constexpr std::int64_t kMostProposed = 64;  // largest number of ranks that is proposed

// Divisors in ascending order; if there are many, those nearest to `wanted`.
std::vector<std::int64_t> divisors_near(std::int64_t number, std::int64_t wanted) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    found.push_back(d);
    if (d != number / d) found.push_back(number / d);
  }
  std::sort(found.begin(), found.end(), [wanted](std::int64_t a, std::int64_t b) {
    return std::pair(std::abs(a - wanted), a) < std::pair(std::abs(b - wanted), b);
  });
  if (found.size() > kMostListed) found.resize(kMostListed);
  std::sort(found.begin(), found.end());
  return found;
}

// Changes that make `global` reachable exactly.
std::string alternatives(std::int64_t global, std::int64_t per_device, std::int64_t ranks) {
  std::string text;
  if (global % ranks == 0)
    text += fmt::format("; possible per_device_train_batch_size: {}",
                        fmt::join(divisors_near(global / ranks, per_device), ", "));
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 1; n <= kMostProposed; ++n)
    if (n != ranks && global % (n * per_device) == 0) counts.push_back(n);
  if (counts.size() > kMostListed) counts.resize(kMostListed);
  if (!counts.empty())
    text += fmt::format("; possible numbers of ranks: {}", fmt::join(counts, ", "));
  const auto unit = per_device * ranks;
  const auto below = global / unit * unit;
  text += below > 0 ? fmt::format("; possible global_batch_size: {}, {}", below, below + unit)
                    : fmt::format("; possible global_batch_size: {}", unit);
  return text;
}

}  // namespace

void check_number_of_ranks(std::int64_t ranks) {
  constexpr std::int64_t kMost = 1'000'000;
  if (ranks < 1 || ranks > kMost)
    throw_recipe_error(fmt::format("need 1 to {} ranks, not {}", kMost, ranks));
}

BatchPlan plan_batch(const TrainConfig& config, std::int64_t ranks) {
  constexpr std::int64_t kMost = 1'000'000'000;
  const auto per_device = config.per_device_train_batch_size;
  const auto accumulation = config.gradient_accumulation_steps;
  const auto global = config.global_batch_size;
  check_number_of_ranks(ranks);
  if (per_device < 1 || accumulation < 1 || per_device > kMost / ranks ||
      accumulation > kMost / (per_device * ranks))
    throw_recipe_error(
        fmt::format("a step of {} per device x {} ranks x {} accumulation is out of range: 1 to {} "
                    "sequences",
                    per_device, ranks, accumulation, kMost));
  if (global == 0) return {per_device, ranks, accumulation};
  const auto unit = per_device * ranks;
  if (config.gradient_accumulation_given && unit * accumulation != global)
    throw_recipe_error(fmt::format(
        "global_batch_size {} is not {} per device x {} ranks x {} accumulation = {}; leave out "
        "gradient_accumulation_steps or one of the others",
        global, per_device, ranks, accumulation, unit * accumulation));
  if (global % unit != 0)
    throw_recipe_error(
        fmt::format("global_batch_size {} is not a multiple of {} per device x {} ranks = {}{}",
                    global, per_device, ranks, unit, alternatives(global, per_device, ranks)));
  return {per_device, ranks, global / unit};
}

BatchPlan micro_batches(const TrainConfig& config, std::int64_t ranks) {
  if (config.task != Task::grpo) return plan_batch(config, ranks);
  const auto sizes = plan_generation(config, ranks);
  return {sizes.per_device, ranks, sizes.accumulation()};
}

void check_ranks(const TrainConfig& config, std::int64_t ranks) {
  micro_batches(config, ranks);
  if (config.task == Task::grpo) plan_roles(config, ranks);
  const auto weights = static_cast<std::int64_t>(config.gpu_weights.size());
  if (config.batch_sharding == Sharding::weighted && weights != ranks)
    throw_recipe_error(fmt::format(
        "batch_sharding: weighted requires one number in gpu_weights per rank: {} ranks, {} "
        "weights",
        ranks, weights));
}

std::int64_t intended_ranks(const TrainConfig& config) {
  if (const auto ranks = required_ranks(config)) return *ranks;
  if (!config.gpu_weights.empty()) return static_cast<std::int64_t>(config.gpu_weights.size());
  const auto unit = config.per_device_train_batch_size * config.gradient_accumulation_steps;
  const bool given = config.global_batch_size > 0 && config.gradient_accumulation_given;
  return given && config.global_batch_size % unit == 0 ? config.global_batch_size / unit : 1;
}

std::string batch_sentence(const BatchPlan& plan, bool packing) {
  return fmt::format("{} {}{} per step = {} per device x {} rank{} x {} accumulation",
                     plan.global(), packing ? "bin" : "sequence", plan.global() == 1 ? "" : "s",
                     plan.per_device, plan.ranks, plan.ranks == 1 ? "" : "s", plan.accumulation);
}

}  // namespace mgpu::train
