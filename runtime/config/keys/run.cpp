// The keys of evaluation, checkpoints, logging and seeds.

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
          fmt::format("{} is not supported; metrics are in metrics.jsonl, and in the formats "
                      "tensorboard and wandb if report_to lists them",
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

const Choices<When> kWhen{
    {"no", When::no}, {"false", When::no}, {"steps", When::steps}, {"epoch", When::epoch}};

Choices<When> when_to_save() {
  auto choices = kWhen;
  choices.emplace_back("best", When::best);
  return choices;
}

std::string shown_steps(const std::vector<std::int64_t>& steps) {
  std::vector<std::string> words;
  for (const auto step : steps) words.push_back(std::to_string(step));
  return shown_words(words);
}

void set_token(C& c, const YamlNode& value) {
  c.hub_token = to_text(value);
}

void set_hub_strategy(C& c, const YamlNode& value) {
  const std::vector<std::string> known{"end", "every_save", "checkpoint", "all_checkpoints"};
  if (choose(value, known, std::vector<bool>(known.size(), true)) > 0)
    c.notes.push_back("means end: the model is uploaded once, when training has ended");
}

void set_save_limit(C& c, const YamlNode& value) {
  const auto most = to_whole(value);
  if (most < -1) throw std::runtime_error("need a number of checkpoints to keep, or 0 for all");
  c.save_total_limit = std::max<std::int64_t>(0, most);
}

}  // namespace

// clang-format off: one paragraph per key is easier to read than one line per field.
std::vector<KeySpec> evaluation_keys() {
  return {
      {.name = "eval_strategy",
       .aliases = {"evaluation_strategy"},
       .field = choice(&C::eval_strategy, kWhen),
       .help = "when to evaluate",
       .initial = "steps if eval_steps and evaluation data are set, else no"},
      {.name = "eval_steps",
       .aliases = {"eval_step", "eval_every"},
       .field = number(&C::eval_steps, at_least(0)),
       .help = "steps between evaluations; below 1: a fraction of all steps; 0: the value of "
               "logging_steps"},
      {.name = "evals_per_epoch",
       .help = "evaluations per epoch",
       .value = "N",
       .sets = "eval_steps"},
      {.name = "eval_on_start",
       .field = flag(&C::eval_on_start),
       .help = "also evaluates before the first step"},
      {.name = "load_best_model_at_end",
       .field = flag(&C::load_best_model_at_end),
       .help = "loads the checkpoint with the best evaluation at the end of the run"},
      {.name = "metric_for_best_model",
       .field = text(&C::metric_for_best_model),
       .help = "metric that decides which checkpoint is best; for grpo: reward"},
      {.name = "greater_is_better",
       .field = flag(&C::greater_is_better),
       .help = "whether higher values of the metric are better; auto: true, except for a loss"},
      {.name = "early_stopping_patience",
       .aliases = {"early_stopping_steps"},
       .field = whole(&C::early_stopping_patience, at_least(0)),
       .help = "stops after this many evaluations without improvement; 0: never"},
      {.name = "early_stopping_threshold",
       .field = number(&C::early_stopping_threshold, at_least(0)),
       .help = "smallest change that counts as an improvement"},
      {.name = "loss_watchdog_threshold",
       .field = number(&C::loss_watchdog_threshold, at_least(0)),
       .help = "ends training if the loss of loss_watchdog_patience steps in a row is higher; 0: "
               "never",
       .task = KeyTask::sft},
      {.name = "loss_watchdog_patience",
       .field = whole(&C::loss_watchdog_patience, at_least(1)),
       .help = "steps in a row that loss_watchdog_threshold needs",
       .task = KeyTask::sft},
  };
}

