#include "runtime/rl/grpo_trainer.hpp"

#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "runtime/grpo/advantages.hpp"
#include "runtime/train/consistency.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {
namespace {

// What chance depends on, made one number.
std::uint64_t mixed(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t x = 0x243f6a8885a308d3ULL;
  for (const auto part : parts) {
    x = (x ^ part) * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 29;
  }
  return x;
}

}  // namespace

const Generation& GrpoTrainer::generation(std::int64_t number) {
  const auto found = generations_.find(number);
  if (found != generations_.end()) return found->second;
  auto made = generate(number);
  log_->write(progress_.step + 1, made, questions_.all);
  if (const auto table = log_->table(made, questions_.all); !table.empty())
    reporter_->note("completions of step " + std::to_string(progress_.step + 1) + "\n" + table);
  measure(made.metrics);
  return generations_.emplace(number, std::move(made)).first->second;
}

Generation GrpoTrainer::generate(std::int64_t number) {
  const auto asked = plan_->prompts(number);
  const auto count = static_cast<std::int64_t>(asked.size());
  const auto [first, end] = grpo::prompts_of_rank(count, comm_->rank(), comm_->world());
  Round round{.seed = mixed({config_.seed, static_cast<std::uint64_t>(number)}),
              .first = first,
              .questions = {asked.begin() + first, asked.begin() + end},
              .group = sizes_.group};
  Generation generation{.number = number};
  generator_->renew(progress_.step);
  {
    const rollout::WholeWeights whole(source_->config, learner_->shards());
    auto own = actor_->complete(round, questions_.all);
    if (!sizes_.on_policy() || loss_.correct_sampler) look_back(own, false);
    if (reference_) {
      const rollout::WholeWeights reference(source_->config, reference_->keeper());
      look_back(own, true);
    }
    generation.samples = share(own, *comm_, device_);
  }
  std::vector<std::int64_t> groups;
  for (std::int64_t i = 0; i < count * sizes_.group; ++i) groups.push_back(i / sizes_.group);
  compare(generation, groups);
  for (const auto& sample : generation.samples)
    progress_.tokens += static_cast<std::int64_t>(sample.tokens.size() +
                                                  questions_.all[sample.question].tokens.size());
  return generation;
}

// The log-probabilities of samples by the policy as it is now, or by the reference.
void GrpoTrainer::look_back(std::vector<Sample>& samples, bool reference) {
  const auto at_once = static_cast<std::size_t>(sizes_.per_device);
  for (std::size_t begin = 0; begin < samples.size(); begin += at_once) {
    const auto some = std::span(samples).subspan(begin, std::min(at_once, samples.size() - begin));
    std::vector<Member> members;
    for (const auto& sample : some) members.push_back({&sample, true});
    const auto batch = train::to_device(lay_out(members, questions_.all), device_);
    const auto scores =
        reference
            ? reference_->log_probs(batch, temperature_)
            : learner_->transformer().score(batch, temperature_, learner_->shards()).log_probs;
    const auto here = scores.cpu();
    const auto* value = here.const_data_ptr<float>();
    for (auto& sample : some) {
      auto& list = reference ? sample.ref_log_probs : sample.old_log_probs;
      list.assign(value, value + sample.tokens.size());
      value += sample.tokens.size();
    }
  }
}

// Advantages and what there is to say about the rewards. Every rank computes the same.
void GrpoTrainer::compare(Generation& generation, const std::vector<std::int64_t>& groups) const {
  grpo::Scores scores{.functions = reward_names_, .weights = reward_weights_, .groups = groups};
  for (const auto& sample : generation.samples) scores.rows.push_back(sample.rewards);
  auto judged = grpo::advantages(scores, grpo::advantage_options(config_));
  for (std::size_t i = 0; i < generation.samples.size(); ++i)
    generation.samples[i].advantage = judged.advantages[i];
  generation.metrics = std::move(judged.metrics);
  generation.metrics.merge(length_metrics(generation.samples));
}

Member GrpoTrainer::member(const Sample& sample, bool counts) const {
  return {&sample, counts && (sample.terminated || !masks_truncated_)};
}

// This rank's micro-batches of a step.
std::vector<GrpoTrainer::Micro> GrpoTrainer::deal(const grpo::GrpoStep& step) {
  struct Part {
    std::vector<const Sample*> samples;
    std::vector<std::vector<std::vector<grpo::Place>>> places;
    std::int64_t generation_tokens = 0;
  };
  std::vector<Part> parts;
  grpo::Denominators all{.completions = step.completions(),
                         .micro_batches = 0,
                         .generation_completions = sizes_.generation,
                         .max_completion_length = most_tokens_};
  const auto tokens_of = [&](const Sample& sample) {
    return member(sample, true).counts ? static_cast<std::int64_t>(sample.tokens.size()) : 0;
  };
  for (const auto& wanted : step.parts) {
    const auto& made = generation(wanted.generation);
    const auto order = plan_->order(wanted.generation);
    Part part;
    std::vector<double> costs;
    for (auto i = wanted.first; i < wanted.first + wanted.count; ++i) {
      const auto& sample = made.samples[order[static_cast<std::size_t>(i)]];
      part.samples.push_back(&sample);
      costs.push_back(static_cast<double>(sample.tokens.size() +
                                          questions_.all[sample.question].tokens.size()));
      all.tokens += tokens_of(sample);
    }
    for (const auto& sample : made.samples) part.generation_tokens += tokens_of(sample);
    part.places = grpo::deal(costs, comm_->world(), sizes_.per_device);
    all.micro_batches += static_cast<std::int64_t>(part.places.front().size()) * comm_->world();
    parts.push_back(std::move(part));
  }
  std::vector<Micro> micros;
  for (const auto& part : parts)
    for (const auto& places : part.places[static_cast<std::size_t>(comm_->rank())]) {
      Micro micro{.denominators = all};
      micro.denominators.generation_tokens = part.generation_tokens;
      for (const auto& place : places)
        micro.members.push_back(member(*part.samples[place.completion], place.counts));
      micros.push_back(std::move(micro));
    }
  return micros;
}

