// Every name of every key that a recipe may have: it changes what check shows, or a note or a line
// of refusal names it. No key is silent.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/config/check.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;

namespace {

// What a value of a key does in a recipe.
enum class Outcome { changes, noted, refused, silent, wrong };

// A recipe in which a key can have an effect, and values to try instead of those of its kind.
struct Trial {
  std::string beside = {};
  std::vector<std::string> values = {};
  bool has_one_value = false;  // all but the default are refused
  bool is_silent = false;      // mgpu-run reads it
};

const std::map<std::string, Trial>& trials() {
  static const std::string evaluates = "eval_dataset: e.jsonl\neval_strategy: steps\n";
  static const std::string creates = "model_size: tiny\n";
  static const std::map<std::string, Trial> all{
      {"bnb_4bit_quant_type", {.values = {"nf4", "fp4"}, .has_one_value = true}},
      {"deepspeed", {.values = {"{zero_optimization: {stage: 3}}", "{stage: 3}"}}},
      {"early_stopping_patience", {.beside = evaluates, .values = {"3"}}},
      {"eval_strategy", {.beside = "eval_dataset: e.jsonl\n"}},
      {"fp16", {.values = {"true", "false"}}},
      {"fsdp", {.values = {"[full_shard, auto_wrap]", "shard_grad_op"}}},
      {"fsdp_config", {.values = {"{reshard_after_forward: true}", "{sharding_strategy: 2}"}}},
      {"generation_batch_size", {.values = {"16", "32"}}},
      {"global_batch_size", {.values = {"16", "24"}}},
      {"gpu_weights", {.beside = "batch_sharding: weighted\n", .values = {"[1]"}}},
      {"hub_strategy", {.values = {"end", "every_save"}}},
      {"interleave_probs",
       {.beside = "dataset_name: [a.jsonl, b.jsonl]\nmix_strategy: interleave_under\n",
        .values = {"[0.7, 0.3]", "[1, 1]"}}},
      {"launch", {.values = {"{nproc: 2}"}, .is_silent = true}},
      {"load_best_model_at_end", {.beside = evaluates + "eval_steps: 500\n"}},
      {"lr_scheduler_kwargs",
       {.beside = "lr_scheduler_type: cosine_with_min_lr\n", .values = {"{min_lr_rate: 0.1}"}}},
      {"lr_scheduler_type", {.values = {"cosine", "constant"}}},
      {"mixed_precision", {.values = {"bf16", "no", "true"}}},
      {"model_family", {.beside = creates}},
      {"model_size", {.values = {"tiny", "small"}}},
      {"optim", {.values = {"adamw_8bit", "paged_adamw_8bit"}}},
      {"packing_strategy", {.beside = "packing: true\n"}},
      {"plugins", {.values = {"[axolotl.integrations.liger.LigerPlugin]", "[other]"}}},
      {"policy_gpus", {.values = {"[0, 2]", "[1]"}}},
      {"reward_type", {.values = {"rule"}}},
      {"roles_to_train", {.values = {"[assistant]", "[user]"}}},
      {"streaming", {.beside = "max_steps: 5\n"}},
      {"target_kl", {.beside = "beta: 0.1\n"}},
      {"template", {.values = {"qwen3", "llama3"}}},
      {"tokenizer_kind", {.beside = creates}},
      {"vllm_structured_outputs_regex", {.beside = "use_vllm: true\nvllm_mode: server\n"}},
      {"vocab_size", {.beside = creates, .values = {"300", "400"}}},
  };
  return all;
}

std::string recipe_without(const KeySpec& key, bool grpo, const std::string& beside) {
  std::string text;
  if (key.name != "model_name_or_path" && key.name != "model_size" &&
      beside.find("model_size") == beside.npos)
    text += "model_name_or_path: m\n";
  if (key.name != "dataset_name" && beside.find("dataset_name") == beside.npos)
    text += "dataset_name: d.jsonl\n";
  if (grpo && key.name != "task") text += "task: grpo\n";
  return text + beside;
}

std::string shown(TrainConfig config) {
  config.notes.clear();
  return check_text(config, "f", 1);
}

bool names(const std::vector<std::string>& lines, const std::string& name) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(": " + name) != line.npos; });
}