std::vector<KeySpec> checkpoint_keys() {
  return {
      {.name = "output_dir",
       .aliases = {"save_dir", "output_path", "checkpoint_dir"},
       .field = text(&C::output_dir),
       .help = "folder of checkpoints, logs and the final model"},
      {.name = "save_strategy",
       .field = choice(&C::save_strategy, when_to_save()),
       .help = "when to save checkpoints"},
      {.name = "save_steps",
       .aliases = {"save_every", "checkpoint_steps"},
       .field = number(&C::save_steps, above(0)),
       .help = "steps between checkpoints; below 1: a fraction of all steps"},
      {.name = "saves_per_epoch",
       .help = "checkpoints per epoch",
       .value = "N",
       .sets = "save_steps"},
      {.name = "save_total_limit",
       .aliases = {"max_checkpoints", "keep_last_n"},
       .field = {.value = "N",
                 .set = set_save_limit,
                 .show = [](const C& c) { return std::to_string(c.save_total_limit); }},
       .help = "number of checkpoints to keep: older ones are deleted, except the best; 0: all "
               "are kept"},
      {.name = "async_save",
       .field = flag(&C::async_save),
       .help = "writes checkpoints in the background, from a copy in host memory, if there is "
               "enough of it; false: training stands still until they are complete"},
      {.name = "save_only_model",
       .field = flag(&C::save_only_model),
       .help = "omits the training state: such a checkpoint cannot be resumed from"},
      {.name = "save_final_model",
       .field = flag(&C::save_final_model),
       .help = "saves the final model in output_dir itself, with any save_strategy"},
      {.name = "resume_from_checkpoint",
       .aliases = {"resume"},
       .field = {.value = "auto|no|DIR",
                 .set = set_resume,
                 .show = [](const C& c) { return c.resume_from_checkpoint; }},
       .help = "auto: resumes from the newest complete checkpoint in output_dir, if there is one"},
      {.name = "resume_with_changes",
       .field = flag(&C::resume_with_changes),
       .help = "resumes although the data or settings have changed since the checkpoint was saved"},
      {.name = "overwrite_output_dir",
       .field = flag(&C::overwrite_output_dir),
       .help = "starts anew: a new job deletes the checkpoints in output_dir and the final model of "
               "an earlier run, but no other files; when ranks are restarted, the job resumes as "
               "usual"},
      {.name = "push_to_hub",
       .aliases = {"push_to_hub_model"},
       .field = flag(&C::push_to_hub),
       .help = "uploads the final model with hf when training has ended. If that fails, a line "
               "states how to repeat it"},
      {.name = "hub_model_id",
       .aliases = {"push_to_hub_model_id"},
       .field = text(&C::hub_model_id),
       .help = "name of the model on the Hub, with or without its owner; beside base_model it also "
               "means push_to_hub: true, as in axolotl",
       .initial = "the name of output_dir"},
      {.name = "hub_revision",
       .aliases = {"hub_model_revision"},
       .field = text(&C::hub_revision),
       .help = "branch to upload to",
       .initial = "main"},
      {.name = "hub_private_repo",
       .aliases = {"hub_private"},
       .field = flag(&C::hub_private_repo),
       .help = "makes a new repository private"},
      {.name = "hub_token",
       .aliases = {"push_to_hub_token"},
       .field = {.value = "TEXT",
                 .set = set_token,
                 .show = [](const C& c) { return std::string(c.hub_token.empty() ? "" : "(set)"); }},
       .help = "access token; better set the variable HF_TOKEN, or run `hf auth login`"},
      {.name = "hub_strategy",
       .field = {.value = "end", .set = set_hub_strategy},
       .help = "end is the only strategy; others are accepted and mean the same"},
      {.name = "auto_resume_from_checkpoints",
       .field = {.value = "true|false", .set = set_auto_resume},
       .help = "true means auto, false means no",
       .sets = "resume_from_checkpoint"},
  };
}

std::vector<KeySpec> logging_keys() {
  return {
      {.name = "logging_steps",
       .aliases = {"log_every", "log_steps", "log_interval"},
       .field = number(&C::logging_steps, above(0)),
       .help = "steps between log lines; below 1: a fraction of all steps"},
      {.name = "logging_first_step",
       .field = flag(&C::logging_first_step),
       .help = "also logs the first step"},
      {.name = "report_to",
       .field = {.value = "LIST",
                 .set = set_reports,
                 .show = [](const C& c) { return shown_words(c.report_to); }},
       .help = "formats to write besides metrics.jsonl: tensorboard, wandb (files to sync later)",
       .initial = "none"},
      {.name = "use_tensorboard",
       .field = {.value = "true|false", .set = add_if_true<kTensorboard>},
       .help = "true adds tensorboard to report_to"},
      {.name = "enable_wandb",
       .aliases = {"use_wandb"},
       .field = {.value = "true|false", .set = add_if_true<kWandb>},
       .help = "true adds wandb to report_to"},
      {.name = "logging_dir",
       .aliases = {"log_dir", "tensorboard_dir"},
       .field = text(&C::logging_dir),
       .help = "folder of TensorBoard event files",
       .initial = "output_dir/runs"},
      {.name = "run_name",
       .aliases = {"wandb_run_name", "wandb_name", "experiment_name"},
       .field = text(&C::run_name),
       .help = "name of the run"},
      {.name = "wandb_project",
       .field = text(&C::wandb_project),
       .help = "project of the run in wandb, for report_to: wandb"},
      {.name = "plot_loss",
       .field = flag(&C::plot_loss),
       .help = "writes a plot of the loss at the end of the run"},
      {.name = "trace_steps",
       .field = {.value = "STEPS",
                 .set = [](C& c, const YamlNode& v) { c.trace_steps = to_steps(v); },
                 .show = [](const C& c) { return shown_steps(c.trace_steps); }},
       .help = "steps that each rank records in a Chrome trace, counted from 1, as numbers and "
               "ranges: [5, 10-12]; at most 100"},
      {.name = "trace_dir",
       .field = text(&C::trace_dir),
       .help = "folder of the traces",
       .initial = "output_dir/traces"},
  };
}

std::vector<KeySpec> seed_keys() {
  return {
      {.name = "seed",
       .aliases = {"random_state", "train_seed", "random_seed"},
       .field = seed(&C::seed),
       .help = "seed of all random numbers"},
      {.name = "data_seed", .field = seed(&C::data_seed), .help = "seed of the order of rows"},
      {.name = "full_determinism",
       .aliases = {"deterministic"},
       .field = flag(&C::full_determinism),
       .help = "uses only operations that give bitwise identical results; slower"},
  };
}
// clang-format on

}  // namespace mgpu::train
