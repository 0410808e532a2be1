#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/text_table.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/planning/memory_model.hpp"
#include "runtime/config/planning/planner.hpp"
#include "runtime/config/planning/role_memory.hpp"

// Texts about the memory of roles.
namespace mgpu::train {
namespace {

std::vector<std::int64_t> gpus_of(const std::vector<RoleMemory>& roles) {
  std::set<std::int64_t> gpus;
  for (const auto& role : roles) gpus.insert(role.gpu);
  return {gpus.begin(), gpus.end()};
}

// Groups of GPUs with equal roles and needs.
std::vector<std::vector<std::int64_t>> equal_gpus(const std::vector<RoleMemory>& roles) {
  const auto on = [&](std::int64_t gpu) {
    std::vector<RoleMemory> own;
    for (auto role : roles)
      if (role.gpu == gpu) {
        role.gpu = 0;
        own.push_back(std::move(role));
      }
    return own;
  };
  std::vector<std::vector<std::int64_t>> groups;
  for (const auto gpu : gpus_of(roles)) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& others) {
      return on(others.front()) == on(gpu);
    });
    if (group == groups.end())
      groups.push_back({gpu});
    else
      group->push_back(gpu);
  }
  return groups;
}

std::string or_smaller_batch(const TrainConfig& config) {
  if (const auto tokens = micro_batch_tokens(config); tokens > 0)
    return tokens > config.max_length
               ? fmt::format("micro_batch_tokens: {}, ", std::max(tokens / 2, config.max_length))
               : "";
  const auto size = config.per_device_train_batch_size;
  return size > 1 ? fmt::format("per_device_train_batch_size: {}, ", size / 2) : "";
}

// Recomputation, if there is none: of as many layers as are needed beside the other roles.
std::string or_recomputation(const RoleRequest& request, const std::vector<RoleMemory>& roles,
                             std::int64_t gpu) {
  if (request.config.gradient_checkpointing != Recompute::no) return "";
  const PlanRequest plan{.model = request.model,
                         .config = request.config,
                         .ranks = static_cast<std::int64_t>(request.roles.policy.size()),
                         .gpu_bytes = request.gpu_bytes - held_by_other_roles(roles, gpu)};
  const auto layers = fewest_layers(plan, Recompute::full).value_or(kAllLayers);
  return layers > 0 ? fmt::format("recomputed_layers: {}, ", layers)
                    : "gradient_checkpointing: true, ";
}

// Changes that lower the memory of the role.
std::string remedy(const RoleRequest& request, const std::vector<RoleMemory>& roles,
                   const RoleMemory& role) {
  const auto& config = request.config;
  const auto ranks = request.roles.policy.size();
  if (role.role == kPolicy)
    return fmt::format("{}{}{}{}", or_smaller_batch(config),
                       or_recomputation(request, roles, role.gpu),
                       ranks > 1 && config.zero_stage < 3 ? "zero_stage: 3, " : "",
                       !config.use_peft       ? "use_peft: true"
                       : !config.load_in_4bit ? "load_in_4bit: true"
                                              : "a smaller model or more GPUs");
  if (role.role == kRollout) {  // already a single sequence, with all weights gathered
    const auto most = GrpoValues(config).whole("max_completion_length").value_or(512);
    return fmt::format(
        "max_completion_length: {}, {}", std::max<std::int64_t>(1, most / 2),
        config.use_peft && !config.load_in_4bit ? "load_in_4bit: true" : "or a smaller model");
  }
  const bool reference = role.role == kReference;
  const auto& place = reference ? request.roles.reference : request.roles.reward;
  const char* key = reference ? "reference_gpu" : "reward_gpu";
  const auto elsewhere = place.has_own_gpu() ? fmt::format(
                                                   "another {}, or leave it out to shard the model "
                                                   "over all ranks",
                                                   key)
                                             : fmt::format("a separate GPU in {}", key);
  return elsewhere + (reference ? config.use_peft ? ""
                                                  : ", or use_peft: true, which needs no "
                                                    "copy for the reference"
                                : ", or a smaller model");
}

// The role with the largest need.
const RoleMemory& largest_role(const std::vector<RoleMemory>& roles, std::int64_t gpu) {
  const RoleMemory* most = nullptr;
  for (const auto& role : roles)
    if (role.gpu == gpu &&
        (most == nullptr || role.holds + role.at_work > most->holds + most->at_work))
      most = &role;
  return *most;
}

}  // namespace

std::string role_table(const std::vector<RoleMemory>& roles, const std::string& place) {
  std::vector<std::vector<std::string>> rows{{"  " + place, "role", "always", "while active", ""}};
  const auto amount = [](std::int64_t bytes) { return fmt::format("{:.2f} GiB", gib(bytes)); };
  for (const auto& group : equal_gpus(roles)) {
    const auto where = fmt::format("  {}", fmt::join(group, ", "));
    for (const auto& role : roles)
      if (role.gpu == group.front())
        rows.push_back(
            {where, role.role, amount(role.holds), "+ " + amount(role.at_work), role.work});
    rows.push_back(
        {where, "in total", amount(peak_bytes(roles, group.front())), "", "one role at a time"});
  }
  return rendezvous::text_table(rows);
}

std::optional<std::string> memory_error(const RoleRequest& request,
                                        const std::vector<RoleMemory>& roles) {
  if (request.gpu_bytes == 0) return {};
  const auto ranks = static_cast<std::int64_t>(request.roles.policy.size());
  for (const auto gpu : gpus_of(roles)) {
    const auto all = needed(roles, gpu, ranks);
    if (all <= request.gpu_bytes) continue;
    const auto& most = largest_role(roles, gpu);
    auto text = fmt::format(
        "GPU {} has {:.1f} GiB, but its roles need {:.1f} GiB; the largest is {} with {:.1f} GiB; "
        "try {}",
        gpu, gib(request.gpu_bytes), gib(all), most.role, gib(most.holds + most.at_work),
        remedy(request, roles, most));
    if (const GrpoValues values(request.config); !values.is_set("num_generations")) {
      const auto total = request.gpu_bytes * static_cast<std::int64_t>(gpus_of(roles).size());
      const auto preset = preset_for(total);
      text += fmt::format(
          "; guides recommend for {:.0f} GiB in total per_device_train_batch_size: {}, "
          "num_generations: {}",
          gib(total), preset.batch_size, preset.group_size);
    }
    return text;
  }
  return {};
}

}  // namespace mgpu::train