bool GrpoTrainer::train_step() {
  if (progress_.step >= total_steps_ || stop_wanted_ || ends_early_) return false;
  if (config_.eval_on_start && progress_.step == 0 && evaluated_ != nullptr) evaluate_now();
  const auto begin = std::chrono::steady_clock::now();
  const auto step = plan_->at(progress_.step);
  const auto micros = deal(step);
  learn(micros, progress_.step);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  measure({{"step_time", seconds.count()}});
  const auto next = plan_->pending(progress_.step + 1);
  std::erase_if(generations_, [&](const auto& item) { return !next || item.first < *next; });
  ++progress_.step;
  if (const auto every = config_.consistency_check_steps; every > 0 && progress_.step % every == 0)
    train::check_consistency(learner_->shards(), *comm_, progress_.step);
  const auto in_epoch = static_cast<double>(plan_->steps_in_epoch());
  progress_.epoch =
      static_cast<double>(step.epoch) + static_cast<double>(step.index + 1) / in_epoch;
  interval_.epoch = whole_run_.epoch = progress_.epoch;
  const bool epoch_ends = step.index + 1 == plan_->steps_in_epoch();
  const bool last = progress_.step == total_steps_;
  if (log_due() || last) log_interval();
  if (evaluated_ != nullptr && due(config_.eval_steps, config_.eval_strategy, epoch_ends))
    evaluate_now();
  if (due(config_.save_steps, config_.save_strategy, epoch_ends) || save_wanted_) save();
  if (ends_early_) end_ = train::End::early;
  if (stop_wanted_) end_ = train::End::stopped;
  return !last && !stop_wanted_ && !ends_early_;
}

void GrpoTrainer::learn(const std::vector<Micro>& micros, std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  loss_.beta = kl_.beta();
  loss_.entropy_coef = entropy_.applied();
  const double rate = rates_->at(step);
  grpo::LossMetrics metrics;
  const auto micro = [&](std::size_t number, train::StepRecord&) {
    const auto& one = micros[number];
    PolicyLoss::Threshold threshold;
    if (loss_.top_entropy_quantile < 1)
      threshold = [&](const at::Tensor& entropies) {
        return this->threshold(entropies, sizes_.per_device * most_tokens_);
      };
    PolicyLoss objective(one.members, loss_, one.denominators, threshold, device_);
    const auto chance = mixed({config_.seed, static_cast<std::uint64_t>(step),
                               static_cast<std::uint64_t>(comm_->rank()), number});
    learner_->transformer().train(train::to_device(lay_out(one.members, questions_.all), device_),
                                  objective, temperature_, chance, learner_->shards());
    if (number == 0)
      metrics = objective.loss().metrics;
    else
      metrics.add(objective.loss().metrics);
  };
  auto record = learner_->step(micros.size(), micro, rate, wishes_ ? wishes_() : train::Wishes{});
  settle(record, metrics, micros, rate);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  measure({{"update_time", seconds.count()}});
}

// The least entropy of those tokens that learn, of all ranks'. Ranks have different numbers of
// tokens, at most so many.
at::Tensor GrpoTrainer::threshold(const at::Tensor& entropies, std::int64_t most) {
  auto own = at::full({most}, std::nan(""), entropies.options());
  own.narrow(0, 0, entropies.numel()).copy_(entropies);
  const auto all = at::empty({most * comm_->world()}, own.options());
  comm_->all_gather(all, own, "entropies").wait();
  return grpo::entropy_threshold(all, loss_.top_entropy_quantile);
}

