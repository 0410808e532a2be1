#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/config/check.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/resolve.hpp"

using namespace mgpu::train;

namespace {

// Any file becomes a configuration, or is rejected with short lines without control characters.
void check_lines(const std::vector<std::string>& lines) {
  if (lines.empty()) std::abort();
  for (const auto& line : lines)
    if (line.find('\n') != line.npos || line.find('\0') != line.npos || line.size() > 4000)
      std::abort();
}

// An accepted configuration is valid for the rest of the program.
void check_config(const TrainConfig& config) {
  if (config.model_name_or_path.empty() == config.model_size.empty()) std::abort();
  if (config.per_device_train_batch_size < 1 || config.gradient_accumulation_steps < 1 ||
      config.max_length < 2 || config.zero_stage < kAutomaticStage || config.zero_stage > 3 ||
      !(config.warmup_steps >= 0) || config.lora_r < 1)
    std::abort();
  try {
    check_text(config, "f", 3);
  } catch (const std::runtime_error&) {  // three ranks cannot divide the batch
  }
}

void check_tree(const YamlNode& node) {
  const auto text = flow_text(node);
  if (node.kind == YamlNode::Kind::scalar) return;
  if (flow_text(parse_yaml(text, "again")) != text) std::abort();
}

// Reads no file of the machine: each file that a recipe names is the recipe itself.
RecipeOptions options(const std::string& text, bool allow_unknown) {
  return {.allow_unknown = allow_unknown,
          .read_file = [text](const std::string& path) { return parse_yaml(text, path); }};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  for (const bool allow_unknown : {false, true}) {
    try {
      check_config(parse_recipe(text, "f", options(text, allow_unknown)));
    } catch (const RecipeError& e) {
      check_lines(e.lines());
    }
  }
  const auto end = text.find('\n');
  if (end != text.npos) {  // the first line as an override of the rest
    auto changed = options(text, true);
    changed.set = {text.substr(0, end)};
    try {
      check_config(parse_recipe(text.substr(end + 1), "f", changed));
    } catch (const RecipeError& e) {
      check_lines(e.lines());
    }
  }
  try {
    check_tree(parse_yaml(text, "f"));
  } catch (const std::runtime_error&) {
  }
  return 0;
}
