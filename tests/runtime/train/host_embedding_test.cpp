#include "runtime/train/host_tensor.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <string>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/train/learner.hpp"
#include "tests/runtime/train/small_training.hpp"
#include "tests/support/catch.hpp"

// A frozen embedding in host memory changes no bit of the training, and is seen like any tensor.
namespace {

using namespace mgpu;

struct Run {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
  std::map<std::string, at::Tensor> frozen;
  std::vector<std::int64_t> asked;  // elements of host memory
};

Run steps(bool on_host, int zero_stage, bool trains_embedding = false) {
  const auto comm = comm::join(rendezvous::Contract{}, {});
  Run run;
  train::LearnerOptions options;
  options.shards.zero_stage = zero_stage;
  if (on_host)
    options.shards.host_memory = [&run](std::int64_t elements, at::ScalarType type) {
      run.asked.push_back(elements);
      return train::host_tensor(elements, type, false);
    };
  options.optimizer = optim::make_adamw({});
  const auto config = tests::small_config(false);
  model::LoraShape lora{.rank = 2, .targets = {"q_proj", "down_proj"}};
  if (trains_embedding) lora.whole = {"embed_tokens"};
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
  for (; batches.step < 2; ++batches.step)
    run.losses.push_back(learner.step(batches, 1e-3, {}).outcome(batches.step).loss_sum);
  for (auto& owned : shards.owned()) run.weights.push_back(owned.value.clone());
  shards.visit(false, [&](const std::string& name, const at::Tensor& value) {
    run.frozen[name] = value.clone();
  });
  return run;
}

}  // namespace

TEST_CASE("an embedding in host memory changes no bit of the training or of what is saved",
          "[learner]") {
  const int stage = GENERATE(0, 1, 3);
  const auto usual = steps(false, stage), hosted = steps(true, stage);
  CHECK(usual.asked.empty());
  CHECK(hosted.asked == std::vector<std::int64_t>{20 * 16});
  CHECK(hosted.losses == usual.losses);
  REQUIRE(hosted.weights.size() == usual.weights.size());
  for (std::size_t i = 0; i < usual.weights.size(); ++i)
    CHECK(at::equal(hosted.weights[i], usual.weights[i]));
  REQUIRE(hosted.frozen.size() == usual.frozen.size());
  for (const auto& [name, value] : usual.frozen) {
    CAPTURE(name);
    CHECK(at::equal(hosted.frozen.at(name), value));
  }
}

TEST_CASE("an embedding that is trained stays on the device", "[learner]") {
  CHECK(steps(true, 0, true).asked.empty());
}

TEST_CASE("memory on the host begins with zeros, and a lack of it names the key", "[learner]") {
  const auto tensor = train::host_tensor(100'000, at::kBFloat16, false);
  CHECK(at::equal(tensor, at::zeros_like(tensor)));
  CHECK_THROWS_WITH(train::host_tensor(std::int64_t{1} << 60, at::kByte, false),
                    Catch::Matchers::Contains("offload_embedding: false"));
}
