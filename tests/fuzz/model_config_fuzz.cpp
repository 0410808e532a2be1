#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/peft.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/model/presets.hpp"
#include "runtime/model/read_config.hpp"
#include "runtime/model/write_config.hpp"

using namespace mgpu;

namespace {

// An error is one short line.
template <class Work>
void allow_refusal(Work work) {
  try {
    work();
  } catch (const std::runtime_error& e) {
    const std::string message = e.what();
    if (message.empty() || message.size() > 1500) std::abort();
    if (message.find('\n') != message.npos || message.find('\0') != message.npos) std::abort();
  }
}

// What was accepted can be written after the training, and does not grow much.
void write_again(const model::ModelConfig& config, const std::string& text) {
  try {
    if (model::model_config_text(config, text).size() > 32 * text.size() + 4096) std::abort();
  } catch (const std::runtime_error&) {
    std::abort();
  }
}

void read_config(const std::string& text) {
  const model::ModelConfig config = model::parse_model_config(text, "f");
  if (model::parameter_count(config) <= 0 || model::non_embedding_count(config) <= 0) std::abort();
  // Written again, alone or into the same file, it is the same model.
  if (model::parse_model_config(model::model_config_text(config), "g") != config) std::abort();
  write_again(config, text);
}

void read_lora(const std::string& text) {
  const checkpoint::LoraConfig config = checkpoint::parse_lora_config(text, "f");
  if (checkpoint::parse_lora_config(checkpoint::lora_config_text(config), "g") != config)
    std::abort();
  static const auto plan = model::tensor_plan(model::preset("tiny", 10));
  checkpoint::adapter_plan(config, plan);
}

}  // namespace

// The JSON files beside a model's weights: the text is read as each of them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  allow_refusal([&] { read_config(text); });
  allow_refusal([&] { read_lora(text); });
  allow_refusal([&] { model::parse_generation_eos(text, "f"); });
  allow_refusal([&] { checkpoint::parse_weight_index(text, "f"); });
  allow_refusal([&] {
    const checkpoint::Manifest manifest = checkpoint::parse_manifest(text, "f");
    if (checkpoint::parse_manifest(checkpoint::manifest_text(manifest), "g") != manifest)
      std::abort();
  });
  return 0;
}
