// Times training steps (arithmetic, collectives and optimizer) on random tokens and random weights
// of known shapes, without files. For several GPUs, start it with mgpu-run.
//   step_bench SHAPE [key=value ...]   shape: 0.5B 1.5B 3B 4B 7B 8B tiny
//   mb=8 seq=2048 steps=20 warm=5 zero=0 keep=all|input|host micros=1 lora=0 dropout=0 check=0
//   overlap=1 recompute=N (only the first N layers, keep=input unless host) fp8=none|base|mlp
//   bits=4 (of the frozen weights; else 16) embedding=gpu|host grads=fp32|bf16
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "runtime/comm/comm.hpp"
#include "runtime/data/share.hpp"
#include "runtime/model/flops.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/host_tensor.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/packed_weights.hpp"
#include "tests/gpu/shapes.hpp"

namespace {

using namespace mgpu;
using bench::fill;
using bench::seconds;
using bench::shape;
using Options = std::map<std::string, std::string>;

data::Batch batch(long sequences, long longest, long vocab, bool ragged) {
  data::Batch b;
  for (long s = 0; s < sequences; ++s) {
    b.starts.push_back(static_cast<int>(b.tokens.size()));
    const long length = ragged ? longest - 64 * (s % 4) : longest;
    for (long i = 0; i < length; ++i) {
      b.tokens.push_back(static_cast<int>((s * 7919 + i * 104729) % vocab));
      b.positions.push_back(static_cast<int>(i));
      b.targets.push_back(i + 1 < length ? static_cast<int>((s * 7919 + (i + 1) * 104729) % vocab)
                                         : data::kNoTarget);
    }
  }
  b.starts.push_back(static_cast<int>(b.tokens.size()));
  b.longest = static_cast<int>(longest);
  b.target_tokens = static_cast<long>(b.tokens.size()) - sequences;
  return b;
}

model::Packing packing_of(const std::string& fp8, const std::string& bits) {
  if (bits == "4") return {.format = model::MatrixFormat::nf4, .nested = true};
  if (fp8 == "base") return {.format = model::MatrixFormat::fp8};
  return {.mlp_in_fp8 = fp8 == "mlp"};
}

void fill_packed(parallel::Shards& shards, at::Device device) {
  for (const auto& unit : shards.layout().units)
    for (const auto& slot : unit.packed.slots) {
      const auto value = at::randn(slot.shape, at::TensorOptions(device)).mul_(0.02);
      shards.set(slot.name, train::packed_bytes(value, unit, device));
    }
}

}  // namespace

int main(int argc, char** argv) {
  Options o{{"mb", "8"},      {"seq", "2048"},  {"steps", "20"},
            {"warm", "5"},    {"zero", "0"},    {"keep", "all"},
            {"micros", "1"},  {"lora", "0"},    {"check", "0"},
            {"overlap", "1"}, {"ragged", "0"},  {"rows", std::to_string(model::kHeadRows)},
            {"layers", "0"},  {"dropout", "0"}, {"recompute", "-1"},
            {"fp8", "none"},  {"bits", "16"},   {"embedding", "gpu"},
            {"grads", "fp32"}};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    o[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  const auto number = [&](const char* key) { return std::stol(o.at(key)); };
  rendezvous::Contract contract;
  if (getenv("RANK") != nullptr) contract = rendezvous::Contract::from_environment(getenv);
  const bool gpu = train::visible_gpus() > 0;
  const auto device = train::take_device(contract.local_rank, gpu);
  comm::CommOptions comm_options;
  comm_options.backend = comm::choose(comm::Backend::automatic, train::visible_gpus());
  comm_options.fatal = [](const std::string& text) {
    fprintf(stderr, "%s\n", text.c_str());
    _Exit(1);
  };
  const auto comm = comm::join(contract, comm_options);

  auto config = shape(argv[1]);
  if (number("layers") > 0) config.layers = number("layers");
  const auto lora = bench::lora_of_rank(number("lora"));
  train::LearnerOptions options;
  options.shards.device = options.model.device = device;
  options.shards.dtype = options.model.dtype = gpu ? at::kBFloat16 : at::kFloat;
  options.shards.zero_stage = static_cast<int>(number("zero"));
  options.shards.overlap = number("overlap") != 0;
  if (o["grads"] == "bf16") options.shards.grad_dtype = at::kBFloat16;
  if (o["embedding"] == "host")
    options.shards.host_memory = [gpu](std::int64_t elements, at::ScalarType type) {
      return train::host_tensor(elements, type, gpu);
    };
  options.model.head_rows = number("rows");
  options.model.adapter_scale = 2;
  options.model.adapter_dropout = std::stod(o["dropout"]);
  const auto recomputed = number("recompute");
  if (o["keep"] != "all" || recomputed >= 0) {
    options.model.saved_activations.assign(
        static_cast<std::size_t>(recomputed < 0 ? config.layers
                                                : std::min<long>(recomputed, config.layers)),
        o["keep"] == "host" ? model::SavedActivations::on_host : model::SavedActivations::input);
  }
  options.optimizer = optim::make_adamw({});
  at::manual_seed(1);
  train::Learner learner(config, model::lay_out(config, lora, packing_of(o["fp8"], o["bits"])),
                         options, *comm);
  fill(learner.shards(), device);
  fill_packed(learner.shards(), device);
  learner.create_optimizer();
  if (gpu) c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());  // drawing took more
  const auto host = batch(number("mb"), number("seq"), config.vocab_size, number("ragged") != 0);
  const long warm = number("warm"), steps = number("steps"), micro_batches = number("micros");
  data::StepBatches batches;
  batches.micro_batches.assign(static_cast<std::size_t>(micro_batches), host);
  batches.rank_target_tokens.assign(static_cast<std::size_t>(comm->world()),
                                    host.target_tokens * micro_batches);
  batches.target_tokens = host.target_tokens * micro_batches * comm->world();

  double begin = 0;
  for (; batches.step < warm + steps; ++batches.step) {
    if (batches.step == warm) {
      train::wait_for(device);
      comm->barrier("start");
      begin = seconds();
    }
    const auto record = learner.step(batches, 1e-5, {});
    if (batches.step >= 3 && batches.step + 1 < warm + steps) continue;
    const auto outcome = record.outcome(batches.step);
    if (comm->rank() == 0)
      printf("step %ld loss %.5f norm %.5f\n", static_cast<long>(outcome.step),
             outcome.loss_sum / static_cast<double>(batches.target_tokens), outcome.grad_norm);
  }
  train::wait_for(device);
  const double took = seconds() - begin;
  const auto memory = train::device_memory(device);
  if (comm->rank() == 0) {
    const double per_gpu =
        static_cast<double>(static_cast<long>(host.tokens.size()) * micro_batches * steps) / took;
    const auto length = static_cast<double>(number("seq"));
    const double flops = model::training_flops(config, learner.shards().layout())
                             .of(1, data::attention_pairs(length) / length);
    printf(
        "%s world %d zero %ld lora %ld mb %ld fp8 %s: %.0f tok/s per GPU, %.1f TFLOP/s, %.3f "
        "s/step, peak "
        "%.2f GiB allocated %.2f reserved\n",
        argv[1], comm->world(), number("zero"), number("lora"), number("mb"), o["fp8"].c_str(),
        per_gpu, per_gpu * flops / 1e12, took / static_cast<double>(steps),
        static_cast<double>(memory.peak_allocated) / (1 << 30),
        static_cast<double>(memory.peak_reserved) / (1 << 30));
  }
  comm->close();
  return 0;
}
