#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

#include "runtime/checkpoint/nf4.hpp"
#include "runtime/commands/commands.hpp"
#include "runtime/commands/hub_names.hpp"
#include "runtime/commands/loaded_model.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/packed_weights.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::recipes {
namespace {

// The weights that load_in_4bit keeps in 4 bits.
std::set<std::string> matrices(const model::ModelConfig& config) {
  model::LoraShape frozen;
  frozen.rank = 1;
  std::set<std::string> names;
  for (const auto& unit :
       model::lay_out(config, frozen, {.format = model::MatrixFormat::nf4}).units)
    for (const auto& slot : unit.packed.slots) names.insert(slot.name);
  return names;
}

}  // namespace

// Writes bitsandbytes' layout with scales in 8 bits; everything but the matrices of layers is
// copied. The whole result is in memory before it is written, because a file begins with the sizes
// of its tensors.
int quantize(const train::QuantizeCommand& command) {
  require_no_model(command.output);
  train::TrainConfig recipe;
  recipe.model_name_or_path = downloaded_model(command.model, hub::Part::model);
  const auto source = train::open_model(recipe);
  if (source.config.nf4)
    throw std::runtime_error(source.folder + " is already in 4 bits; it can be used as it is");
  const auto device = train::take_device(0, train::visible_gpus() > 0);
  const auto packed = matrices(source.config);
  std::vector<checkpoint::NamedBytes> parts;
  for (const auto& tensor : model::tensor_plan(source.config)) {
    const auto view = source.weights->get_floats(tensor);
    if (!packed.contains(tensor.name)) {
      parts.push_back(
          {{tensor.name, view.dtype, view.shape}, {view.bytes.begin(), view.bytes.end()}});
      continue;
    }
    const auto bytes = train::quantized_bytes(train::tensor_over(view), true, device);
    auto matrix = train::from_bytes(bytes, view.shape, true, view.dtype);
    for (auto& part : checkpoint::nf4_parts(tensor.name, matrix)) parts.push_back(std::move(part));
  }
  make_output_folder(command.output);
  std::vector<checkpoint::TensorPlan> plan;
  for (const auto& part : parts) plan.push_back(part.plan);
  checkpoint::WeightsWriter writer(command.output, std::move(plan));
  for (const auto& part : parts) writer.write(part.plan.name, part.bytes);
  writer.finish();
  auto config = source.config;
  config.nf4 = true;
  write_model_files(source, config, command.output);
  fmt::print("converted {} matrices of {} to 4 bits in {}\n", packed.size(), command.model,
             command.output);
  return 0;
}

}  // namespace mgpu::recipes
