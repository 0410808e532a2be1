#include "launcher/options/accelerate_file.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "launcher/options/yaml_values.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

// Keys that are options of ours under another name.
struct RenamedKey {
  std::string_view key;
  const char* option;
};
constexpr std::array kRenamedKeys{
    RenamedKey{"num_processes", "num-processes"},
    RenamedKey{"num_machines", "num-machines"},
    RenamedKey{"machine_rank", "machine-rank"},
    RenamedKey{"main_process_ip", "main-process-ip"},
    RenamedKey{"main_process_port", "main-process-port"},
    RenamedKey{"gpu_ids", "gpu-ids"},
    RenamedKey{"rdzv_backend", "rdzv-backend"},
};

// Keys that are ignored without a note: they describe the file, or what is always the case here.
constexpr std::array<std::string_view, 5> kIgnoredKeys{
    "compute_environment", "main_training_function", "same_network", "debug", "num_cpu_threads"};

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Whether the value means "not set" in that file.
bool is_unset(const YamlNode& value) {
  const bool collection = value.kind == YamlNode::Kind::list || value.kind == YamlNode::Kind::map;
  return value.kind == YamlNode::Kind::null || (collection && value.items.empty()) ||
         (value.kind == YamlNode::Kind::scalar &&
          is_one_of(value.text, {"", "false", "False", "no", "NO", "'no'", "null"}));
}

// A YAML string, whatever characters the text has.
std::string quoted(const std::string& text) {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string("''") : std::string(1, c);
  return all + "'";
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

bool is_accelerate_file(const YamlNode& top) {
  for (std::size_t i = 0; i < top.items.size(); i += 2)
    if (is_one_of(top.items[i].text, {"compute_environment", "distributed_type", "num_processes"}))
      return true;
  return false;
}

LaunchFile read_accelerate_file(const YamlNode& top, const std::string& path, bool for_recipe) {
  LaunchFile file;
  std::vector<std::string> ignored, workers;
  bool uses_cpu = false;
  const auto set = [&](const char* option, const YamlNode& key, std::string value) {
    file.settings.push_back({find_option(option), Source::config,
                             fmt::format("{}: {}", at_line(path, key.line), key.text),
                             std::move(value)});
  };
  for (std::size_t i = 0; i + 1 < top.items.size(); i += 2) {
    const YamlNode &key = top.items[i], &value = top.items[i + 1];
    if (is_unset(value)) continue;
    if (std::find(kIgnoredKeys.begin(), kIgnoredKeys.end(), key.text) != kIgnoredKeys.end())
      continue;
    const auto name = fmt::format("{}: {}", at_line(path, key.line), shown(key.text));
    const auto same = std::find_if(kRenamedKeys.begin(), kRenamedKeys.end(),
                                   [&key](const RenamedKey& s) { return s.key == key.text; });
    if (same != kRenamedKeys.end()) {
      set(same->option, key, scalar_text(value, name));
    } else if (key.text == "mixed_precision") {  // Accelerator() reads it from there
      set("env", key, "ACCELERATE_MIXED_PRECISION=" + scalar_text(value, name));
    } else if (key.text == "enable_cpu_affinity") {
      set("numa-binding", key, "node");
    } else if (key.text == "use_cpu") {
      uses_cpu = true;
    } else if (key.text == "distributed_type") {
      uses_cpu = uses_cpu || value.text == "MULTI_CPU";
      if (!is_one_of(value.text, {"MULTI_GPU", "MULTI_CPU", "NO"})) workers.push_back(value.text);
    } else if (key.text.ends_with("_config") && value.kind == YamlNode::Kind::map) {
      workers.push_back(key.text);
    } else {
      ignored.push_back(shown(key.text, 32));
    }
  }
  // Without it Accelerator() does not connect processes that have no GPU: each trains alone.
  if (uses_cpu)
    file.settings.push_back({find_option("env"), Source::config, path, "ACCELERATE_USE_CPU=true"});
  if (for_recipe) {
    file.settings.push_back({find_option("set"), Source::config, path,
                             "deepspeed=" + quoted(std::filesystem::absolute(path).string())});
    return file;
  }
  if (!workers.empty())
    file.notes.push_back(
        fmt::format("{}: {} must be set up by the training script; mgpu-run does not pass it on",
                    shown(path, 300), shown(joined(workers), 200)));
  if (!ignored.empty())
    file.notes.push_back(
        fmt::format("{}: ignored: {}", shown(path, 300), shown(joined(ignored), 200)));
  return file;
}

}  // namespace mgpu::launcher
