// The table's part about evaluation, checkpoints, logging and chance.

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using C = TrainConfig;

// true and "latest" are auto; false is no; anything else is a folder.
void set_resume(C& c, const YamlNode& value) {
  const auto word = to_text(value);
  try {
    c.resume_from_checkpoint = word == "auto" || word == "latest" || to_flag(value) ? "auto" : "no";
  } catch (const std::runtime_error&) {
    c.resume_from_checkpoint = word;
  }
}

void set_auto_resume(C& c, const YamlNode& value) {
  c.resume_from_checkpoint = to_flag(value) ? "auto" : "no";
}

void add_report(C& c, const std::string& name) {
  if (std::find(c.report_to.begin(), c.report_to.end(), name) == c.report_to.end())
    c.report_to.push_back(name);
}

void set_reports(C& c, const YamlNode& value) {
  for (const auto& name : to_words(value)) {
    if (name == "none") continue;
    if (name == "tensorboard" || name == "wandb") {
      add_report(c, name);
    } else if (name == "all") {
      add_report(c, "tensorboard");
      add_report(c, "wandb");
    } else {
      c.notes.push_back(
          fmt::format("{} is not written; metrics are in metrics.jsonl, and "
                      "tensorboard and wandb can be asked for",
                      rendezvous::shown(name, 32)));
    }
  }
}

template <const char* kName>
void add_if_true(C& c, const YamlNode& value) {
  if (to_flag(value)) add_report(c, kName);
}

constexpr char kTensorboard[] = "tensorboard";
constexpr char kWandb[] = "wandb";

const Words<When> kWhen{
    {"no", When::no}, {"false", When::no}, {"steps", When::steps}, {"epoch", When::epoch}};

Words<When> when_to_save() {
  auto words = kWhen;
  words.emplace_back("best", When::best);
  return words;
}

void set_save_limit(C& c, const YamlNode& value) {
  const auto most = to_whole(value);
  if (most < -1) throw std::runtime_error("need a number of checkpoints, or 0 for all");
  c.save_total_limit = std::max<std::int64_t>(0, most);
}

}  // namespace

// clang-format off: one paragraph a key reads better than one line a field.
std::vector<KeySpec> evaluation_keys() {
  return {
      {.name = "eval_strategy",
       .aliases = {"evaluation_strategy"},
       .field = choice(&C::eval_strategy, kWhen),
       .help = "when to evaluate",
       .initial = "steps if eval_steps and something to evaluate on are there, else no"},
      {.name = "eval_steps",
       .aliases = {"eval_step", "eval_every"},
       .field = number(&C::eval_steps, at_least(0)),
       .help = "between evaluations; below 1 a fraction of all steps; 0: as logging_steps"},
      {.name = "evals_per_epoch",
       .help = "the same, counted in an epoch",
       .value = "N",
       .sets = "eval_steps"},
      {.name = "eval_on_start",
       .field = flag(&C::eval_on_start),
       .help = "also before the first step"},
      {.name = "load_best_model_at_end",
       .field = flag(&C::load_best_model_at_end),
       .help = "ends with the checkpoint that evaluated best"},
      {.name = "metric_for_best_model",
       .field = text(&C::metric_for_best_model),
       .help = "which number decides; for grpo the reward"},
      {.name = "greater_is_better",
       .field = flag(&C::greater_is_better),
       .help = "and in which direction; auto: not for a loss"},
      {.name = "early_stopping_patience",
       .aliases = {"early_stopping_steps"},
       .field = whole(&C::early_stopping_patience, at_least(0)),
       .help = "evaluations without a better one that end the run; 0: never"},
      {.name = "early_stopping_threshold",
       .field = number(&C::early_stopping_threshold, at_least(0)),
       .help = "how much better counts"},
  };
}

