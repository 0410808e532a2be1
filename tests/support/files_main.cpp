// model_files: shows the runtime's file formats to the tests that compare them with the Python
// packages of the same formats. Answers in JSON, numbers as hexadecimal bytes.

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/checkpoint/dynamic_levels.hpp"
#include "runtime/checkpoint/floats.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/checkpoint/nf4.hpp"
#include "runtime/checkpoint/peft.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/model/presets.hpp"
#include "runtime/model/read_config.hpp"
#include "runtime/model/write_config.hpp"

using namespace mgpu::checkpoint;
using namespace mgpu::model;

namespace {

using Arguments = std::vector<std::string>;

void print(const Json& json) {
  fmt::print("{}\n", json.dump());
}

void copy(const Weights& from, const std::string& folder, std::uint64_t longest,
          const std::string& stem) {
  std::vector<TensorPlan> plan;
  for (const std::string& name : from.names()) {
    const TensorView view = from.get(name);
    plan.push_back({name, view.dtype, view.shape});
  }
  WeightsWriter writer(folder, plan, longest, stem);
  for (const TensorPlan& tensor : plan) writer.write(tensor.name, from.get(tensor.name).bytes);
  writer.finish();
}

// list FOLDER STEM: every tensor with dtype, shape and checksum
void list(const Arguments& args) {
  const Weights weights(args.at(0), args.at(1));
  Json all = Json::object();
  for (const std::string& name : weights.names()) {
    const TensorView view = weights.get(name);
    all[name] = {name_of(view.dtype), view.shape, digest_of(view.bytes)};
  }
  print(all);
}

// copy FROM TO LONGEST STEM: writes the same tensors with our code
void copy_weights(const Arguments& args) {
  copy(Weights(args.at(0), args.at(3)), args.at(1), std::stoull(args.at(2)), args.at(3));
}

// config FOLDER: its model's plan, count, and config.json as we write it, with and without base
void config(const Arguments& args) {
  const std::string path = args.at(0) + "/config.json";
  const ModelConfig read = read_model_config(args.at(0));
  Json plan = Json::array();
  for (const TensorShape& tensor : tensor_plan(read)) plan.push_back({tensor.name, tensor.shape});
  print({{"plan", plan},
         {"parameters", parameter_count(read)},
         {"eos", read.eos_token_ids},
         {"generation", generation_config_text(read)},
         {"text", model_config_text(read)},
         {"with_base", model_config_text(read, read_file(path, 1 << 20))}});
}

// preset SIZE VOCABULARY: config.json of a new Qwen3 model, and its number of parameters
void new_qwen3(const Arguments& args) {
  const ModelConfig config = preset(args.at(0), std::stoll(args.at(1)), Family::qwen3);
  print({{"parameters", parameter_count(config)}, {"text", model_config_text(config)}});
}

// adapter MODEL FROM TO: checks an adapter against its model and writes it again
void adapter(const Arguments& args) {
  const std::string path = args.at(1) + "/adapter_config.json";
  const LoraConfig lora = parse_lora_config(read_file(path, 1 << 20), path);
  const auto model = tensor_plan(read_model_config(args.at(0)));
  const Weights weights(args.at(1), "adapter_model");
  check_adapter(weights, lora, model);
  write_file(args.at(2) + "/adapter_config.json", lora_config_text(lora));
  copy(weights, args.at(2), kShardSize, "adapter_model");
  Json targets = Json::array();
  for (const LoraTarget& target : lora_targets(lora, model))
    targets.push_back({target.module, target.rank, target.scale});
  print(targets);
}

// quantize FROM TO NESTED: every tensor of F32, BF16 or F16 in nf4 with all its parts
void quantize(const Arguments& args) {
  const Weights from(args.at(0));
  std::vector<NamedBytes> parts;
  for (const std::string& name : from.names()) {
    const TensorView view = from.get(name);
    const auto floats = to_floats(view.dtype, view.bytes);
    for (NamedBytes& part :
         nf4_parts(name, quantize_nf4(floats, view.shape, view.dtype, args.at(2) == "nested")))
      parts.push_back(std::move(part));
  }
  std::vector<TensorPlan> plan;
  for (const NamedBytes& part : parts) plan.push_back(part.plan);
  WeightsWriter writer(args.at(1), plan);
  for (const NamedBytes& part : parts) writer.write(part.plan.name, part.bytes);
  writer.finish();
}

// dequantize FROM TO: every nf4 tensor in the dtype that it had
void dequantize(const Arguments& args) {
  const Weights from(args.at(0));
  std::vector<NamedBytes> whole;
  for (const std::string& name : from.names()) {
    if (!is_nf4(from, name)) continue;
    const Nf4Tensor tensor = read_nf4(from, name);
    whole.push_back(
        {{name, tensor.dtype, tensor.shape}, from_floats(tensor.dtype, dequantize_nf4(tensor))});
  }
  std::vector<TensorPlan> plan;
  for (const NamedBytes& part : whole) plan.push_back(part.plan);
  WeightsWriter writer(args.at(1), plan);
  for (const NamedBytes& part : whole) writer.write(part.plan.name, part.bytes);
  writer.finish();
}

// levels: both dynamic maps
void levels(const Arguments&) {
  print({{"signed", dynamic_levels()}, {"unsigned", positive_dynamic_levels()}});
}

const std::map<std::string, std::function<void(const Arguments&)>> kCommands = {
    {"adapter", adapter}, {"config", config}, {"copy", copy_weights}, {"dequantize", dequantize},
    {"levels", levels},   {"list", list},     {"preset", new_qwen3},  {"quantize", quantize},
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments args(argv + 1, argv + argc);
    kCommands.at(args.at(0))(Arguments(args.begin() + 1, args.end()));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "model_files: %s\n", e.what());
    return 1;
  }
}
