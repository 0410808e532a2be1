// Rules about what a recipe trains and how. Other trainers have methods that this program lacks.

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

const Choices<Task> kTasks{
    {"sft", Task::sft}, {"grpo", Task::grpo}, {"pt", Task::sft}, {"gspo", Task::grpo}};

// Methods of other trainers. Another unknown word is a mistake.
constexpr std::array<std::string_view, 20> kMethods{
    "dpo", "ipo",  "kto",  "orpo", "simpo", "cpo",        "bco",  "apo", "rm",  "prm",
    "ppo", "rloo", "gdpo", "opd",  "ebft",  "online_dpo", "nash", "xpo", "gkd", "distillation"};

// Plugins of axolotl that choose kernels, losses or logs: ours are built in.
constexpr std::array<std::string_view, 6> kHarmlessPlugins{
    "LigerPlugin", "CutCrossEntropyPlugin", "SwanLabPlugin", "KernelsPlugin", "MLFlow", "Comet"};

bool contains_any(std::string_view text, const auto& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != text.npos; });
}

Task named_task(Reading& reading, const Setting& setting) {
  const auto& word = setting.value.text;
  if (std::find(kMethods.begin(), kMethods.end(), word) != kMethods.end()) {
    reading.lacks(setting, fmt::format("the training method {}", word));
    return Task::sft;
  }
  if (word == "pt") {
    reading.config.packing = true;
    reading.note(setting,
                 "means task: sft, and packing: true unless packing is set; a row longer than "
                 "max_length is cut, not continued in the next sequence");
  }
  return reading.read(setting, [](const YamlNode& v) { return choose(v, kTasks); })
      .value_or(Task::sft);
}

void model_type_rule(Reading& reading) {
  const auto* setting = reading.find("model_type");
  if (!setting) return;
  const auto word = reading.read(*setting, to_text).value_or("");
  if (contains_any(
          word, std::array<std::string_view, 2>{"SequenceClassification", "TokenClassification"}))
    reading.lacks(*setting, "training of reward models and classifiers");
  else if (contains_any(word, std::array<std::string_view, 3>{"ImageText", "Vision", "Llava"}))
    reading.lacks(*setting, "training on images, audio or video");
  else
    reading.note(*setting, "has no effect: config.json names the architecture");
}

void plugin_rule(Reading& reading) {
  const auto* setting = reading.find("plugins");
  if (!setting) return;
  for (const auto& plugin : reading.read(*setting, to_words).value_or(std::vector<std::string>())) {
    const auto name = plugin.substr(plugin.rfind('.') + 1);
    if (contains_any(name, kHarmlessPlugins))
      reading.note(*setting, fmt::format("{} has no effect: kernels, losses and logs are built in",
                                         rendezvous::shown(name, 48)));
    else
      reading.lacks(*setting, fmt::format("the plugin {}", rendezvous::shown(name, 48)));
  }
}

// Rewards of open-r1 that run what the model wrote.
void reward_rule(Reading& reading) {
  constexpr std::array<std::string_view, 4> kCode{"code", "binary_code", "ioi_code", "cf_code"};
  const auto* setting = reading.find("reward_funcs");
  if (!setting) return;
  for (const auto& name : value_or(reading, "reward_funcs", to_words, std::vector<std::string>()))
    if (std::find(kCode.begin(), kCode.end(), name) != kCode.end())
      reading.lacks(*setting,
                    fmt::format("running generated code as the reward {0} (./my_rewards.py:{0} "
                                "names a function of your own)",
                                name));
}

// DPO recipes of TRL do not name their method, but have its temperature.
void preference_rule(Reading& reading) {
  const auto* beta = reading.find("beta");
  if (!beta || reading.config.task == Task::grpo || reading.find("task")) return;
  reading.lacks(*beta, "training on preferences (DPO)");
}

}  // namespace

void decide_task(Reading& reading) {
  const auto* reward = reading.find("reward_model");
  if (reward && reward->value.text == "true")
    return reading.lacks(*reward, "training of reward models and classifiers");
  if (reading.find("task")) {
    reading.config.task = named_task(reading, *reading.find("task"));
  } else if (reading.find("reward_funcs") || reading.find("reward_type") ||
             reading.find("reward_model") || reading.find("num_generations")) {
    reading.config.task = Task::grpo;
  }
  if (reading.config.task == Task::grpo) reading.config.learning_rate = 1e-6;
}

void method_rules(Reading& reading) {
  model_type_rule(reading);
  plugin_rule(reading);
  reward_rule(reading);
  preference_rule(reading);
}

}  // namespace mgpu::train
