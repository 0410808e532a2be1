#include "runtime/train/adapter_start.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "runtime/config/resolve.hpp"
#include "runtime/model/linear.hpp"
#include "runtime/model/linear_layers.hpp"
#include "runtime/train/adapter.hpp"

namespace mgpu::train {
namespace {

struct Factors {
  at::Tensor a, b;  // [rank, in], [out, rank]
};

// The singular vectors and values of the largest values: u, s, v^T.
using Decomposition = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Decomposition exact_svd(const at::Tensor& weight, std::int64_t rank) {
  auto [u, s, vh] = at::linalg_svd(weight, false);
  return {u.narrow(1, 0, rank), s.narrow(0, 0, rank), vh.narrow(0, 0, rank)};
}

at::Tensor orthogonal(const at::Tensor& columns) {
  return std::get<0>(at::linalg_qr(columns));
}

// Halko, Martinsson and Tropp's randomized decomposition, as PEFT uses it.
Decomposition approximate_svd(const at::Tensor& weight, std::int64_t rank, std::int64_t iterations,
                              std::uint64_t seed, const std::string& name) {
  auto start = at::empty({weight.size(1), rank}, at::kFloat);
  start.normal_(0, 1, generator_for(seed, name));
  auto q = orthogonal(at::mm(weight, start.to(weight.device())));
  for (std::int64_t i = 0; i < iterations; ++i)
    q = orthogonal(at::mm(weight, orthogonal(at::mm(weight.t(), q))));
  auto [u, s, vh] = at::linalg_svd(at::mm(q.t(), weight), false);
  return {at::mm(q, u), s, vh};
}

Factors decompose(const at::Tensor& weight, const TrainConfig& config, const std::string& name) {
  const auto [u, s, vh] =
      *config.pissa < 0 ? exact_svd(weight, config.lora_r)
                        : approximate_svd(weight, config.lora_r, *config.pissa, config.seed, name);
  const auto root = s.div(lora_scale(config)).sqrt_();
  return {at::mul(vh, root.unsqueeze(1)).contiguous(), at::mul(u, root).contiguous()};
}

// The weight of a linear layer before PiSSA changes it, in fp32 on the device of `shards`.
at::Tensor original_weight(const parallel::Shards& shards, const ModelSource& source,
                           const TrainConfig& config, const std::string& module,
                           const model::UnitLayout& unit) {
  const auto& slot = *unit.frozen.find(module + ".weight");
  const auto value =
      source.weights
          ? tensor_over(source.weights->get_floats(checkpoint::TensorShape{slot.name, slot.shape}))
          : drawn(slot, source.config.initializer_range, config.seed);
  return value.to(at::TensorOptions(shards.device()).dtype(at::kFloat));
}

// Calls visit(the layer's name, its unit) for every layer that has an adapter.
void for_each_adapter_layer(
    const parallel::Shards& shards,
    const std::function<void(const std::string&, const model::UnitLayout&)>& visit) {
  const std::string_view ending = model::kLoraA;
  for (const auto& unit : shards.layout().units)
    for (const auto& slot : unit.trained.slots)
      if (slot.name.ends_with(ending))
        visit(slot.name.substr(0, slot.name.size() - ending.size()), unit);
}

// Takes the adapter's initial product off the frozen weight, and notes what a saved adapter needs.
void take_off_start(parallel::Shards& shards, const std::string& module, const at::Tensor& weight,
                    const Factors& start, double scale, Appended& appended) {
  shards.set(module + ".weight", at::addmm(weight, start.b, start.a, 1, -scale));
  appended[module + model::kLoraA] = start.a.to(at::kCPU);
  appended[module + model::kLoraB] = start.b.neg().to(at::kCPU);
}

void check_pissa_rank(const at::Tensor& weight, const std::string& module, std::int64_t rank) {
  const auto most = std::min(weight.size(0), weight.size(1));
  if (rank <= most) return;
  throw_recipe_error(fmt::format(
      "lora_r: pissa needs at most {}, the smaller side of {}.weight, not {}", most, module, rank));
}

}  // namespace

void set_magnitudes(parallel::Shards& shards, const model::ModelConfig& model, double scale) {
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const int unit = model::block_unit(layer);
    const auto& trained = shards.layout().units[static_cast<std::size_t>(unit)].trained;
    const auto& block = shards.weights(unit).block;
    for (int product = 0; product < model::kProducts; ++product) {
      const auto& linear = *block.linears()[static_cast<std::size_t>(product)];
      if (!linear.dora()) continue;
      const auto lengths = model::row_lengths_of(linear, scale);
      std::int64_t begin = 0;
      for (const auto& part : model::linear_layers(model, static_cast<model::Product>(product))) {
        const auto name =
            fmt::format("{}{}{}", model::block_prefix(layer), part.module, model::kMagnitude);
        if (trained.find(name) != nullptr) shards.set(name, lengths.narrow(0, begin, part.out));
        begin += part.out;
      }
    }
    shards.release(unit);
  }
}

Appended begin_with_pissa(parallel::Shards& shards, const ModelSource& source,
                          const TrainConfig& config, comm::Comm& comm) {
  Appended appended;
  for_each_adapter_layer(shards, [&](const std::string& module, const model::UnitLayout& unit) {
    const auto weight = original_weight(shards, source, config, module, unit);
    check_pissa_rank(weight, module, config.lora_r);
    Factors start{at::empty({config.lora_r, weight.size(1)}, weight.options()),
                  at::empty({weight.size(0), config.lora_r}, weight.options())};
    if (comm.rank() == 0) start = decompose(weight, config, module);
    for (auto* factor : {&start.a, &start.b}) {
      comm.broadcast(*factor, 0, "broadcast of the adapter's beginning").wait();
      *factor = factor->to(shards.dtype()).to(at::kFloat);  // as the model will compute with it
    }
    shards.set(module + model::kLoraA, start.a);
    shards.set(module + model::kLoraB, start.b);
    take_off_start(shards, module, weight, start, lora_scale(config), appended);
  });
  return appended;
}

Appended resume_with_pissa(parallel::Shards& shards, const ModelSource& source,
                           const TrainConfig& config, const checkpoint::Weights& adapter) {
  Appended appended;
  const auto rank = config.lora_r;
  for_each_adapter_layer(shards, [&](const std::string& module, const model::UnitLayout& unit) {
    const auto weight = original_weight(shards, source, config, module, unit);
    const auto read = [&](const char* part, std::vector<std::int64_t> shape) {
      const auto name = adapter_name(module + part);
      return tensor_over(adapter.get_floats(checkpoint::TensorShape{name, std::move(shape)}));
    };
    const auto a = read(model::kLoraA, {2 * rank, weight.size(1)});
    const auto b = read(model::kLoraB, {weight.size(0), 2 * rank});
    shards.set(module + model::kLoraA, a.narrow(0, 0, rank));
    shards.set(module + model::kLoraB, b.narrow(1, 0, rank).contiguous());
    const Factors start{a.narrow(0, rank, rank).clone().to(weight.device()),
                        b.narrow(1, rank, rank).neg().contiguous().to(weight.device())};
    take_off_start(shards, module, weight, start, lora_scale(config), appended);
  });
  return appended;
}

}  // namespace mgpu::train