std::vector<KeySpec> checkpoint_keys() {
  return {
      {.name = "output_dir",
       .aliases = {"save_dir", "output_path", "checkpoint_dir"},
       .field = text(&C::output_dir),
       .help = "where checkpoints and logs go"},
      {.name = "save_strategy",
       .field = choice(&C::save_strategy, when_to_save()),
       .help = "when to save"},
      {.name = "save_steps",
       .aliases = {"save_every", "checkpoint_steps"},
       .field = number(&C::save_steps, above(0)),
       .help = "between checkpoints; below 1 a fraction of all steps"},
      {.name = "saves_per_epoch",
       .help = "the same, counted in an epoch",
       .value = "N",
       .sets = "save_steps"},
      {.name = "save_total_limit",
       .aliases = {"max_checkpoints", "keep_last_n"},
       .field = {.value = "N",
                 .set = set_save_limit,
                 .show = [](const C& c) { return std::to_string(c.save_total_limit); }},
       .help = "older checkpoints are removed; the best is kept; 0: all stay"},
      {.name = "save_only_model",
       .field = flag(&C::save_only_model),
       .help = "without what is needed to resume"},
      {.name = "save_final_model",
       .field = flag(&C::save_final_model),
       .help = "the model in output_dir itself when the run is done, with any save_strategy"},
      {.name = "resume_from_checkpoint",
       .aliases = {"resume"},
       .field = {.value = "auto|no|DIR",
                 .set = set_resume,
                 .show = [](const C& c) { return c.resume_from_checkpoint; }},
       .help = "auto: from the newest complete one in output_dir, if any"},
      {.name = "auto_resume_from_checkpoints",
       .field = {.value = "true|false", .set = set_auto_resume},
       .help = "true is auto, false no",
       .sets = "resume_from_checkpoint"},
  };
}

std::vector<KeySpec> logging_keys() {
  return {
      {.name = "logging_steps",
       .aliases = {"log_every", "log_steps", "log_interval"},
       .field = number(&C::logging_steps, above(0)),
       .help = "between lines of the log; below 1 a fraction of all steps"},
      {.name = "logging_first_step",
       .field = flag(&C::logging_first_step),
       .help = "also after the first step"},
      {.name = "report_to",
       .field = {.value = "LIST",
                 .set = set_reports,
                 .show = [](const C& c) { return shown_words(c.report_to); }},
       .help = "besides JSON lines: tensorboard, wandb (files to sync)",
       .initial = "none"},
      {.name = "use_tensorboard",
       .field = {.value = "true|false", .set = add_if_true<kTensorboard>},
       .help = "adds tensorboard to report_to"},
      {.name = "enable_wandb",
       .aliases = {"use_wandb"},
       .field = {.value = "true|false", .set = add_if_true<kWandb>},
       .help = "adds wandb to report_to"},
      {.name = "logging_dir",
       .aliases = {"log_dir", "tensorboard_dir"},
       .field = text(&C::logging_dir),
       .help = "where event files go",
       .initial = "output_dir/runs"},
      {.name = "run_name",
       .aliases = {"wandb_run_name", "wandb_name", "experiment_name"},
       .field = text(&C::run_name),
       .help = "what the run is called"},
      {.name = "wandb_project", .field = text(&C::wandb_project), .help = "for what wandb syncs"},
      {.name = "plot_loss",
       .field = flag(&C::plot_loss),
       .help = "a picture of the loss at the end"},
  };
}

std::vector<KeySpec> chance_keys() {
  return {
      {.name = "seed",
       .aliases = {"random_state", "train_seed", "random_seed"},
       .field = seed(&C::seed),
       .help = "of everything random"},
      {.name = "data_seed", .field = seed(&C::data_seed), .help = "of the order of rows alone"},
      {.name = "full_determinism",
       .aliases = {"deterministic"},
       .field = flag(&C::full_determinism),
       .help = "only operations that give the same bits again; slower"},
  };
}
// clang-format on

}  // namespace mgpu::train
