#include "runtime/train/weights_io.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mean.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/train/file_copies.hpp"
#include "runtime/train/packed_weights.hpp"

namespace mgpu::train {
namespace {

using checkpoint::DType;

const std::vector<std::pair<DType, at::ScalarType>> kTypes{
    {DType::f32, at::kFloat},  {DType::bf16, at::kBFloat16}, {DType::f16, at::kHalf},
    {DType::f64, at::kDouble}, {DType::u8, at::kByte},       {DType::i8, at::kChar},
    {DType::i32, at::kInt},    {DType::i64, at::kLong},
};

// Cuts `rows` to the wanted number, or appends rows that are the mean of the existing ones.
at::Tensor with_rows(const at::Tensor& rows, std::int64_t wanted) {
  if (rows.size(0) >= wanted) return rows.narrow(0, 0, wanted);
  const auto mean = rows.to(at::kFloat).mean({0}, true).to(rows.scalar_type());
  return at::cat({rows, mean.expand({wanted - rows.size(0), rows.size(1)})});
}

checkpoint::Nf4Tensor read_nf4(const checkpoint::Weights& weights, const model::Slot& slot) {
  auto matrix = checkpoint::read_nf4(weights, slot.name);
  if (matrix.shape != slot.shape) {
    throw rendezvous::InputError(fmt::format("4-bit tensor '{}' has shape {}, not {}", slot.name,
                                             checkpoint::shape_text(matrix.shape),
                                             checkpoint::shape_text(slot.shape)));
  }
  return matrix;
}

// Visits the trained slots, then the frozen ones.
template <class Visit>
void for_each_slot(const parallel::Shards& shards, bool with_frozen, const Visit& visit) {
  for (const auto& unit : shards.layout().units) {
    for (const auto& slot : unit.trained.slots) visit(slot);
    if (!with_frozen) continue;
    for (const auto& slot : unit.frozen.slots) visit(slot);
  }
}

template <class Visit>
void for_each_packed(const parallel::Shards& shards, const Visit& visit) {
  for (const auto& unit : shards.layout().units)
    for (const auto& slot : unit.packed.slots) visit(slot, unit);
}

void load_packed(parallel::Shards& shards, const checkpoint::Weights& weights) {
  const auto device = shards.device();
  for_each_packed(shards, [&](const model::Slot& slot, const model::UnitLayout& unit) {
    if (checkpoint::is_nf4(weights, slot.name)) {
      shards.set(slot.name, quantized_bytes(read_nf4(weights, slot), device));
    } else {
      const auto value =
          tensor_over(weights.get_floats(checkpoint::TensorShape{slot.name, slot.shape}));
      try {
        shards.set(slot.name, packed_bytes(value, unit, device));
      } catch (const std::runtime_error& e) {
        rendezvous::throw_like(e, fmt::format("{}: {}", slot.name, e.what()));
      }
    }
  });
}

// The dimension in which `appended` makes the tensor larger.
int appended_dimension(const std::string& name) {
  return name.ends_with(model::kLoraA) ? 0 : 1;
}

at::Tensor with_appended(const std::string& name, const at::Tensor& value,
                         const Appended& appended) {
  const auto found = appended.find(name);
  if (found == appended.end()) return value;
  return at::cat({value.to(found->second.options()), found->second}, appended_dimension(name));
}

// Without a writer or a name it writes nothing.
void write_tensor(checkpoint::WeightsWriter* writer, const std::string& name,
                  const at::Tensor& value, at::ScalarType dtype) {
  if (writer == nullptr || name.empty()) return;
  const auto host = value.to(at::TensorOptions(at::kCPU).dtype(dtype)).contiguous();
  writer->write(name, std::span(static_cast<const std::byte*>(host.const_data_ptr()),
                                static_cast<std::size_t>(host.nbytes())));
}

}  // namespace

at::Generator generator_for(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 14695981039346656037ULL ^ seed;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return at::detail::createCPUGenerator(hash >> 1);
}

at::Tensor drawn(const model::Slot& slot, double deviation, std::uint64_t seed) {
  auto value = at::empty(slot.shape, at::kFloat);
  if (slot.name.ends_with("norm.weight")) return value.fill_(1);
  if (slot.name.ends_with(".bias")) return value.zero_();
  return value.normal_(0, deviation, generator_for(seed, slot.name));
}

at::ScalarType scalar_type(DType dtype) {
  for (const auto& [file, torch] : kTypes)
    if (file == dtype) return torch;
  throw rendezvous::InputError(
      fmt::format("tensors of type {} are not supported", checkpoint::name_of(dtype)));
}

DType dtype_of(at::ScalarType type) {
  for (const auto& [file, torch] : kTypes)
    if (torch == type) return file;
  throw std::logic_error("no file format has this tensor type");
}

at::Tensor tensor_over(const checkpoint::TensorView& view) {
  const auto type = scalar_type(view.dtype);
  const auto* bytes = view.bytes.data();
  if (reinterpret_cast<std::uintptr_t>(bytes) % c10::elementSize(type) == 0) {
    return at::from_blob(const_cast<std::byte*>(bytes), view.shape, type);  // read only
  }
  auto copy = at::empty(view.shape, type);
  std::memcpy(copy.data_ptr(), bytes, view.bytes.size());
  return copy;
}

bool is_adapter(const std::string& name) {
  return name.find(".lora_") != std::string::npos;
}

bool has_vocabulary(const std::string& name) {
  return name == "model.embed_tokens.weight" || name == "lm_head.weight";
}

void load_weights(parallel::Shards& shards, const checkpoint::Weights& weights,
                  const model::ModelConfig& config, std::int64_t vocab_on_disk) {
  FileCopies copies(shards.device());
  for_each_slot(shards, true, [&](const model::Slot& slot) {
    if (is_adapter(slot.name)) return;
    if (checkpoint::is_nf4(weights, slot.name)) {
      shards.set(slot.name, dequantized(read_nf4(weights, slot)));
      return;
    }
    auto shape = slot.shape;
    if (has_vocabulary(slot.name)) shape[0] = vocab_on_disk;
    const auto view = weights.get_floats(checkpoint::TensorShape{slot.name, shape});
    const auto own = shards.own_part(slot.name);
    if (shape == slot.shape && FileCopies::can_copy(own.memory, view)) {
      copies.add(own.memory, view, own.begin);
      return;
    }
    const auto value = tensor_over(view);
    shards.set(slot.name, has_vocabulary(slot.name) ? with_rows(value, config.vocab_size) : value);
  });
  copies.run();
  load_packed(shards, weights);
}

void draw_weights(parallel::Shards& shards, double deviation, std::uint64_t seed) {
  for_each_slot(shards, true, [&](const model::Slot& slot) {
    if (!is_adapter(slot.name)) shards.set(slot.name, drawn(slot, deviation, seed));
  });
  for_each_packed(shards, [&](const model::Slot& slot, const model::UnitLayout& unit) {
    shards.set(slot.name, packed_bytes(drawn(slot, deviation, seed), unit, shards.device()));
  });
}

void draw_adapters(parallel::Shards& shards, std::uint64_t seed) {
  for_each_slot(shards, false, [&](const model::Slot& slot) {
    if (!is_adapter(slot.name) || slot.name.ends_with(model::kMagnitude)) return;
    auto value = at::empty(slot.shape, at::kFloat);
    if (slot.name.ends_with(model::kLoraB)) {
      value.zero_();
    } else {
      const double bound = 1 / std::sqrt(static_cast<double>(slot.shape[1]));
      value.uniform_(-bound, bound, generator_for(seed, slot.name));
    }
    shards.set(slot.name, value);
  });
}

std::vector<checkpoint::TensorPlan> plan_of(const parallel::Shards& shards, at::ScalarType dtype,
                                            bool with_frozen, const Rename& rename,
                                            const Appended& appended) {
  std::vector<checkpoint::TensorPlan> plan;
  for_each_slot(shards, with_frozen, [&](const model::Slot& slot) {
    auto name = rename(slot.name);
    if (name.empty()) return;
    auto shape = slot.shape;
    if (const auto more = appended.find(slot.name); more != appended.end()) {
      const int dimension = appended_dimension(slot.name);
      shape[static_cast<std::size_t>(dimension)] += more->second.size(dimension);
    }
    plan.push_back({std::move(name), dtype_of(dtype), std::move(shape)});
  });
  return plan;
}

void visit_weights(parallel::Shards& shards, bool with_frozen, const Appended& appended,
                   const VisitTensor& visit) {
  const auto visit_whole = [&](const std::string& name, const at::Tensor& value) {
    visit(name, with_appended(name, value, appended));
  };
  shards.visit(true, visit_whole);
  if (with_frozen) shards.visit(false, visit_whole);
}

void visit_master_weights(parallel::Shards& shards, const optim::Optimizer& optimizer,
                          const Appended& appended, const VisitTensor& visit) {
  std::vector<at::Tensor> masters;
  for (const auto& state : optimizer.states()) masters.push_back(state.at("master").values);
  shards.visit_owned(masters, [&](const std::string& name, const at::Tensor& value) {
    visit(name, with_appended(name, value, appended));
  });
}

void write_weights(parallel::Shards& shards, checkpoint::WeightsWriter* writer,
                   at::ScalarType dtype, bool with_frozen, const Rename& rename,
                   const Appended& appended) {
  visit_weights(shards, with_frozen, appended,
                [&](const std::string& name, const at::Tensor& value) {
                  write_tensor(writer, rename(name), value, dtype);
                });
}

void write_master_weights(parallel::Shards& shards, const optim::Optimizer& optimizer,
                          checkpoint::WeightsWriter* writer, const Rename& rename,
                          const Appended& appended) {
  visit_master_weights(shards, optimizer, appended,
                       [&](const std::string& name, const at::Tensor& value) {
                         write_tensor(writer, rename(name), value, at::kFloat);
                       });
}

}  // namespace mgpu::train
