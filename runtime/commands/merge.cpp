#include <fmt/format.h>

#include <filesystem>

#include "rendezvous/base/printable.hpp"
#include "runtime/commands/commands.hpp"
#include "runtime/commands/loaded_model.hpp"
#include "runtime/model/linear.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::recipes {

// Computes W + scale * b a, with DoRA times its factors, in fp32 on the CPU and stores it in the
// dtype of the base model.
int merge(const train::MergeCommand& command) {
  require_no_model(command.output);
  auto model = load_model(command.model, command.adapter, at::kCPU, at::kFloat);
  for (const auto& note : model.notes) fmt::print("note: {}\n", rendezvous::printable(note));
  auto& shards = *model.shards;
  for (std::int64_t layer = 0; layer < model.source.config.layers; ++layer) {
    const auto& block = shards.weights(model::block_unit(layer)).block;
    for (const auto* linear : block.linears()) {
      const auto factors = model::factors_of(*linear, model.adapter_scale);
      for (const auto& adapter : linear->adapters) {
        auto rows = linear->weight.narrow(0, adapter.begin, adapter.size);
        rows.addmm_(adapter.b, adapter.a, 1, model.adapter_scale);
        if (factors.defined())
          rows.mul_(factors.narrow(0, adapter.begin, adapter.size).unsqueeze(1));
      }
    }
    shards.release(model::block_unit(layer));
  }
  make_output_folder(command.output);
  const auto dtype = train::scalar_type(
      checkpoint::dtype_of_torch(model.source.config.dtype).value_or(checkpoint::DType::bf16));
  const train::Rename rename = [](const std::string& name) {
    return train::is_adapter(name) ? std::string() : name;
  };
  checkpoint::WeightsWriter writer(command.output, train::plan_of(shards, dtype, true, rename));
  train::write_weights(shards, &writer, dtype, true, rename);
  writer.finish();
  auto config = model.source.config;
  config.nf4 = false;
  write_model_files(model.source, config, command.output);
  fmt::print("merged {} into {}\n", command.adapter, command.output);
  return 0;
}

}  // namespace mgpu::recipes
