#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/train/learner.hpp"
#include "tests/runtime/train/small_training.hpp"
#include "tests/support/catch.hpp"

// What a layer keeps or computes again changes no bit.
namespace {

using namespace mgpu;
using model::SavedActivations;

constexpr int kLayers = 4;

struct Course {
  std::vector<double> losses;
  std::vector<at::Tensor> gradients, weights;
};

// Two steps of two micro-batches, of which the first `count` layers keep `what`.
Course course(std::size_t count, SavedActivations what, int zero_stage, bool adapters) {
  const auto comm = comm::join(rendezvous::Contract{}, {});
  train::LearnerOptions options;
  options.shards.zero_stage = zero_stage;
  options.optimizer = optim::make_adamw({});
  options.model.saved_activations.assign(count, what);
  options.model.adapter_dropout = adapters ? .3 : 0;
  const auto config = tests::small_config(true, kLayers);
  model::LoraShape lora;
  if (adapters) {
    lora.rank = 2;
    lora.targets = {"q_proj", "v_proj", "down_proj"};
  }
  at::manual_seed(5);
  train::Learner learner(config, model::lay_out(config, lora), options, *comm);
  auto& shards = learner.shards();
  for (const auto& unit : shards.layout().units)
    for (const auto* flat : {&unit.trained, &unit.frozen})
      for (const auto& slot : flat->slots) shards.set(slot.name, at::randn(slot.shape).mul_(.3));
  learner.create_optimizer();
  data::StepBatches batches;
  batches.micro_batches = {tests::sentence_from(1), tests::sentence_from(2)};
  batches.target_tokens = 12;
  batches.rank_target_tokens = {12};
  Course course;
  for (; batches.step < 2; ++batches.step)
    course.losses.push_back(learner.step(batches, 1e-3, {}).outcome(batches.step).loss_sum);
  for (auto& owned : shards.owned()) {
    course.gradients.push_back(owned.grad.clone());
    course.weights.push_back(owned.value.clone());
  }
  return course;
}

}  // namespace

TEST_CASE("losses and gradients have the same bits with any number of recomputed layers",
          "[learner]") {
  const int stage = GENERATE(0, 3);
  const bool adapters = GENERATE(false, true);
  const auto kept = course(0, SavedActivations::all, stage, adapters);
  CHECK(kept.losses[0] != kept.losses[1]);
  for (const auto what : {SavedActivations::input, SavedActivations::on_host})
    for (std::size_t count = 1; count <= kLayers; ++count) {
      CAPTURE(stage, adapters, count, what == SavedActivations::input);
      const auto again = course(count, what, stage, adapters);
      CHECK(again.losses == kept.losses);
      REQUIRE(again.gradients.size() == kept.gradients.size());
      for (std::size_t i = 0; i < kept.gradients.size(); ++i) {
        CHECK(at::equal(again.gradients[i], kept.gradients[i]));
        CHECK(at::equal(again.weights[i], kept.weights[i]));
      }
    }
}
