// Setup before the first step.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/passing_error.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/planning/planner.hpp"
#include "runtime/config/planning/role_memory.hpp"
#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/grpo/advantages.hpp"
#include "runtime/kernels/paged.hpp"
#include "runtime/rl/engine_generator.hpp"
#include "runtime/rl/generation_file.hpp"
#include "runtime/rl/grpo_trainer.hpp"
#include "runtime/rl/recipe.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/verified_checkpoint.hpp"

namespace mgpu::rl {
namespace {

using train::GrpoValues;

// The completions of a generation in a checkpoint.
std::string generation_file(const std::string& checkpoint, std::int64_t number) {
  return fmt::format("{}/training_state_generations/{}.safetensors", checkpoint, number);
}

}  // namespace

static_assert(train::CachePage{}.tokens == ops::kPageTokens);

GrpoTrainer::GrpoTrainer(train::TrainConfig config, rendezvous::Contract contract)
    : Session(std::move(config), std::move(contract)), control_(loss_control(config_)) {}

GrpoTrainer::~GrpoTrainer() = default;

void GrpoTrainer::setup() {
  auto rewards = read_recipe();
  begin_start();
  open_model();
  recommendation_.emplace(config_, *source_);
  notes_.insert(notes_.end(), recommendation_->notes().begin(), recommendation_->notes().end());
  prompts_.emplace(config_, *source_, recommendation_->items());
  for (const auto* prompts : {&prompts_->training(), &prompts_->eval_dataset()})
    for (const auto& model : rewards.models) require_chat_template(model, *prompts);
  join(fingerprint());
  if (GrpoValues(config_).uses_server()) open_server();
  config_.per_device_train_batch_size = sizes_.per_device;
  reserve_memory(rewards.models);
  build();
  // Fewer after memory ran out.
  sizes_.per_device = config_.per_device_train_batch_size;
  sizes_.micro_batch_tokens = train::micro_batch_tokens(config_);
  const auto roles = account_for_roles(rewards.models);
  plan();
  make_collector(std::move(rewards), roles);
  const auto checkpoint = begin(sizes_.step, fingerprint());
  load(checkpoint);
  restore(checkpoint);
  comm_->barrier("the start of training");
}

// Reads what needs neither the model nor the data. All ranks read the same recipe, so an error on
// one rank is an error on all.
RecipeRewards GrpoTrainer::read_recipe() {
  try {
    if (GrpoValues(config_).flag("disable_dropout")) config_.lora_dropout = 0;
    if (config_.metric_for_best_model == "loss") config_.metric_for_best_model = "reward";
    sizes_ = train::plan_generation(config_, contract_.world_size);
    generation_settings(config_);
    assign_roles();
    auto rewards = open_rewards(config_);
    notes_.insert(notes_.end(), rewards.notes.begin(), rewards.notes.end());
    return rewards;
  } catch (const train::RecipeError&) {
    throw;
  } catch (const std::runtime_error& e) {
    if (rendezvous::is_passing(e)) throw;
    throw train::RecipeError({e.what()});
  }
}

void GrpoTrainer::assign_roles() {
  roles_ = train::plan_roles(config_, contract_.world_size);
  if (!roles_.named) return;
  if (contract_.group_world_size > 1)
    throw train::RecipeError(
        {fmt::format("policy_gpus, reference_gpu and reward_gpu number the GPUs of one node, but "
                     "this job has {} "
                     "nodes; remove them",
                     contract_.group_world_size)});
  const int gpus = config_.backend == "gloo" ? 0 : train::visible_gpus();
  if (gpus > 0) {
    train::check_gpus(roles_, gpus);
    device_index_ = static_cast<int>(roles_.policy[static_cast<std::size_t>(contract_.rank)]);
    rank_gpus_ = roles_.policy;
    std::set<std::int64_t> others;
    for (const auto* role : {&roles_.reference, &roles_.reward})
      if (role->has_own_gpu() && role->holder == contract_.rank) others.insert(*role->gpu);
    others.erase(*device_index_);
    for (const auto gpu : others)
      other_devices_.emplace_back(at::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  } else {
    notes_.push_back(
        "policy_gpus, reference_gpu and reward_gpu select no GPU on this machine: each role runs "
        "on "
        "the CPU, on the rank that its GPU would belong to");
  }
}

train::RoleRequest GrpoTrainer::role_request(
    const std::vector<RewardModelSource>& reward_models) const {
  train::RoleRequest request{.model = source_->config,
                             .config = config_,
                             .sizes = sizes_,
                             .roles = roles_,
                             .reward_models = {},
                             .gpu_bytes = gpu_bytes_};
  if (!device_.is_cuda() && config_.dtype == train::Dtype::automatic)
    request.config.dtype = train::Dtype::fp32;
  for (const auto& source : reward_models)
    request.reward_models.push_back(reward_model_memory(source));
  return request;
}

// Called before the learner is built. Sets the sequence length and reserves the memory of the other
// roles.
void GrpoTrainer::reserve_memory(const std::vector<RewardModelSource>& reward_models) {
  config_.max_length = prompts_->longest() + generation_settings(config_).max_tokens;
  // All ranks reserve the same amount.
  const auto roles = role_memory(role_request(reward_models));
  for (const auto gpu : roles_.policy)
    reserved_bytes_ = std::max(reserved_bytes_, held_by_other_roles(roles, gpu));
}

// Called after the learner is built, when the free memory is known. Returns the memory of the
// roles.
std::vector<train::RoleMemory> GrpoTrainer::account_for_roles(
    const std::vector<RewardModelSource>& reward_models) {
  const auto request = role_request(reward_models);
  const auto roles = role_memory(request);
  notes_.push_back("memory by role\n" +
                   role_table(roles, roles_.named || device_.is_cuda() ? "GPU" : "rank"));
  if (const auto lack = memory_error(request, roles)) throw train::RecipeError({*lack});
  if (gpu_bytes_ > 0)
    for (const auto& role : roles)
      planned_bytes_ = std::max(planned_bytes_, peak_bytes(roles, role.gpu));
  return roles;
}

void GrpoTrainer::open_server() {
  const bool new_rows = source_->weights && (source_->vocab_on_disk < source_->config.vocab_size ||
                                             (config_.use_peft && source_->has_new_tokens()));
  std::vector<std::int64_t> gpus{device_.index()};
  for (const auto* role : {&roles_.reference, &roles_.reward})
    if (role->has_own_gpu() && role->holder == comm_->rank()) gpus.push_back(*role->gpu);
  server_ = std::make_unique<Server>(
      config_, contract_,
      Server::Requirements{prompts_->longest(), generation_settings(config_).max_tokens, new_rows,
                           gpus},
      *comm_, device_);
  notes_.insert(notes_.end(), server_->notes().begin(), server_->notes().end());
}

void GrpoTrainer::plan() {
  const GrpoValues values(config_);
  const auto seed = config_.data_seed.value_or(config_.seed);
  plan_.emplace(sizes_, prompts_->split(config_.val_set_size, seed), seed, config_.shuffle_dataset);
  total_steps_ =
      config_.max_steps > 0 ? config_.max_steps : plan_->total_steps(config_.num_train_epochs);
  rates_.emplace(config_.lr_scheduler_type, config_.learning_rate, config_.warmup_steps,
                 total_steps_, config_.lr_scheduler_kwargs);
  const auto max_tokens = generation_settings(config_).max_tokens;
  const bool skips = values.flag("skip_zero_advantage_batches");
  dealer_.emplace(
      *plan_, Dealer::Options{.rank = comm_->rank(),
                              .world = comm_->world(),
                              .per_device = sizes_.per_device,
                              .micro_batch_tokens = sizes_.micro_batch_tokens,
                              .max_completion_length = max_tokens,
                              .keeps_groups = train::may_divide_micro_batches(config_),
                              .masks_truncated = values.flag("mask_truncated_completions"),
                              .skips_without_advantage = skips && control_.only_advantages_matter(),
                              .skips_together = learner_->options().shards.zero_stage == 3});
  if (skips && !control_.only_advantages_matter())
    notes_.push_back(
        "skip_zero_advantage_batches has no effect with beta, entropy_coef, top_entropy_quantile "
        "or "
        "loss_type: bnpo: with these, completions without an advantage also contribute to the "
        "loss");
}

// `roles` has the size of the built-in engine.
std::unique_ptr<Generator> GrpoTrainer::make_generator(
    const std::vector<train::RoleMemory>& roles) {
  auto settings = generation_settings(config_);
  settings.stop_tokens = source_->config.eos_token_ids;
  settings.allowed = recommendation_->allowed();
  if (const auto* allowed = settings.allowed;
      allowed &&
      std::ranges::find(settings.stop_tokens, allowed->end_token()) == settings.stop_tokens.end())
    settings.stop_tokens.push_back(allowed->end_token());
  settings.text_of = [this](std::span<const std::int32_t> ids) {
    return source_->tokenizer.decode(ids, true);
  };
  if (server_ &&
      (settings.allowed || recommendation_->trains_on_beams() || recommendation_->test_beams() > 0))
    throw train::RecipeError(
        {"beam_search, info_file and test_during_training are not supported with a vLLM server; "
         "leave use_vllm out, so that the built-in engine generates"});
  if (server_) return server_->generator(*source_, *learner_, *saver_, std::move(settings));
  EngineGenerator::Options options{.settings = std::move(settings)};
  const auto& training = learner_->options().model;
  options.model = {device_, training.dtype, training.adapter_scale, training.fp32_logits};
  options.sequences = concurrent_sequences(roles);
  options.pages = cache_pages(roles);
  return std::make_unique<EngineGenerator>(source_->config, options, learner_->shards());
}

void GrpoTrainer::make_collector(RecipeRewards rewards,
                                 const std::vector<train::RoleMemory>& roles) {
  const GrpoValues values(config_);
  policy_.emplace(Policy{*source_, *learner_, *comm_, device_,
                         values.number("temperature").value_or(1), sizes_.per_device,
                         sizes_.micro_batch_tokens});
  update_.emplace(*policy_, sizes_.per_device * generation_settings(config_).max_tokens);
  auto generator = make_generator(roles);
  frozen_models_.emplace(
      config_, *policy_, roles_,
      FrozenModels::Sources{control_.has_reference(), adapter_, std::move(rewards.models)},
      seconds_);
  if (control_.has_reference())
    saver_->add_state_part(
        [this](const std::string& folder) { return frozen_models_->write(folder); });
  saver_->add_state_part([this](const std::string& folder) {
    if (comm_->rank() == 0) write_generations(folder);  // all ranks have the same ones
    return std::nullopt;
  });
  const bool logs = values.flag("log_completions") && contract_.rank == 0;
  CompletionsLog log(logs ? config_.output_dir + "/completions" : "",
                     logs ? values.whole("num_completions_to_print").value_or(4) : 0,
                     rewards.names);
  collector_.emplace(
      *policy_, *recommendation_, *frozen_models_, seconds_, std::move(generator),
      std::move(rewards), std::move(log),
      RolloutCollector::Options{
          grpo::advantage_options(config_),
          !sizes_.on_policy() || control_.settings().correct_sampler,
          std::chrono::milliseconds(std::llround(1000 * std::min(config_.ddp_timeout, 1e9)))});
}

// What makes this run another one, besides the settings that all tasks have.
train::Fingerprint GrpoTrainer::fingerprint() const {
  train::Fingerprint own{
      {"dataset_name", train::dataset_digest(config_.dataset_name, prompts_->file_digests())},
      {"tokenizer", prompts_->encoder_digest()},
      {"num_generations", std::to_string(sizes_.group)},
      {"generation_batch_size", std::to_string(sizes_.generation)},
      {"num_iterations", std::to_string(sizes_.iterations)}};
  for (const char* key : {"dataset_prompt_column", "system_prompt", "chat_template_kwargs",
                          "max_prompt_length", "max_completion_length", "info_file", "beam_search",
                          "add_gt", "dynamic_sampling", "sample_train", "reward_funcs",
                          "reward_weights", "beta", "loss_type", "temperature", "epsilon"}) {
    const auto found = config_.grpo.find(key);
    own[key] =
        found == config_.grpo.end() ? train::default_text(*train::find_key(key)) : found->second;
  }
  if (recommendation_->items()) own["info_file"] = recommendation_->digest();
  return own;
}

void GrpoTrainer::restore(const std::string& checkpoint) {
  begin_report(checkpoint);
  if (!checkpoint.empty()) train::read_verified([&] { frozen_models_->read(checkpoint); });
  for (const auto& note : prompts_->notes()) reporter_->note(note);
  for (const auto& note : notes_) reporter_->note(note);
  for (const auto& note : sizes_.notes) reporter_->note(note);
  reporter_->note(train::generation_sentence(sizes_));
  reporter_->note(fmt::format("prompts of up to {} tokens; completions of up to {} tokens",
                              prompts_->longest_training(),
                              generation_settings(config_).max_tokens));
  const auto& state = progress_.task_state;
  if (state.is_null()) return;
  grpo::LossControl::State control{
      .beta = state.at("beta"), .entropy = {.coefficient = state.at("entropy_coef"), .last = {}}};
  if (!state.at("last_entropy").is_null())
    control.entropy.last = state.at("last_entropy").get<double>();
  control_.restore(control);
  for (const auto& pending : state.at("generations")) {
    if (pending.contains("samples")) {
      restore_generation(generation_from(pending), checkpoint);
      continue;
    }
    Generation generation{.number = pending.at("number"), .metrics = pending.at("metrics")};
    generation.completions = read_completions(generation_file(checkpoint, generation.number));
    restore_generation(std::move(generation), checkpoint);
  }
}

void GrpoTrainer::write_generations(const std::string& folder) const {
  for (const auto& [number, generation] : generations_) {
    const auto file = generation_file(folder, number);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    write_completions(file, generation.completions);
  }
}

// Takes a saved generation that further steps use. It must match the current plan.
void GrpoTrainer::restore_generation(Generation generation, const std::string& checkpoint) {
  const auto refuse = [&](const std::string& what) {
    throw rendezvous::InputError(
        fmt::format("{} contains {} completions {}; restore these settings, or set "
                    "resume_from_checkpoint: no to start again",
                    checkpoint, generation.completions.size(), what));
  };
  const auto planned = plan_->prompts(generation.number);
  const auto count = static_cast<std::int64_t>(generation.completions.size());
  if (count != sizes_.generation || plan_->pending(progress_.step) != generation.number)
    refuse(
        fmt::format("of a generation of a different size than this run's {}: num_generations, "
                    "num_iterations, steps_per_generation or generation_batch_size has changed",
                    sizes_.generation));
  for (std::int64_t i = 0; i < count; ++i)
    if (generation.completions[static_cast<std::size_t>(i)].prompt !=
        planned[static_cast<std::size_t>(i / sizes_.group)])
      refuse(
          "of other prompts than those of this run: the dataset, seed or num_generations has "
          "changed");
  const bool no_reference =
      std::any_of(generation.completions.begin(), generation.completions.end(),
                  [](const ScoredCompletion& completion) {
                    return completion.ref_log_probs.size() != completion.tokens.size();
                  });
  if (control_.has_reference() && no_reference)
    refuse("without reference log-probs: beta has changed");
  generations_.emplace(generation.number, std::move(generation));
}

}  // namespace mgpu::rl
