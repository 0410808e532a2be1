// Rules about MiniOneRec's keys: what they mean in terms of ours.

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

YamlNode scalar_node(std::string text) {
  return {.kind = YamlNode::Kind::scalar, .text = std::move(text)};
}

YamlNode list_node(const std::vector<std::string>& words) {
  YamlNode list{.kind = YamlNode::Kind::list};
  for (const auto& word : words) list.items.push_back(scalar_node(word));
  return list;
}

// Sets `key` as if the recipe did, in the place of `by`.
void imply(Reading& reading, Setting by, const char* key, YamlNode value) {
  by.key = find_key(key);
  by.value = std::move(value);
  reading.settings.push_back(std::move(by));
}

// The same unless the recipe sets the key itself. Returns what was set, for a note.
std::string imply_default(Reading& reading, const Setting& by, const char* key,
                          const std::string& value) {
  if (reading.find(key)) return {};
  imply(reading, by, key, scalar_node(value));
  return fmt::format("; {}: {}", key, value);
}

// Reward functions of a reward_type; empty for an unknown one.
std::vector<std::string> functions_of(const std::string& type) {
  if (type == "rule") return {"rule"};
  if (type == "ranking") return {"rule", "ndcg_rule"};
  if (type == "ranking_only") return {"ndcg_rule"};
  if (type == "semantic") return {"semantic"};
  return {};
}

// The keys from which MiniOneRec's programs make rows. Ours reads rows as they are.
void row_keys_rule(Reading& reading) {
  for (const char* key : {"category", "item_meta_path", "sid_index_path"})
    if (const auto* setting = reading.find(key))
      reading.note(*setting,
                   "has no effect: rows are read as they are; also write the rows that MiniOneRec "
                   "makes of it to a file of dataset_name");
  std::erase_if(reading.settings, [](const Setting& setting) {
    const auto& name = setting.key->name;
    return name == "category" || name == "item_meta_path" || name == "sid_index_path";
  });
}

void loss_flags_rule(Reading& reading) {
  const auto* dapo = reading.find("dapo");
  const auto* gspo = reading.find("gspo");
  const bool per_token = value_or(reading, "dapo", to_flag, false),
             per_sequence = value_or(reading, "gspo", to_flag, false);
  if (per_token && per_sequence)
    return reading.error(*gspo, fmt::format("contradicts dapo ({}); keep one", dapo->where));
  if (!per_token && !per_sequence) return;
  const auto by = per_token ? *dapo : *gspo;
  const auto require = [&](const char* key, const char* value) {
    if (const auto* other = reading.find(key); other && other->value.text != value)
      reading.error(*other, fmt::format("contradicts {} ({}), which means {}: {}; keep one",
                                        by.written, by.where, key, value));
    else if (!other)
      imply(reading, by, key, scalar_node(value));
  };
  require("loss_type", per_token ? "dapo" : "grpo");
  if (per_sequence) require("importance_sampling_level", "sequence");
}

void reward_type_rule(Reading& reading) {
  const auto* found = reading.find("reward_type");
  if (!found) return;
  const auto setting = *found;
  const auto& type = setting.value.text;
  if (const auto* functions = reading.find("reward_funcs"))
    return reading.error(setting, fmt::format("means the same as {} ({}); keep one",
                                              functions->written, functions->where));
  if (type == "sasrec")
    return reading.error(setting,
                         "sasrec scores with a SASRec model, which is not supported; use rule, "
                         "ranking, ranking_only or semantic");
  const auto functions = functions_of(type);
  if (functions.empty())
    return reading.error(setting,
                         fmt::format("need rule, ranking, ranking_only or semantic, not {}",
                                     rendezvous::shown(type, 32)));
  imply(reading, setting, "reward_funcs", list_node(functions));
  reading.note(setting,
               fmt::format("means reward_funcs: {}{}{}", shown_words(functions),
                           imply_default(reading, setting, "loss_type", "grpo"),
                           imply_default(reading, setting, "use_bias_correction_kl", "false")));
}

bool is_set(Reading& reading, const char* key) {
  const auto* setting = reading.find(key);
  return setting && !is_null(setting->value) && !setting->value.text.empty();
}

bool rewards_similarity(Reading& reading) {
  const auto* functions = reading.find("reward_funcs");
  if (!functions) return false;
  const auto& value = functions->value;
  return value.text == "semantic" ||
         std::ranges::any_of(value.items, [](const auto& one) { return one.text == "semantic"; });
}

