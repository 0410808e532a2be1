#include "runtime/config/planning/planner.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/text_table.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/resolve.hpp"

namespace mgpu::train {
namespace {

constexpr double kGiB = 1 << 30;
constexpr double kRecomputeCost = 1.33;  // one more forward pass beside forward and backward
constexpr double kOffloadCost = 1.35;
constexpr double kFullSpeedTokens = 4096;  // tokens in a rank's batch that keep a GPU busy
constexpr std::size_t kMostProposals = 3;

double stage_cost(int stage) {
  constexpr double kCosts[] = {1, 1.01, 1.03, 1.12};
  return kCosts[stage];
}

double recompute_cost(const PlanRequest& request, const TrainConfig& config) {
  const auto layers = request.model.layers;
  const double part = static_cast<double>(recomputed_layers_of(config, layers)) /
                      static_cast<double>(std::max<std::int64_t>(1, layers));
  const bool offloads = config.gradient_checkpointing == Recompute::offload;
  return 1 + ((offloads ? kOffloadCost : kRecomputeCost) - 1) * part;
}

TrainConfig with(TrainConfig config, const Proposal& proposal) {
  config.per_device_train_batch_size = proposal.per_device;
  config.gradient_accumulation_steps = proposal.accumulation;
  config.zero_stage = proposal.zero_stage;
  return with_recomputation(std::move(config), {proposal.recompute, proposal.recomputed_layers});
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    found.push_back(d);
    if (d != number / d) found.push_back(number / d);
  }
  return found;
}

std::int64_t tokens_of_micro_batch(const TrainConfig& config, std::int64_t per_device) {
  return micro_batch_tokens(config) > 0 ? most_micro_batch_tokens(config)
                                        : per_device * config.max_length;
}

Proposal weigh(const PlanRequest& request, Proposal proposal) {
  const auto config = with(request.config, proposal);
  const auto tokens = static_cast<double>(tokens_of_micro_batch(config, proposal.per_device));
  proposal.cost = recompute_cost(request, config) * stage_cost(proposal.zero_stage) *
                  std::max(1.0, std::pow(kFullSpeedTokens / tokens, .25));
  return proposal;
}

// Where offload_embedding is auto, moves the embedding if that is possible.
TrainConfig with_embedding_offloaded(const PlanRequest& request, TrainConfig config) {
  if (!config.offload_embedding)
    config.offload_embedding = can_offload_embedding(request.model, config);
  return config;
}

// The estimate of the settings that fit, if the embedding may be moved for that.
MemoryEstimate estimate_to_fit(const PlanRequest& request, const TrainConfig& config) {
  const auto estimate = estimate_memory(request.model, config, request.ranks);
  if (config.offload_embedding || fits(estimate, request.gpu_bytes)) return estimate;
  return estimate_memory(request.model, with_embedding_offloaded(request, config), request.ranks);
}

// What a GPU needs: the estimate, and a margin for fragmentation.
std::int64_t with_margin(const MemoryEstimate& estimate) {
  return static_cast<std::int64_t>(static_cast<double>(estimate.allocated()) * kMargin) +
         estimate.of(MemoryPart::outside);
}

std::string estimate_table(const MemoryEstimate& estimate) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& line : estimate.lines)
    rows.push_back({fmt::format("  {}", part_name(line.part)), line.name,
                    fmt::format("{:8.2f} GiB", gib(line.bytes)), line.formula});
  rows.push_back({"  allocated", "", fmt::format("{:8.2f} GiB", gib(estimate.allocated()))});
  rows.push_back({"  total", "", fmt::format("{:8.2f} GiB", gib(estimate.total()))});
  return rendezvous::text_table(rows);
}

std::string layers_word(const Proposal& proposal) {
  if (proposal.recompute == Recompute::no) return "";
  return proposal.recomputed_layers > 0 ? std::to_string(proposal.recomputed_layers) : "all";
}

std::string proposal_table(const std::vector<Proposal>& proposals) {
  std::vector<std::vector<std::string>> rows{
      {"  per_device_train_batch_size", "gradient_accumulation_steps", "zero_stage",
       "gradient_checkpointing", "recomputed_layers", "memory"}};
  for (const auto& p : proposals)
    rows.push_back({fmt::format("  {}", p.per_device), fmt::format("{}", p.accumulation),
                    fmt::format("{}", p.zero_stage), recompute_word(p.recompute), layers_word(p),
                    fmt::format("{:.1f} GiB", gib(p.bytes))});
  if (std::none_of(proposals.begin(), proposals.end(),
                   [](const Proposal& p) { return p.recomputed_layers > 0; }))
    for (auto& row : rows) row.erase(row.end() - 2);
  return rendezvous::text_table(rows);
}

