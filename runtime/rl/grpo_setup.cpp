// Setup before the first step.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/rewards/catalog.hpp"
#include "runtime/rewards/external_reward.hpp"
#include "runtime/rl/engine_generator.hpp"
#include "runtime/rl/grpo_trainer.hpp"
#include "runtime/rl/recipe.hpp"
#include "runtime/train/device.hpp"

namespace mgpu::rl {
namespace {

using train::GrpoValues;

std::int64_t longest_of(const std::vector<Prompt>& prompts) {
  std::size_t most = 0;
  for (const auto& prompt : prompts) most = std::max(most, prompt.tokens.size());
  return static_cast<std::int64_t>(most);
}

}  // namespace

GrpoTrainer::GrpoTrainer(train::TrainConfig config, rendezvous::Contract contract)
    : Session(std::move(config), std::move(contract)),
      loss_(grpo::loss_settings(config_)),
      kl_(adaptive_kl(config_)),
      entropy_(adaptive_entropy(config_)) {
  // The log-probs of the built-in sampler are measured but do not correct the loss.
  loss_.correct_sampler = loss_.correct_sampler && GrpoValues(config_).uses_server();
}

GrpoTrainer::~GrpoTrainer() = default;

void GrpoTrainer::setup() {
  read_recipe();
  open_model();
  open_prompts();
  for (const auto* prompts : {&prompts_, &eval_prompts_})
    for (const auto& source : reward_sources_) require_chat_template(source, prompts->all);
  join();
  if (GrpoValues(config_).uses_server()) open_server();
  config_.per_device_train_batch_size = sizes_.per_device;
  reserve_memory(std::max(longest_of(prompts_.all), longest_of(eval_prompts_.all)));
  build();
  account_for_roles();
  plan();
  restore(begin(sizes_.step));
  comm_->barrier("the start of training");
}

// Reads what needs neither the model nor the data. All ranks read the same recipe, so an error on
// one rank is an error on all.
void GrpoTrainer::read_recipe() {
  try {
    if (GrpoValues(config_).flag("disable_dropout")) config_.lora_dropout = 0;
    if (config_.metric_for_best_model == "loss") config_.metric_for_best_model = "reward";
    sizes_ = train::plan_generation(config_, contract_.world_size);
    generation_settings(config_);
    assign_roles();
    open_rewards();
  } catch (const train::RecipeError&) {
    throw;
  } catch (const std::runtime_error& e) {
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
  } else {
    notes_.push_back(
        "policy_gpus, reference_gpu and reward_gpu select no GPU on this machine: each role runs "
        "on "
        "the CPU, on the rank that its GPU would belong to");
  }
}

// Reward functions run on the rank that generates; reward models have a role.
void GrpoTrainer::open_rewards() {
  const auto settings = reward_settings(config_);
  std::vector<std::string> functions;
  for (const auto& entry : reward_names(config_)) {
    if (is_reward_model(entry, settings)) {
      reward_sources_.push_back(open_reward_model(entry, reward_names_.size()));
      reward_names_.push_back(reward_sources_.back().name);
    } else {
      functions.push_back(entry);
      reward_names_.push_back(entry);
    }
  }
  auto names = reward_names_;
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end());
      twice != names.end() && !reward_sources_.empty())
    throw std::runtime_error(fmt::format("reward_funcs names {} twice", *twice));
  reward_weights_ = reward_weights(config_);
  if (!functions.empty()) rewards_ = rewards::make_rewards(functions, settings);
  if (settings.reward_sandbox && std::ranges::none_of(functions, rewards::runs_program))
    notes_.push_back("reward_sandbox has no effect: no reward is a Python function or a program");
  if (GrpoValues(config_).is_set("reward_gpu") && reward_sources_.empty())
    notes_.push_back(
        "reward_gpu has no effect: no reward is a model, and reward functions need no GPU");
}

void GrpoTrainer::open_prompts() {
  const data::TextEncoder encoder(source_->tokenizer, source_->chat_template);
  auto options = prompt_options(config_);
  const auto max_tokens = generation_settings(config_).max_tokens;
  if (const auto positions = source_->config.longest_sequence(), room = positions - max_tokens;
      positions > 0) {
    if (room < 1)
      throw train::RecipeError({fmt::format(
          "max_completion_length: {} leaves no space for a prompt; the model supports {} "
          "tokens",
          max_tokens, positions)});
    options.longest = options.longest > 0 ? std::min(options.longest, room) : room;
  }
  prompts_ = read_prompts(config_.dataset_name, options, encoder);
  if (!config_.eval_dataset.empty())
    eval_prompts_ = read_prompts(config_.eval_dataset, options, encoder);
}

void GrpoTrainer::open_server() {
  const auto longest = std::max(longest_of(prompts_.all), longest_of(eval_prompts_.all));
  const bool new_rows = source_->weights && source_->vocab_on_disk < source_->config.vocab_size;
  std::vector<std::int64_t> gpus{device_.index()};
  for (const auto* role : {&roles_.reference, &roles_.reward})
    if (role->has_own_gpu() && role->holder == comm_->rank()) gpus.push_back(*role->gpu);
  server_ = std::make_unique<Server>(
      config_, contract_,
      Server::Requirements{longest, generation_settings(config_).max_tokens, new_rows, gpus},
      *comm_, device_);
  notes_.insert(notes_.end(), server_->notes().begin(), server_->notes().end());
}