void items_rule(Reading& reading) {
  const auto require = [&](const Setting& by, const char* key, const char* why) {
    if (!is_set(reading, key)) reading.error(by, fmt::format("requires {}: {}", key, why));
  };
  if (value_or(reading, "add_gt", to_flag, false))
    require(*reading.find("add_gt"), "info_file", "the item that is added is one of them");
  if (rewards_similarity(reading)) {
    const auto by = *reading.find("reward_funcs");
    require(by, "info_file", "semantic compares these items");
    require(by, "ada_path", "semantic compares the embeddings in it");
  } else if (is_set(reading, "ada_path")) {
    reading.note(*reading.find("ada_path"), "has no effect: no reward is semantic");
  }
}

// Beams and items are those of the built-in engine.
void decoding_rule(Reading& reading) {
  const bool server = uses_server(reading);
  const bool beams = value_or(reading, "beam_search", to_flag, false);
  const bool tests = value_or(reading, "test_during_training", to_flag, false);
  const auto refuse = [&](bool set, const char* key) {
    if (server && set)
      reading.error(*reading.find(key),
                    "is not supported with a vLLM server; leave use_vllm out, so that the "
                    "built-in engine generates");
  };
  refuse(beams, "beam_search");
  refuse(tests, "test_during_training");
  refuse(is_set(reading, "info_file"), "info_file");
  const auto no_effect = [&](bool so, const char* key, const char* why) {
    if (so && reading.find(key)) reading.note(*reading.find(key), why);
  };
  no_effect(beams && value_or(reading, "dynamic_sampling", to_flag, false), "dynamic_sampling",
            "has no effect: beam_search has as many beams as completions, and all differ");
  for (const char* key : {"top_k", "top_p", "min_p"})
    no_effect(beams, key, "has no effect on beams");
  if ((beams || tests) && value_or(reading, "repetition_penalty", to_number, 1.0) != 1)
    reading.error(*reading.find("repetition_penalty"),
                  beams ? "is not supported with beam_search; leave one of them out"
                        : "is not supported with test_during_training, which tests with beams; "
                          "leave one of them out");
  no_effect(!tests, "test_beam", "has no effect without test_during_training: true");
  no_effect(tests, "num_generations_eval", "has no effect: test_during_training has test_beam");
}

// Whether there are rows to evaluate with. A size that is not a number, which other rules report,
// counts as rows.
bool has_evaluation_rows(Reading& reading) {
  if (const auto* rows = reading.find("eval_dataset");
      rows && !is_null(rows->value) &&
      (rows->value.kind != YamlNode::Kind::list || !rows->value.items.empty()) &&
      (rows->value.kind != YamlNode::Kind::scalar || !rows->value.text.empty()))
    return true;
  if (reading.find("val_set_size") && value_or(reading, "val_set_size", to_number, 1.0) > 0)
    return true;
  const auto* split = reading.find("train_split");
  return split && split->value.text != "train" &&
         value_or(reading, "train_split", to_number, 0.0) < 1;
}

void evaluation_rows_rule(Reading& reading) {
  if (!value_or(reading, "test_during_training", to_flag, false) || has_evaluation_rows(reading))
    return;
  reading.error(*reading.find("test_during_training"),
                "requires evaluation data; set eval_dataset or val_set_size");
}

void sample_train_rule(Reading& reading) {
  if (!value_or(reading, "sample_train", to_flag, false)) return;
  const auto* model = reading.find("model_name_or_path");
  if (model && model->value.text.find("sft") == std::string::npos)
    reading.note(*reading.find("sample_train"),
                 "has no effect, as in MiniOneRec: the model's name does not contain sft");
}

}  // namespace

void recommendation_names(Reading& reading) {
  if (!reading.find("reward_type") && !reading.find("info_file")) return;
  for (auto& setting : reading.settings) {
    if (setting.written != "train_batch_size") continue;
    setting.key = find_key("per_device_train_batch_size");
    reading.note(setting, "means per_device_train_batch_size, of one rank, as in MiniOneRec");
  }
}

void recommendation_rules(Reading& reading) {
  row_keys_rule(reading);
  loss_flags_rule(reading);
  reward_type_rule(reading);
  items_rule(reading);
  decoding_rule(reading);
  evaluation_rows_rule(reading);
  sample_train_rule(reading);
  if (value_or(reading, "mask_all_zero", to_flag, false))
    reading.note(*reading.find("mask_all_zero"), "has no effect, as in MiniOneRec");
  if (const auto* path = reading.find("cf_path"); path && !path->value.text.empty())
    reading.note(*path, "has no effect: reward_type: sasrec is not supported");
}

}  // namespace mgpu::train
