// Translates the keys of DeepSpeed's JSON and accelerate's YAML into recipe keys.

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/reading.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

const std::map<std::string, const char*> kRecipeKeys{
    {"zero_stage", "zero_stage"},
    {"stage", "zero_stage"},
    {"reduce_bucket_size", "reduce_bucket_size"},
    {"allgather_bucket_size", "allgather_bucket_size"},
    {"overlap_comm", "overlap_comm"},
    {"gradient_accumulation_steps", "gradient_accumulation_steps"},
    {"gradient_clipping", "max_grad_norm"},
    {"train_batch_size", "global_batch_size"},
    {"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
    {"mixed_precision", "mixed_precision"},
};

// Keys of the section fp16.
const std::map<std::string, const char*> kScaleKeys{
    {"loss_scale", "loss_scale"},
    {"initial_scale_power", "initial_scale_power"},
    {"loss_scale_window", "loss_scale_window"},
    {"hysteresis", "loss_scale_hysteresis"},
    {"consecutive_hysteresis", "consecutive_hysteresis"},
    {"min_loss_scale", "min_loss_scale"},
};

// Keys without effect: the layout and the communication of gradients and weights, which this
// program decides itself; what DeepSpeed prints; and what mgpu-run reads.
constexpr std::array kIgnored{
    "allgather_partitions",
    "bfloat16_enabled",
    "communication_data_type",
    "compute_environment",
    "contiguous_gradients",
    "debug",
    "deepspeed_hostfile",
    "deepspeed_moe_layer_cls_names",
    "deepspeed_multinode_launcher",
    "downcast_bf16",
    "dump_state",
    "enable_cpu_affinity",
    "gather_16bit_weights_on_model_save",
    "gpu_ids",
    "ignore_unused_parameters",
    "legacy_stage1",
    "load_from_fp32_weights",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "main_training_function",
    "max_live_parameters",
    "max_reuse_distance",
    "memory_breakdown",
    "num_machines",
    "num_processes",
    "prescale_gradients",
    "rdzv_backend",
    "reduce_scatter",
    "round_robin_gradients",
    "same_network",
    "steps_per_print",
    "sub_group_size",
    "tensorboard",
    "use_cpu",
    "wall_clock_breakdown",
    "zero3_init_flag",
    "zero3_save_16bit_model",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "dynamo_config",
    "tpu_env",
    "commands",
    "command_file",
};

bool is_ignored(const std::string& key) {
  return key.starts_with("stage3_") || key.starts_with("tpu_") || key.starts_with("dynamo_") ||
         std::find(kIgnored.begin(), kIgnored.end(), std::string_view(key)) != kIgnored.end();
}

const YamlNode* inner(const YamlNode& map, std::string_view key) {
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
    if (map.is_map() && map.items[i].text == key) return &map.items[i + 1];
  return nullptr;
}

bool is_auto(const YamlNode& value) {
  return is_null(value) || (value.kind == YamlNode::Kind::scalar && value.text == "auto");
}

// Whether a distributed_type means plain data parallelism or one process.
bool is_without_deepspeed(const YamlNode& type) {
  return type.text == "MULTI_GPU" || type.text == "MULTI_CPU" || type.text == "NO";
}

// Whether every parameter of a section is "auto"; its type does not matter.
bool all_auto(const YamlNode& value) {
  const auto* params = inner(value, "params");
  if (!params) return false;
  for (std::size_t i = 1; i < params->items.size(); i += 2)
    if (!is_auto(params->items[i])) return false;
  return true;
}

class DeepSpeedReader {
 public:
  DeepSpeedReader(Reading& reading, const Source& source) : reading_(reading), source_(source) {}

  void map(const YamlNode& map) {
    reject_unused_deepspeed(map);
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) pair(map.items[i], map.items[i + 1]);
  }

  // One note for all keys without effect: files of `accelerate config` have many.
  void report_ignored() {
    if (!ignored_.empty())
      reading_.config.notes.push_back(fmt::format(
          "{}: without effect on training, in which zero_stage decides what is sharded: {}",
          shown(source_.name, 300), shown(fmt::format("{}", fmt::join(ignored_, ", ")), 400)));
  }

 private:
  void pair(const YamlNode& key, const YamlNode& value) {
    const auto& name = key.text;
    if (is_auto(value)) return;
    if (is_ignored(name)) return ignored_.push_back(shown(name, 64));
    if (const auto found = kRecipeKeys.find(name); found != kRecipeKeys.end()) {
      add_setting(found->second, key, value);
    } else if (name == "deepspeed_config" || name == "zero_optimization") {
      value.is_map() ? map(value) : refuse(key, "needs a map");
    } else if (name == "deepspeed_config_file") {
      add_file(key, value);
    } else if (name == "bf16" || name == "bfloat16" || name == "fp16") {
      precision(name == "fp16" ? "fp16" : "bf16", key, value);
    } else {
      other_key(key, value);
    }
  }

  // "enabled: false" of one precision beside "enabled: true" of the other is ignored.
  void precision(const char* recipe_key, const YamlNode& key, const YamlNode& section) {
    const auto* enabled = inner(section, "enabled");
    if (!enabled || enabled->text == "false" || enabled->text == "False") return;
    if (!is_auto(*enabled)) add_setting(recipe_key, key, *enabled);
    if (key.text != "fp16") return;
    for (std::size_t i = 0; i + 1 < section.items.size(); i += 2)
      fp16_key(section.items[i], section.items[i + 1]);
  }

  void fp16_key(const YamlNode& key, const YamlNode& value) {
    if (is_auto(value) || key.text == "enabled" || key.text == "auto_cast") return;
    if (const auto found = kScaleKeys.find(key.text); found != kScaleKeys.end()) {
      add_setting(found->second, key, value);
    } else if (key.text != "fp16_master_weights_and_grads") {
      unknown(key);
    } else if (value.text != "false" && value.text != "False") {
      refuse(key, "master weights and gradients are always fp32");
    }
  }

  void other_key(const YamlNode& key, const YamlNode& value) {
    const auto& name = key.text;
    if (name.starts_with("offload_") || name == "cpu_offload") {
      const auto* device = value.is_map() ? inner(value, "device") : &value;
      const bool none = !device || is_auto(*device) || device->text == "none" ||
                        device->text == "false" || device->text == "False";
      if (!none) refuse(key, "there is no offloading; use zero_stage: 3 or load_in_4bit");
    } else if (name == "optimizer" || name == "scheduler") {
      if (!all_auto(value))
        refuse(key,
               "is not read from this file; set optim, learning_rate, lr_scheduler_type and "
               "warmup_steps in the recipe");
    } else if (name == "distributed_type") {
      if (value.text != "DEEPSPEED" && value.text != "FSDP" && !is_without_deepspeed(value))
        refuse(key, fmt::format("{} is not supported; use zero_stage: 3", shown(value.text, 32)));
    } else if (name == "fsdp_config") {
      collect_fsdp(
          reading_,
          {find_key(name), name, at_line(source_.name, key.line), source_.overrides, value},
          source_);
    } else if (name == "megatron_lm_config") {
      if (!value.items.empty()) refuse(key, "is not supported; use zero_stage: 3");
    } else {
      unknown(key);
    }
  }

  // accelerate would ignore the DeepSpeed settings of such a file.
  void reject_unused_deepspeed(const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const auto &key = map.items[i], &value = map.items[i + 1];
      if (key.text != "distributed_type" || !is_without_deepspeed(value)) continue;
      for (const auto* section : {"deepspeed_config", "zero_optimization"})
        if (const auto* other = inner(map, section); other && !other->items.empty())
          refuse(key, fmt::format("{0} contradicts {1}, which accelerate ignores then; write "
                                  "DEEPSPEED, or remove {1}",
                                  value.text, section));
    }
  }

  void add_setting(const char* recipe_key, const YamlNode& key, const YamlNode& value) {
    reading_.settings.push_back({find_key(recipe_key), shown(key.text),
                                 at_line(source_.name, key.line), source_.overrides, value});
  }

  void add_file(const YamlNode& key, const YamlNode& value) {
    if (nested_)
      return refuse(key,
                    "is nested too deeply: a file that another file names cannot name a third");
    try {
      const auto path = to_text(value);
      const auto top = source_.read_file(path);
      if (!top.is_map())
        throw std::runtime_error(
            fmt::format("{} is not a map of keys and values", shown(path, 300)));
      Source file = source_;
      file.name = path;
      DeepSpeedReader reader(reading_, file);
      reader.nested_ = true;
      reader.map(top);
      reader.report_ignored();
    } catch (const std::runtime_error& e) {
      refuse(key, e.what());
    }
  }

  void refuse(const YamlNode& key, const std::string& why) {
    reading_.errors.push_back(
        fmt::format("{}: {}: {}", at_line(source_.name, key.line), shown(key.text), why));
  }

  void unknown(const YamlNode& key) {
    auto line = fmt::format("{}: unknown DeepSpeed or accelerate key {}",
                            at_line(source_.name, key.line), shown(key.text));
    (source_.allow_unknown ? reading_.config.notes : reading_.errors).push_back(std::move(line));
  }

  Reading& reading_;
  const Source& source_;
  std::vector<std::string> ignored_;
  bool nested_ = false;  // the file was named by another one
};

}  // namespace

void collect_deepspeed(Reading& reading, const YamlNode& map, const Source& source) {
  DeepSpeedReader reader(reading, source);
  reader.map(map);
  reader.report_ignored();
}

}  // namespace mgpu::train