// Takes in what a step came to.
void GrpoTrainer::settle(train::StepRecord& record, grpo::LossMetrics& metrics,
                         const std::vector<Micro>& micros, double rate) {
  comm_->all_reduce(metrics.sums, "sums of the loss").wait();
  const auto every = at::empty({comm_->world(), metrics.most.numel()}, metrics.most.options());
  comm_->all_gather(every.view({-1}), metrics.most, "extremes of the loss").wait();
  const auto sums = metrics.sums.cpu(), most = every.amax({0}).cpu();
  const auto span = [](const at::Tensor& t) {
    return std::span(t.const_data_ptr<double>(), static_cast<std::size_t>(t.numel()));
  };
  auto values = grpo::metric_values(loss_, span(sums), span(most));
  const auto outcome = record.outcome(progress_.step);
  stop_wanted_ = stop_wanted_ || outcome.stop_wanted;
  save_wanted_ = save_wanted_ || outcome.save_wanted;
  if (const auto kl = values.find("kl"); kl != values.end()) kl_.step(kl->second);
  if (const auto entropy = values.find("entropy"); entropy != values.end())
    entropy_.step(entropy->second);
  if (loss_.beta != 0) values["beta"] = loss_.beta;
  if (entropy_.enabled()) values["entropy_coef"] = entropy_.coefficient();
  const auto& by = micros.front().denominators;
  for (auto* sum : {&interval_, &whole_run_}) {
    sum->step = progress_.step + 1;
    sum->total_steps = total_steps_;
    sum->learning_rate = rate;
    sum->grad_norm = outcome.grad_norm;
    sum->comm_seconds += outcome.comm_seconds / contract_.world_size;
    sum->examples += by.completions;
    sum->labels += by.tokens;
    sum->tokens += by.tokens;
    ++sum->steps;
    if (outcome.skipped) ++sum->skipped;
  }
  if (outcome.skipped) {
    const auto text = fmt::format("step {}: the gradient is not finite", progress_.step + 1);
    if (config_.on_non_finite == train::NonFinite::stop)
      throw std::runtime_error(text +
                               "; the weights are those before the step. Lower "
                               "learning_rate or look at the rewards");
    reporter_->note(text + "; the step is skipped");
    values.erase("loss");
  }
  measure(std::move(values));
}

void GrpoTrainer::measure(std::map<std::string, double> metrics) {
  for (const auto& [name, value] : metrics) {
    if (std::isnan(value)) continue;
    auto& [sum, number] = means_[name];
    sum += value;
    ++number;
  }
}

void GrpoTrainer::log_interval() {
  if (interval_.steps == 0) return;
  for (const auto& [name, mean] : means_)
    interval_.extra[name] = mean.first / static_cast<double>(mean.second);
  interval_.extra["num_tokens"] = static_cast<double>(progress_.tokens);
  const auto loss = interval_.extra.find("loss");
  interval_.loss = loss == interval_.extra.end() ? std::nan("") : loss->second;
  if (loss != interval_.extra.end()) interval_.extra.erase(loss);
  const auto counted = interval_.steps - interval_.skipped;
  if (counted > 0) {
    loss_sum_ += *interval_.loss * static_cast<double>(counted);
    loss_steps_ += counted;
  }
  const auto warnings = health_.warnings(interval_.extra);
  reporter_->interval(interval_);
  for (const auto& warning : warnings) reporter_->note(warning);
  interval_ = {};
  means_.clear();
}

void GrpoTrainer::evaluate_now() {
  const auto begin = std::chrono::steady_clock::now();
  const auto count = static_cast<std::int64_t>(eval_order_.size());
  const auto [first, end] = grpo::prompts_of_rank(count, comm_->rank(), comm_->world());
  const auto group = eval_group_;
  Generation made{.number = -1};
  generator_->renew(progress_.step);
  {
    const rollout::WholeWeights whole(source_->config, learner_->shards());
    made.samples = share(
        actor_->complete({.seed = mixed({config_.seed, ~0ULL}),
                          .first = first,
                          .questions = {eval_order_.begin() + first, eval_order_.begin() + end},
                          .group = group},
                         *evaluated_),
        *comm_, device_);
  }
  std::vector<std::int64_t> groups;
  for (std::int64_t i = 0; i < count * group; ++i) groups.push_back(i / group);
  compare(made, groups);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::map<std::string, double> metrics{{"eval_runtime", seconds.count()}};
  for (const auto& [name, value] : made.metrics) metrics["eval_" + name] = value;
  reporter_->evaluation(progress_.step, progress_.epoch, metrics);
  last_evaluated_ = progress_.step;
  const auto verdict = judge(metrics);
  if (verdict.keep) {
    save();
    best_checkpoint_ = last_checkpoint_;
  }
  ends_early_ = verdict.stop;
}

void GrpoTrainer::save() {
  const auto entropy = entropy_.state();
  progress_.task_state = {{"beta", kl_.beta()},
                          {"entropy_coef", entropy.coefficient},
                          {"last_entropy", nullptr},
                          {"generations", nlohmann::json::array()}};
  if (entropy.last) progress_.task_state["last_entropy"] = *entropy.last;
  for (const auto& [number, generation] : generations_)
    progress_.task_state["generations"].push_back(to_json(generation));
  save_now();
  progress_.task_state = {};
}

void GrpoTrainer::finish() {
  log_interval();
  whole_run_.loss = loss_steps_ > 0 ? loss_sum_ / static_cast<double>(loss_steps_) : 0;
  const bool saves = config_.save_strategy != train::When::no || end_ == train::End::stopped;
  if (last_saved_ != progress_.step && saves && progress_.step > 0) save();
  save_last();
  generator_->finish();
  reporter_->summary(whole_run_);
  comm_->close();
}

}  // namespace mgpu::rl
