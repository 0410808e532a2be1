#include "runtime/config/planning/generation_arithmetic.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/resolve.hpp"

namespace mgpu::train {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;  // completions of a step or a generation
constexpr std::int64_t kListed = 4;

// Multiples of `unit` around `wanted`, beginning with the nearest below.
std::vector<std::int64_t> multiples_near(std::int64_t unit, std::int64_t wanted) {
  std::vector<std::int64_t> found;
  const auto first = std::max<std::int64_t>(wanted / unit - 1, 1);
  for (std::int64_t i = 0; i < kListed; ++i) found.push_back((first + i) * unit);
  return found;
}

// The group sizes of at least 2 that divide `completions` and are nearest to `wanted`.
std::vector<std::int64_t> groups_near(std::int64_t completions, std::int64_t wanted) {
  std::vector<std::int64_t> found;
  const auto take = [&](std::int64_t group) {
    const bool room = static_cast<std::int64_t>(found.size()) < kListed;
    if (group >= 2 && group <= completions && completions % group == 0 && room)
      found.push_back(group);
  };
  for (std::int64_t away = 1; away < std::max(wanted, std::min<std::int64_t>(completions, 4096));
       ++away) {
    take(wanted - away);
    take(wanted + away);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string or_groups(std::int64_t completions, std::int64_t group) {
  const auto groups = groups_near(completions, group);
  if (groups.empty()) return {};
  return fmt::format("; possible num_generations: {}", fmt::join(groups, ", "));
}

struct Given {
  std::optional<std::int64_t> accumulation, generation, per_generation;
};

std::int64_t checked(std::int64_t count, std::int64_t times, const char* what) {
  if (count > kMost / times)
    throw_recipe_error(fmt::format("{} of {} x {} completions is above the limit of {}", what,
                                   count, times, kMost));
  return count * times;
}

// The completions of an optimizer step, if a key sets them.
std::optional<std::int64_t> given_step(const TrainConfig& config, const Given& given,
                                       std::int64_t unit) {
  const auto global = config.global_batch_size;
  if (global == 0) {
    if (!given.accumulation) return {};
    return checked(unit, *given.accumulation, "a step");
  }
  const auto fewest = (global + unit - 1) / unit;
  if (given.accumulation && *given.accumulation != fewest)
    throw_recipe_error(
        fmt::format("global_batch_size {} needs {} micro-batches of {} completions, not "
                    "gradient_accumulation_steps {}; leave one of the two out",
                    global, fewest, unit, *given.accumulation));
  return global;
}

// One generation per step.
void one_step_each(const TrainConfig& config, GenerationSizes& sizes, std::int64_t unit,
                   std::optional<std::int64_t> step) {
  const auto group = sizes.group;
  const auto whole = group / std::gcd(unit, group);  // micro-batches that make whole groups
  if (!step) {
    sizes.step = checked(unit, whole, "a step");
    if (whole > 1)
      sizes.notes.push_back(fmt::format(
          "gradient_accumulation_steps is {}, the smallest number that makes whole groups of {} "
          "with {} per device x {} ranks",
          whole, group, sizes.per_device, sizes.ranks));
  } else if (*step % group == 0) {
    sizes.step = *step;
  } else if (config.global_batch_size > 0) {
    throw_recipe_error(fmt::format(
        "global_batch_size {} is not a multiple of num_generations {}; possible "
        "global_batch_size: {}{}",
        *step, group, fmt::join(multiples_near(group, *step), ", "), or_groups(*step, group)));
  } else {
    throw_recipe_error(fmt::format(
        "{} per device x {} ranks x {} accumulation = {} completions are not whole groups of "
        "num_generations {}; possible gradient_accumulation_steps: {}{}; or leave "
        "gradient_accumulation_steps out",
        sizes.per_device, sizes.ranks, *step / unit, *step, group,
        fmt::join(multiples_near(whole, *step / unit), ", "), or_groups(*step, group)));
  }
  sizes.generation = sizes.step;
}

void by_generation_size(GenerationSizes& sizes, std::int64_t size, std::int64_t unit,
                        std::optional<std::int64_t> step) {
  if (size % sizes.group != 0)
    throw_recipe_error(
        fmt::format("generation_batch_size {} is not a multiple of num_generations {}; possible "
                    "generation_batch_size: {}{}",
                    size, sizes.group, fmt::join(multiples_near(sizes.group, size), ", "),
                    or_groups(size, sizes.group)));
  sizes.generation = size;
  sizes.step = step.value_or(size % unit == 0 ? unit : size);
  if (!step && sizes.step == size && size != unit)
    sizes.notes.push_back(
        fmt::format("a step trains on all {} completions of a generation: they are not a multiple "
                    "of {} per device x {} ranks",
                    size, sizes.per_device, sizes.ranks));
}

void by_steps(GenerationSizes& sizes, std::int64_t steps, std::int64_t unit,
              std::optional<std::int64_t> step) {
  sizes.step = step.value_or(unit);
  const auto micro_batches = (sizes.step + unit - 1) / unit;
  if (sizes.step % micro_batches != 0)
    throw_recipe_error(
        fmt::format("a step of {} completions cannot be divided into {} equal micro-batches, so "
                    "steps_per_generation is undefined; set generation_batch_size instead",
                    sizes.step, micro_batches));
  const auto slice = sizes.step / micro_batches;
  sizes.generation = checked(slice, steps, "a generation");
  const auto whole = sizes.group / std::gcd(slice, sizes.group);
  if (steps % whole != 0)
    throw_recipe_error(fmt::format(
        "steps_per_generation {} x {} completions = {} are not whole groups of num_generations {}; "
        "possible steps_per_generation: {}{}",
        steps, slice, sizes.generation, sizes.group, fmt::join(multiples_near(whole, steps), ", "),
        or_groups(sizes.generation, sizes.group)));
}

}  // namespace

std::int64_t GenerationSizes::accumulation() const {
  const auto unit = per_device * ranks;
  return (step + unit - 1) / unit;
}

GenerationSizes plan_generation(const TrainConfig& config, std::int64_t ranks) {
  check_number_of_ranks(ranks);
  const GrpoValues values(config);
  GenerationSizes sizes;
  sizes.per_device = config.per_device_train_batch_size;
  sizes.ranks = ranks;
  sizes.group = values.whole("num_generations").value();
  sizes.iterations = values.whole("num_iterations").value();
  sizes.micro_batch_tokens = micro_batch_tokens(config);
  if (sizes.micro_batch_tokens > 0 && !may_divide_micro_batches(config))
    throw_recipe_error(
        "micro_batch_tokens: the loss of this recipe depends on which completions share a "
        "micro-batch, because of loss_type: bnpo, top_entropy_quantile or an entropy bonus with "
        "loss_normalization: trl; remove micro_batch_tokens, or change that key");
  if (sizes.group < 2)
    throw_recipe_error(fmt::format(
        "num_generations: need at least 2 completions per prompt, not {}", sizes.group));
  Given given{.accumulation = {},
              .generation = values.whole("generation_batch_size"),
              .per_generation = values.whole("steps_per_generation")};
  if (config.gradient_accumulation_given) given.accumulation = config.gradient_accumulation_steps;
  if (given.generation && given.per_generation)
    throw_recipe_error("generation_batch_size and steps_per_generation mean the same; keep one");
  const auto unit = checked(sizes.per_device, ranks, "a micro-batch");
  const auto step = given_step(config, given, unit);
  if (given.generation)
    by_generation_size(sizes, *given.generation, unit, step);
  else if (given.per_generation)
    by_steps(sizes, *given.per_generation, unit, step);
  else
    one_step_each(config, sizes, unit, step);
  return sizes;
}

std::string generation_sentence(const GenerationSizes& sizes) {
  auto text = fmt::format("{} completions per step = {} per device x {} rank{} x {} accumulation",
                          sizes.step, sizes.per_device, sizes.ranks, sizes.ranks == 1 ? "" : "s",
                          sizes.accumulation());
  const auto places = sizes.per_device * sizes.ranks * sizes.accumulation();
  if (sizes.micro_batch_tokens > 0)
    text += fmt::format(", computed in micro-batches of up to {} tokens", sizes.micro_batch_tokens);
  else if (places > sizes.step)
    text += fmt::format(", {} places unused", places - sizes.step);
  text += fmt::format("; {} per generation = {} prompt{} x {}", sizes.generation, sizes.prompts(),
                      sizes.prompts() == 1 ? "" : "s", sizes.group);
  if (sizes.iterations > 1) text += fmt::format(", {} training passes", sizes.iterations);
  return text;
}

}  // namespace mgpu::train
