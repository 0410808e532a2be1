#include "runtime/config/planning/suggestion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "runtime/config/resolve.hpp"
#include "runtime/config/templates.hpp"

namespace mgpu::train {
namespace {

constexpr std::int64_t kSequencesPerRank = 8;  // of a step, in the templates

struct Way {
  const char* kind;  // of the template
  bool four_bit;
};

// Replaces the value of a key at the beginning of a line; what follows the value stays.
void set_key(std::string& text, const std::string& key, const std::string& value) {
  const auto line = text.find("\n" + key + ": ");
  if (line == text.npos) throw std::logic_error("the template has no key " + key);
  const auto begin = line + key.size() + 3;
  const auto end = text.find_first_of(" \n", begin);
  text.replace(begin, end - begin, value);
}

void replace(std::string& text, const std::string& part, const std::string& by) {
  const auto at = text.find(part);
  if (at == text.npos) throw std::logic_error("the template has no text " + part);
  text.replace(at, part.size(), by);
}

std::string recipe_text(const Way& way, const KnownModel& known, const Proposal& proposal,
                        std::int64_t gpus) {
  auto text = template_text(way.kind);
  replace(text, "--nproc 4", fmt::format("--nproc {}", gpus));
  set_key(text, "model_name_or_path", std::string(known.name));
  if (way.four_bit) replace(text, "# load_in_4bit: true ", "load_in_4bit: true ");
  set_key(text, "per_device_train_batch_size", std::to_string(proposal.per_device));
  set_key(text, "gradient_accumulation_steps",
          std::to_string(std::max<std::int64_t>(1, kSequencesPerRank / proposal.per_device)));
  set_key(text, "gradient_checkpointing", recompute_word(proposal.recompute));
  if (proposal.recompute != Recompute::no && proposal.recomputed_layers > 0)
    replace(text, "\ngradient_checkpointing:",
            fmt::format("\nrecomputed_layers: {}\ngradient_checkpointing:",
                        proposal.recomputed_layers));
  if (text.find("\nzero_stage: ") != text.npos)
    set_key(text, "zero_stage", std::to_string(proposal.zero_stage));
  else
    replace(text, "\ngradient_checkpointing:",
            fmt::format("\nzero_stage: {}\ngradient_checkpointing:", proposal.zero_stage));
  return text;
}

// Empty if the recipe does not fit: it has more accumulation than the proposal, which takes memory
// with ZeRO stages 2 and 3.
std::optional<Suggestion> in_recipe(const Way& way, const KnownModel& known, Proposal proposal,
                                    PlanRequest request) {
  const auto write = [&] {
    auto text = recipe_text(way, known, proposal, request.ranks);
    request.config = parse_recipe(text, "the suggested recipe");
    return text;
  };
  auto text = write();
  if (proposal.recompute != Recompute::no) {
    const auto layers = fewest_layers(request, proposal.recompute);
    if (!layers) return {};
    if (proposal.recomputed_layers > 0) proposal.recomputed_layers = *layers;
    text = write();
  }
  if (!plan_fits(request, request.config)) return {};
  return Suggestion{std::move(text), std::move(request)};
}

}  // namespace

Suggestion suggest(const KnownModel& known, std::int64_t gpus, std::int64_t gpu_bytes) {
  const auto preset = preset_for(gpu_bytes * gpus);
  for (const Way& way : {Way{"sft", false}, Way{"lora", false}, Way{"lora", true}}) {
    PlanRequest request{known.config, parse_recipe(template_text(way.kind), way.kind), gpus,
                        gpu_bytes};
    request.config.load_in_4bit = way.four_bit;
    request.config.gradient_accumulation_steps = 1;
    request.config.per_device_train_batch_size = preset.batch_size;
    for (const auto& proposal : propose(request))
      if (auto suggestion = in_recipe(way, known, proposal, request)) return *std::move(suggestion);
  }
  throw std::runtime_error(fmt::format(
      "{} does not fit into {} GPU{} of {:.1f} GiB, not even a LoRA adapter on 4-bit weights with "
      "one sequence of 2048 tokens; use larger or more GPUs, or a smaller model",
      known.name, gpus, gpus == 1 ? "" : "s", gib(gpu_bytes)));
}

}  // namespace mgpu::train