void GrpoTrainer::open_generator() {
  auto settings = generation_settings(config_);
  settings.stop_tokens = source_->config.eos_token_ids;
  settings.text_of = [this](std::span<const std::int32_t> ids) {
    return source_->tokenizer.decode(ids, true);
  };
  if (server_) {
    generator_ = server_->generator(*source_, *learner_, *saver_, std::move(settings));
    return;
  }
  EngineGenerator::Options options{.settings = std::move(settings)};
  options.model = {device_, learner_->options().model.dtype,
                   learner_->options().model.adapter_scale};
  options.sequences = sequences_;
  generator_ = std::make_unique<EngineGenerator>(source_->config, options, learner_->shards());
}

void GrpoTrainer::plan() {
  const GrpoValues values(config_);
  const auto seed = config_.data_seed.value_or(config_.seed);
  auto split = data::split(prompts_.ranges, config_.val_set_size, seed);
  if (!eval_prompts_.all.empty()) {
    evaluated_ = &eval_prompts_.all;
    eval_order_.resize(evaluated_->size());
    std::iota(eval_order_.begin(), eval_order_.end(), 0U);
  } else if (!split.validation.empty()) {
    evaluated_ = &prompts_.all;
    eval_order_ = std::move(split.validation);
  }
  plan_.emplace(sizes_, std::move(split.train), seed, config_.shuffle_dataset);
  total_steps_ =
      config_.max_steps > 0 ? config_.max_steps : plan_->total_steps(config_.num_train_epochs);
  rates_.emplace(config_.lr_scheduler_type, config_.learning_rate, config_.warmup_steps,
                 total_steps_, config_.lr_scheduler_kwargs);
  temperature_ = values.number("temperature").value_or(1);
  max_tokens_ = generation_settings(config_).max_tokens;
  eval_group_ = values.whole("num_generations_eval").value_or(sizes_.group);
  masks_truncated_ = values.flag("mask_truncated_completions");
  const bool only_advantages_matter =
      kl_.beta() == 0 && !entropy_.enabled() && loss_.top_entropy_quantile == 1;
  skips_zero_advantage_ = values.flag("skip_zero_advantage_batches") && only_advantages_matter;
  if (values.flag("skip_zero_advantage_batches") && !skips_zero_advantage_)
    notes_.push_back(
        "skip_zero_advantage_batches has no effect with beta, entropy_coef or "
        "top_entropy_quantile: with these, completions without an advantage also contribute to the "
        "loss");

  open_generator();
  collector_ = std::make_unique<RolloutCollector>(*source_, *generator_, rewards_);
  place_models();
  const bool logs = values.flag("log_completions") && contract_.rank == 0;
  log_ = std::make_unique<CompletionsLog>(
      logs ? config_.output_dir + "/completions" : "",
      logs ? values.whole("num_completions_to_print").value_or(4) : 0, reward_names_);
}

// Loads the models that are not trained, each at its placement.
void GrpoTrainer::place_models() {
  const GrpoValues values(config_);
  const auto& model = learner_->options().model;
  if (kl_.beta() != 0) {
    reference_ = std::make_unique<Reference>(config_, *source_, adapter_, model, roles_.reference,
                                             learner_->shards(), *comm_);
    if (values.flag("sync_ref_model")) {
      sync_every_ = values.whole("ref_model_sync_steps").value_or(512);
      sync_share_ = values.number("ref_model_mixup_alpha").value_or(.6);
    }
    saver_->set_state_part([this](const std::string& folder) {
      return reference_->moved() ? std::optional(reference_->write(folder)) : std::nullopt;
    });
  }
  for (auto& source : reward_sources_)
    reward_models_.push_back(
        std::make_unique<RewardModel>(std::move(source),
                                      RewardModel::Options{roles_.reward, device_, model.dtype,
                                                           prompt_options(config_).template_extra},
                                      *comm_));
  reward_sources_.clear();
}

void GrpoTrainer::restore(const std::string& checkpoint) {
  begin_report(checkpoint);
  if (reference_ && !checkpoint.empty()) reference_->read(checkpoint);
  for (const auto* prompts : {&prompts_, &eval_prompts_})
    for (const auto& note : prompts->notes) reporter_->note(note);
  for (const auto& note : notes_) reporter_->note(note);
  for (const auto& note : sizes_.notes) reporter_->note(note);
  reporter_->note(train::generation_sentence(sizes_));
  const auto longest = longest_of(prompts_.all);
  reporter_->note(fmt::format("prompts of up to {} tokens; completions of up to {} tokens", longest,
                              generation_settings(config_).max_tokens));
  const auto& state = progress_.task_state;
  if (state.is_null()) return;
  const GrpoValues values(config_);
  if (values.number("target_kl") && state.at("beta") > 0) kl_.restore(state.at("beta"));
  grpo::AdaptiveEntropy::State entropy{.coefficient = state.at("entropy_coef")};
  if (!state.at("last_entropy").is_null()) entropy.last = state.at("last_entropy").get<double>();
  if (values.flag("use_adaptive_entropy")) entropy_.restore(entropy);
  for (const auto& pending : state.at("generations"))
    restore_generation(generation_from(pending), checkpoint);
}

// Takes a saved generation that further steps use. It must match the current plan.
void GrpoTrainer::restore_generation(Generation generation, const std::string& checkpoint) {
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(
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
  if (kl_.beta() != 0 && no_reference) refuse("without reference log-probs: beta has changed");
  generations_.emplace(generation.number, std::move(generation));
}

}  // namespace mgpu::rl