std::string tuned_preset_table() {
  std::vector<std::vector<std::string>> rows{
      {"recommended for", "per_device_train_batch_size", "num_generations", "num_iterations"}};
  for (const auto& preset : kTunedPresets)
    rows.push_back({preset.purpose, std::to_string(preset.batch_size),
                    std::to_string(preset.group_size), std::to_string(preset.passes)});
  return rendezvous::text_table(rows);
}

// A change may leave the recipe with batch sizes that do not divide.
std::vector<Proposal> propose_if_valid(const PlanRequest& request) try {
  return propose(request);
} catch (const RecipeError&) {
  return {};
}

Recomputation recomputation_of(const TrainConfig& config) {
  return {config.gradient_checkpointing, config.recomputed_layers};
}

bool chooses_recomputation(const TrainConfig& config) {
  if (config.gradient_checkpointing == Recompute::no) return false;
  return config.gradient_checkpointing == Recompute::automatic ||
         config.recomputed_layers == kFewestLayers;
}

// The ways of recomputing all layers that the settings leave open, the fastest first. One of them
// fits if and only if it does with the number of layers that may be chosen.
std::vector<Recompute> open_ways(const TrainConfig& config) {
  const auto asked = config.gradient_checkpointing;
  if (!chooses_recomputation(config)) return {asked};
  if (asked == Recompute::automatic) return {Recompute::no, Recompute::full, Recompute::offload};
  return {Recompute::no, asked};
}

}  // namespace

const char* recompute_word(Recompute recompute) {
  if (recompute == Recompute::full) return "true";
  return recompute == Recompute::offload ? "offload" : "false";
}

std::string recompute_text(const Recomputation& chosen, const char* separator) {
  if (chosen.way == Recompute::no || chosen.layers < 0) return recompute_word(chosen.way);
  return fmt::format("{}, recomputed_layers{}{}", recompute_word(chosen.way), separator,
                     chosen.layers);
}

TrainConfig with_recomputation(TrainConfig config, const Recomputation& chosen) {
  config.gradient_checkpointing = chosen.way;
  config.recomputed_layers = chosen.layers;
  return config;
}

std::optional<std::int64_t> fewest_layers(const PlanRequest& request, Recompute way) {
  const auto all = request.model.layers;
  const auto enough = [&](std::int64_t layers) {
    return plan_fits(request, with_recomputation(request.config, {way, layers}));
  };
  if (!enough(kAllLayers)) return {};
  std::int64_t few = 0, many = all;  // `few` are not enough, or none; `many` are
  while (many - few > 1) {
    const auto between = few + (many - few) / 2;
    (enough(between) ? many : few) = between;
  }
  return many == all ? kAllLayers : many;
}

std::int64_t layers_after_failure(const PlanRequest& failed) {
  if (failed.gpu_bytes == 0) return kAllLayers;
  const auto way = failed.config.gradient_checkpointing == Recompute::offload ? Recompute::offload
                                                                              : Recompute::full;
  const auto needed = estimate_memory(failed.model, failed.config, failed.ranks).total();
  auto smaller = failed;
  smaller.gpu_bytes = std::min(failed.gpu_bytes, needed);
  return fewest_layers(smaller, way).value_or(kAllLayers);
}

bool fits(const MemoryEstimate& estimate, std::int64_t gpu_bytes) {
  return with_margin(estimate) <= gpu_bytes;
}

bool plan_fits(const PlanRequest& request, const TrainConfig& config) {
  return fits(estimate_to_fit(request, config), request.gpu_bytes);
}

int choose_zero_stage(const PlanRequest& request) {
  if (request.config.zero_stage != kAutomaticStage) return request.config.zero_stage;
  if (request.ranks == 1) return 0;
  // The consistency check compares copies, so every rank keeps one.
  if (request.config.consistency_check_steps > 0) return 0;
  const bool median = request.config.gradient_aggregation == Aggregation::median;
  const int first = request.wants_copies ? 0 : 1;
  if (request.gpu_bytes == 0 || median) return first;
  auto config = request.config;
  for (const auto way : open_ways(config)) {
    config.gradient_checkpointing = way;
    for (int stage = first; stage <= 3; ++stage) {
      config.zero_stage = stage;
      if (plan_fits(request, config)) return stage;
    }
  }
  return 3;
}

Recomputation choose_recompute(const PlanRequest& request) {
  const auto& config = request.config;
  const auto asked = config.gradient_checkpointing;
  if (config.recomputed_layers > request.model.layers)
    throw_recipe_error(fmt::format(
        "recomputed_layers: {} is more than the model's {} layers; set at most {}, or all",
        config.recomputed_layers, request.model.layers, request.model.layers));
  if (!chooses_recomputation(config)) return {asked, config.recomputed_layers};
  if (request.gpu_bytes == 0 || plan_fits(request, with_recomputation(config, {Recompute::no})))
    return {Recompute::no};
  const auto way = asked == Recompute::automatic ? Recompute::full : asked;
  const auto layers = fewest_layers(request, way);
  return {layers || asked != Recompute::automatic ? way : Recompute::offload,
          layers.value_or(kAllLayers)};
}

