#include "runtime/rl/reference.hpp"
#include "runtime/train/packed_weights.hpp"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <vector>

#include "runtime/train/weights_io.hpp"

namespace mgpu::rl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "training_state_reference";

// The policy without its adapters is the initial policy, unless it started from an adapter or
// trains more than adapters.
bool needs_copy(const train::TrainConfig& config,
                const std::optional<train::AdapterSource>& adapter, const train::Role& role) {
  return !config.use_peft || adapter || !config.lora_modules_to_save.empty() || role.has_own_gpu();
}

model::TransformerOptions frozen(model::TransformerOptions options, bool copy, at::Device device) {
  if (!copy) options.adapter_scale = 0;
  options.adapter_dropout = 0;
  options.device = device;
  return options;
}

}  // namespace

Reference::Reference(const train::TrainConfig& config, const train::ModelSource& source,
                     const std::optional<train::AdapterSource>& adapter,
                     const model::TransformerOptions& options, const train::Role& role,
                     parallel::Shards& policy, comm::Comm& comm)
    : placement_(role, policy.device(), comm),
      transformer_(source.config,
                   frozen(options, needs_copy(config, adapter, role), placement_.device())),
      rank_(comm.rank()),
      world_(comm.world()) {
  if (!needs_copy(config, adapter, role)) {
    provider_ = &policy;
    return;
  }
  if (!placement_.local()) return;
  const c10::OptionalDeviceGuard guard(placement_.device());
  train::AdapterShape shape;
  if (adapter) shape = train::shape_of(*adapter, source.config);
  own_ = placement_.make_shards(
      source.config, model::lay_out(source.config, shape.layers, train::packing_of(config, source)),
      options.dtype);
  if (source.weights) {
    train::load_weights(*own_, *source.weights, source.config, source.vocab_on_disk);
  } else {
    train::draw_weights(*own_, source.config.initializer_range, config.seed);
  }
  if (adapter) train::load_adapter(*own_, *adapter, source.config);
  provider_ = own_.get();
}

at::Tensor Reference::log_probs(const model::DeviceBatch& batch, double temperature) {
  return transformer_.score(batch, temperature, *provider_).log_probs;
}

void Reference::move(parallel::Shards& policy, double alpha) {
  policy.visit(true, [&](const std::string& name, const at::Tensor& value) {
    if (own_) own_->mix(name, value, alpha);
  });
  moved_ = true;
}

// Every visited tensor is complete on each rank that has the model, so these ranks take turns
// writing.
checkpoint::FileRecord Reference::write(const std::string& checkpoint_folder) {
  const auto folder = fs::path(checkpoint_folder) / kFolder;
  fs::create_directories(folder);
  const int writers = placement_.resident() ? 1 : world_;
  const int writer = placement_.resident() ? 0 : rank_;
  std::vector<checkpoint::TensorPlan> plan;
  const auto mine = [&, number = 0]() mutable { return number++ % writers == writer; };
  if (own_) {
    auto turn = mine;
    for (const auto& unit : own_->layout().units)
      for (const auto& slot : unit.trained.slots)
        if (turn()) plan.push_back({slot.name, train::dtype_of(own_->dtype()), slot.shape});
  }
  checkpoint::SafetensorsWriter file(
      folder / fmt::format("rank-{:05}-of-{:05}.safetensors", rank_, world_), std::move(plan));
  if (own_) {
    auto turn = mine;
    own_->visit(true, [&](const std::string& name, const at::Tensor& value) {
      if (!turn()) return;
      const auto host = value.cpu().contiguous();
      file.write(name, std::span(static_cast<const std::byte*>(host.const_data_ptr()),
                                 static_cast<std::size_t>(host.nbytes())));
    });
  }
  auto record = file.finish();
  record.name = fmt::format("{}/{}", kFolder, record.name);
  return record;
}

void Reference::read(const std::string& checkpoint_folder) {
  const auto folder = fs::path(checkpoint_folder) / kFolder;
  if (!fs::exists(folder)) return;
  moved_ = true;
  if (!own_) return;
  const c10::OptionalDeviceGuard guard(placement_.device());
  std::size_t missing = 0;
  for (const auto& unit : own_->layout().units) missing += unit.trained.slots.size();
  for (const auto& entry : fs::directory_iterator(folder)) {
    const checkpoint::SafetensorsFile file(entry.path());
    for (const auto& tensor : file.entries()) {
      own_->set(tensor.name,
                train::tensor_over({tensor.dtype, tensor.shape, file.bytes(tensor), file.path()}));
      --missing;
    }
  }
  if (missing > 0)
    throw std::runtime_error(
        fmt::format("{}: {} tensors of the reference model are missing", folder.string(), missing));
}

}  // namespace mgpu::rl