Outcome outcome_of(const std::string& before, const std::string& name, const std::string& value) {
  std::string base;
  try {
    base = shown(parse_recipe(before, "f"));
  } catch (const std::runtime_error&) {
    base.clear();  // the key completes the recipe
  }
  try {
    const auto config = parse_recipe(before + name + ": " + value + "\n", "f");
    if (names(config.notes, name)) return Outcome::noted;
    return shown(config) == base ? Outcome::silent : Outcome::changes;
  } catch (const RecipeError& e) {
    return e.lines().size() == 1 && names(e.lines(), name) ? Outcome::refused : Outcome::wrong;
  } catch (const std::runtime_error&) {
    return Outcome::wrong;
  }
}

// Values of the kind that the reference gives for the key.
std::vector<std::string> values_of(const KeySpec& key) {
  const auto& kind = key.field.value.empty() ? key.value : key.field.value;
  if (kind.empty()) return {"true", "false", "7", "some"};
  static const std::map<std::string, std::vector<std::string>> kinds{
      {"N", {"3", "7"}},           {"NUMBER", {"0.25", "0.5", "3"}},
      {"TEXT", {"some", "other"}}, {"LIST", {"[some]", "[other]"}},
      {"NAME", {"some"}},          {"PATH", {"some.jsonl"}},
      {"DIR", {"some"}},           {"FILE", {"some.jinja"}},
      {"MAP", {"{eos_token: x}"}}, {"VALUE", {"3", "{a: 1}", "some"}},
      {"WORD", {"some", "true"}},  {"STEPS", {"[3]"}},
      {"[B1, B2]", {"[0.5, 0.6]"}}};
  std::vector<std::string> values;
  for (std::size_t at = 0; at <= kind.size();) {
    const auto end = std::min(kind.find('|', at), kind.size());
    const auto word = kind.substr(at, end - at);
    const auto found = kinds.find(word);
    if (found == kinds.end())
      values.push_back(word);
    else
      values.insert(values.end(), found->second.begin(), found->second.end());
    at = end + 1;
  }
  return values;
}

std::string word(Outcome outcome) {
  constexpr const char* kWords[] = {"changes", "noted", "refused", "silent", "wrong"};
  return kWords[static_cast<int>(outcome)];
}

// Whether the help of the key states that it does nothing, so that a note must.
bool does_nothing(const KeySpec& key) {
  return key.use == KeyUse::ignored || key.help.find("no effect:") != std::string::npos;
}

// Tries the values of one name, and returns what is wrong with it.
std::string mistake_of(const KeySpec& key, const std::string& name, const Trial& trial) {
  const auto before = recipe_without(key, key.task == KeyTask::grpo, trial.beside);
  std::map<Outcome, int> count;
  std::string tried;
  for (const auto& value : trial.values.empty() ? values_of(key) : trial.values) {
    const auto outcome = outcome_of(before, name, value);
    ++count[outcome];
    tried += fmt::format(" {} ({})", value, word(outcome));
  }
  const bool refused = count[Outcome::refused] > 0;
  if (key.use == KeyUse::refused) return refused ? "" : "is refused by no value:" + tried;
  if (trial.is_silent || (trial.has_one_value && refused)) return {};
  // The default changes nothing. Keys that are not supported have no other value.
  if (count[Outcome::silent] > 1) return "is silent:" + tried;
  if (does_nothing(key) && count[Outcome::noted] == 0) return "has no effect, and no note:" + tried;
  const bool lacks = key.help.starts_with("not supported") && refused;
  const bool works = lacks || count[Outcome::changes] + count[Outcome::noted] > 0;
  return works ? "" : "does nothing:" + tried;
}

// The value of a key of one task that the other task would read.
std::string some_value(const KeySpec& key) {
  const auto found = trials().find(key.name);
  return found == trials().end() || found->second.values.empty() ? values_of(key).back()
                                                                 : found->second.values.front();
}

}  // namespace

TEST_CASE("every name of every key changes the recipe, or a line names it", "[keys][effects]") {
  for (const auto& key : config_keys()) {
    const auto found = trials().find(key.name);
    const auto trial = found == trials().end() ? Trial{} : found->second;
    auto all = key.aliases;
    all.push_back(key.name);
    for (const auto& name : all) {
      INFO(name);
      CHECK(mistake_of(key, name, trial) == "");
    }
  }
}

TEST_CASE("a key of the other task is named by a note", "[keys][effects]") {
  for (const auto& key : config_keys()) {
    if (key.use != KeyUse::used || key.task == KeyTask::any) continue;
    const auto* task = key.task == KeyTask::grpo ? "sft" : "grpo";
    const auto recipe = fmt::format("model: m\ndataset_name: d\ntask: {}\n", task);
    INFO(key.name << ": " << some_value(key));
    CHECK(outcome_of(recipe, key.name, some_value(key)) == Outcome::noted);
  }
}