bool choose_offload_embedding(const PlanRequest& request, bool ran_out) {
  const auto& config = request.config;
  if (config.offload_embedding == true && !can_offload_embedding(request.model, config))
    throw_recipe_error(
        "offload_embedding: the model's embedding is also its head, which needs it on the GPU; "
        "remove this key");
  if (config.offload_embedding) return *config.offload_embedding;
  if (request.gpu_bytes == 0 || !can_offload_embedding(request.model, config)) return false;
  return ran_out || !fits(estimate_memory(request.model, config, request.ranks), request.gpu_bytes);
}

std::vector<Proposal> propose(const PlanRequest& request) {
  const auto step = micro_batches(request.config, request.ranks);
  const auto each = step.per_device * step.accumulation;
  std::vector<Proposal> found;
  // Adds the proposal if it fits.
  const auto add = [&](Proposal proposal) {
    const auto estimate = estimate_to_fit(request, with(request.config, proposal));
    proposal.bytes = estimate.total();
    if (!fits(estimate, request.gpu_bytes)) return false;
    found.push_back(weigh(request, proposal));
    return true;
  };
  // With a budget of tokens, the number of completions has no effect on memory.
  const auto sizes =
      micro_batch_tokens(request.config) > 0 ? std::vector{step.per_device} : divisors(each);
  for (int stage = 0; stage <= (request.ranks > 1 ? 3 : 0); ++stage) {
    if (stage > 1 && request.config.gradient_aggregation == Aggregation::median) break;
    for (const auto per_device : sizes) {
      Proposal proposal{
          .per_device = per_device, .accumulation = each / per_device, .zero_stage = stage};
      const bool needs_none = add(proposal);
      proposal.recompute = Recompute::full;
      auto fewest = request;
      fewest.config = with(request.config, proposal);
      if (!needs_none)
        proposal.recomputed_layers = fewest_layers(fewest, Recompute::full).value_or(kAllLayers);
      add(proposal);
      proposal.recompute = Recompute::offload;
      proposal.recomputed_layers = kAllLayers;
      add(proposal);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Proposal& a, const Proposal& b) {
    return std::pair(a.cost, a.bytes) < std::pair(b.cost, b.bytes);
  });
  if (found.size() > kMostProposals) found.resize(kMostProposals);
  return found;
}

std::vector<std::string> fitting_changes(const PlanRequest& request) {
  std::vector<std::string> changes;
  const auto attempt = [&](const std::string& change, const TrainConfig& config) {
    auto changed = request;
    changed.config = config;
    if (const auto found = propose_if_valid(changed); !found.empty())
      changes.push_back(fmt::format("{} (from {:.1f} GiB)", change, gib(found.front().bytes)));
  };
  auto config = request.config;
  if (auto tokens = micro_batch_tokens(config); tokens > config.max_length) {
    do {
      tokens = std::max(config.max_length, tokens / 2);
      config.grpo["micro_batch_tokens"] = std::to_string(tokens);
      attempt(fmt::format("micro_batch_tokens: {}", tokens), config);
    } while (changes.empty() && tokens > config.max_length);
    config = request.config;
  }
  if (config.max_length >= 512) {
    config.max_length /= 4;
    attempt(fmt::format("max_length: {}", config.max_length), config);
    config = request.config;
  }
  if (config.optim != "adamw_8bit" && !config.use_peft) {
    config.optim = "adamw_8bit";
    attempt("optim: adamw_8bit", config);
    config = request.config;
  }
  config.use_peft = true;
  if (config.fp8 == Fp8::mlp) config.fp8 = Fp8::none;  // of full training
  // fp8 would contradict these.
  const auto* without = request.config.fp8 == Fp8::none ? "" : ", without fp8";
  if (!request.config.use_peft)
    attempt(fmt::format("lora_r: {}{}", config.lora_r, without), config);
  config.load_in_4bit = true;
  config.load_in_8bit = false;
  config.fp8 = Fp8::none;
  if (!request.config.load_in_4bit)
    attempt(fmt::format("load_in_4bit: true with LoRA{}", without), config);
  auto more = request;
  for (more.ranks = request.ranks * 2; more.ranks <= 64; more.ranks *= 2) {
    more.config.global_batch_size = 0;
    if (propose_if_valid(more).empty()) continue;
    changes.push_back(fmt::format("{} GPUs", more.ranks));
    break;
  }
  return changes;
}

Preset preset_for(std::int64_t total_bytes) {
  if (gib(total_bytes) >= 48) return {.batch_size = 4, .group_size = 8};
  if (gib(total_bytes) >= 32) return {.batch_size = 2, .group_size = 4};
  return {.batch_size = 1, .group_size = 2};
}

