// What DeepSpeed's JSON and accelerate's YAML say, in our keys.

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/reading.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

const std::map<std::string, const char*> kOurs{
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

// How gradients and weights are laid out and sent, which is ours to choose, what is printed, and
// what mgpu-run reads.
constexpr std::array kWithoutMeaning{
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

bool without_meaning(const std::string& key) {
  return key.starts_with("stage3_") || key.starts_with("tpu_") || key.starts_with("dynamo_") ||
         std::find(kWithoutMeaning.begin(), kWithoutMeaning.end(), std::string_view(key)) !=
             kWithoutMeaning.end();
}

const YamlNode* inner(const YamlNode& map, std::string_view key) {
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
    if (map.is_map() && map.items[i].text == key) return &map.items[i + 1];
  return nullptr;
}

bool left_open(const YamlNode& value) {
  return is_null(value) || (value.kind == YamlNode::Kind::scalar && value.text == "auto");
}

// Whether all that a section says is "auto", or its type.
bool all_auto(const YamlNode& value) {
  const auto* params = inner(value, "params");
  if (!params) return false;
  for (std::size_t i = 1; i < params->items.size(); i += 2)
    if (!left_open(params->items[i])) return false;
  return true;
}

class Walk {
 public:
  Walk(Reading& reading, const Source& source) : reading_(reading), source_(source) {}

  void map(const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) pair(map.items[i], map.items[i + 1]);
  }

 private:
  void pair(const YamlNode& key, const YamlNode& value) {
    const auto& word = key.text;
    if (left_open(value) || without_meaning(word)) return;
    if (const auto ours = kOurs.find(word); ours != kOurs.end()) {
      say(ours->second, key, value);
    } else if (word == "deepspeed_config" || word == "zero_optimization") {
      value.is_map() ? map(value) : refuse(key, "needs a map");
    } else if (word == "deepspeed_config_file") {
      follow(key, value);
    } else if (word == "bf16" || word == "bfloat16" || word == "fp16") {
      if (const auto* enabled = inner(value, "enabled"); enabled && !left_open(*enabled))
        precision(word == "fp16" ? "fp16" : "bf16", key, *enabled);
    } else {
      odd(key, value);
    }
  }

  // "enabled: false" beside the other's "enabled: true" says nothing of its own.
  void precision(const char* ours, const YamlNode& key, const YamlNode& enabled) {
    const bool off = enabled.text == "false" || enabled.text == "False";
    if (!off) say(ours, key, enabled);
  }

  void odd(const YamlNode& key, const YamlNode& value) {
    const auto& word = key.text;
    if (word.starts_with("offload_") || word == "cpu_offload") {
      const auto* device = value.is_map() ? inner(value, "device") : &value;
      const bool none = !device || left_open(*device) || device->text == "none" ||
                        device->text == "false" || device->text == "False";
      if (!none) refuse(key, "nothing is offloaded; use zero_stage: 3, or load_in_4bit");
    } else if (word == "optimizer" || word == "scheduler") {
      if (!all_auto(value))
        refuse(key, "say it in the recipe: optim, learning_rate, lr_scheduler_type, warmup_steps");
    } else if (word == "distributed_type") {
      if (value.text != "DEEPSPEED" && value.text != "MULTI_GPU" && value.text != "NO")
        refuse(key, fmt::format("{} is not there; use zero_stage: 3", shown(value.text, 32)));
    } else if (word == "fsdp_config" || word == "megatron_lm_config") {
      if (!value.items.empty()) refuse(key, "use zero_stage: 3");
    } else {
      unknown(key);
    }
  }

  void say(const char* ours, const YamlNode& key, const YamlNode& value) {
    reading_.settings.push_back({find_key(ours), shown(key.text), at_line(source_.name, key.line),
                                 source_.overrides, value});
  }

  void follow(const YamlNode& key, const YamlNode& value) {
    if (followed_) return refuse(key, "a file names a file that names a file");
    try {
      const auto path = to_text(value);
      const auto top = source_.read_file(path);
      if (!top.is_map()) throw std::runtime_error(fmt::format("{} holds no map", shown(path, 300)));
      Source file = source_;
      file.name = path;
      Walk walk(reading_, file);
      walk.followed_ = true;
      walk.map(top);
    } catch (const std::runtime_error& e) {
      refuse(key, e.what());
    }
  }

  void refuse(const YamlNode& key, const std::string& why) {
    reading_.errors.push_back(
        fmt::format("{}: {}: {}", at_line(source_.name, key.line), shown(key.text), why));
  }

  void unknown(const YamlNode& key) {
    auto line = fmt::format("{}: unknown key {} of DeepSpeed or accelerate",
                            at_line(source_.name, key.line), shown(key.text));
    (source_.allow_unknown ? reading_.config.notes : reading_.errors).push_back(std::move(line));
  }

  Reading& reading_;
  const Source& source_;
  bool followed_ = false;
};

}  // namespace

void collect_deepspeed(Reading& reading, const YamlNode& map, const Source& source) {
  Walk(reading, source).map(map);
}

}  // namespace mgpu::train