std::optional<std::string> memory_error(const PlanRequest& request) {
  if (request.gpu_bytes == 0) return {};
  const auto estimate = estimate_memory(request.model, request.config, request.ranks);
  if (fits(estimate, request.gpu_bytes)) return {};
  auto text = fmt::format(
      "a GPU has {:.1f} GiB, but training would need {:.1f} GiB with {} tokens, zero_stage {} and "
      "gradient_checkpointing {}",
      gib(request.gpu_bytes), gib(with_margin(estimate)),
      micro_batch_tokens(request.config) > 0
          ? fmt::format("micro-batches of {}", most_micro_batch_tokens(request.config))
          : fmt::format("per_device_train_batch_size {} x {}",
                        request.config.per_device_train_batch_size, request.config.max_length),
      request.config.zero_stage, recompute_text(recomputation_of(request.config), " "));
  if (const auto proposals = propose(request); !proposals.empty()) {
    const auto& best = proposals.front();
    return text + fmt::format(
                      "; the same steps fit with per_device_train_batch_size: {}, "
                      "gradient_accumulation_steps: {}, zero_stage: {}, gradient_checkpointing: {}",
                      best.per_device, best.accumulation, best.zero_stage,
                      recompute_text({best.recompute, best.recomputed_layers}));
  }
  const auto changes = fitting_changes(request);
  return text + (changes.empty() ? "; use larger GPUs or a smaller model"
                                 : fmt::format("; would fit: {}", fmt::join(changes, ", or ")));
}

std::string plan_text(const PlanRequest& given) {
  auto request = given;
  request.config.zero_stage = choose_zero_stage(request);
  auto chosen = request;
  auto& config = chosen.config;
  config = with_recomputation(config, choose_recompute(request));
  config.offload_embedding = choose_offload_embedding(chosen);
  const auto estimate = estimate_memory(request.model, config, request.ranks);
  const auto count = count_parameters(request.model, config);
  const auto step = micro_batches(config, request.ranks);
  const bool good = fits(estimate, request.gpu_bytes);
  auto text = fmt::format(
      "{} parameters, {} of them trained; {}\n\nMemory of one rank with zero_stage {}, "
      "gradient_checkpointing {} and {} tokens per micro-batch:\n\n{}\nA GPU has {:.1f} GiB: {}\n",
      count.total, count.trainable, batch_sentence(step, config.packing), config.zero_stage,
      recompute_text(recomputation_of(config), " "), tokens_of_micro_batch(config, step.per_device),
      estimate_table(estimate), gib(request.gpu_bytes), good ? "it fits" : "it does not fit");
  if (const auto bytes = host_embedding_bytes(request.model, config); bytes > 0)
    text += fmt::format("Host memory for the embedding (offload_embedding): {:.2f} GiB per rank\n",
                        gib(bytes));
  if (config.async_save)
    text += fmt::format(
        "Host memory to write checkpoints in the background (async_save): {:.1f} GiB for all ranks "
        "together\n",
        gib(checkpoint_bytes(request.model, config)));
  const auto proposals = propose(request);
  if (!proposals.empty())
    text += fmt::format("\nSettings with the same steps that fit, fastest first (estimate):\n\n{}",
                        proposal_table(proposals));
  if (proposals.empty()) {
    text += "\nNo settings with the same steps fit.";
    for (const auto& change : fitting_changes(request))
      text += fmt::format("\n  would fit: {}", change);
    text += "\n";
  }
  if (config.task != Task::grpo) return text;
  const auto total = request.gpu_bytes * std::max(request.ranks, request.gpus);
  const auto preset = preset_for(total);
  return text + fmt::format(
                    "\nGuides recommend for {:.0f} GiB in total: per_device_train_batch_size {}, "
                    "num_generations {}\n\n{}",
                    gib(total), preset.batch_size, preset.group_size, tuned_preset_table());
}

std::int64_t parse_memory(const std::string& text) {
  double number = 0;
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  std::string unit;
  for (const char* c = stop; c != end; ++c)
    if (*c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  double scale = 0;
  if (unit == "g" || unit == "gb" || unit == "gib") scale = kGiB;
  if (unit == "m" || unit == "mb" || unit == "mib") scale = kGiB / 1024;
  if (unit == "t" || unit == "tb" || unit == "tib") scale = kGiB * 1024;
  const bool right = error == std::errc() && scale > 0 && number > 0 && number * scale < 1e15;
  if (!right)
    throw std::runtime_error(
        fmt::format("need an amount of memory, such as 32GB, not {}", rendezvous::shown(text, 32)));
  return static_cast<std::int64_t>(number * scale);
}

}  // namespace mgpu::train
