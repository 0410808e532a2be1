#include "runtime/parallel/update_stream.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/consistency.hpp"
#include "runtime/train/handover.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/training_state.hpp"
#include "tests/runtime/train/small_training.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/listed_comm.hpp"

// Updates run on a stream of their own on a GPU. The order `late` stands in for the slowest one: an
// update runs only when it is waited for, so whatever forgets to wait computes something else.
namespace {

using namespace mgpu;
using at::Tensor;
using parallel::UpdateOrder;
using tests::sentence_from;
using tests::small_config;
using Values = std::map<std::string, Tensor>;

parallel::ShardOptions shard_options(int zero_stage, UpdateOrder order) {
  parallel::ShardOptions options;
  options.zero_stage = zero_stage;
  options.bucket_elements = 256;  // a bucket for each unit
  options.updates = order;
  return options;
}

// A rank that trains, with weights in bf16, so that master weights differ from them.
struct Training {
  std::unique_ptr<comm::Comm> comm = comm::join(rendezvous::Contract{}, {});
  std::unique_ptr<train::Learner> learner;
  data::StepBatches batches;

  Training(bool tied, int zero_stage, UpdateOrder order) {
    train::LearnerOptions options;
    options.shards = shard_options(zero_stage, order);
    options.shards.dtype = options.model.dtype = at::kBFloat16;
    options.optimizer = optim::make_adamw({.weight_decay = .1});
    options.max_grad_norm = .05;
    const auto config = small_config(tied, 3);
    at::manual_seed(5);
    learner = std::make_unique<train::Learner>(config, model::lay_out(config), options, *comm);
    for (auto& owned : learner->shards().owned()) owned.value.normal_(0, .3);
    learner->create_optimizer();
  }

  train::StepOutcome step() {
    const auto number = static_cast<int>(batches.step);
    batches.micro_batches = {sentence_from(number), sentence_from(number + 9)};
    batches.target_tokens = 0;
    for (const auto& batch : batches.micro_batches) batches.target_tokens += batch.target_tokens;
    batches.rank_target_tokens = {batches.target_tokens};
    const auto record = learner->step(batches, .01, {});
    return record.outcome(batches.step++);
  }

  // A step whose only micro-batch is skipped.
  void skipped_step() {
    learner->step({.count = 1,
                   .run = [](std::size_t, train::StepRecord&) { FAIL("it is skipped"); },
                   .divisible = {},
                   .skipped = [](std::size_t) { return true; }},
                  .01, {});
  }

  parallel::Shards& shards() { return learner->shards(); }
};

Values masters_of(Training& training) {
  Values values;
  for (const auto& state : training.learner->optimizer().states())
    for (const auto& vector : state.vectors)
      values[state.owned->fragment.name + " " + std::string(vector.name)] =
          vector.stored.values.clone();
  return values;
}

// What reads or writes weights, gradients or the optimizer's state. Each is the first to do so
// after a step, and returns what it has read or written.
const std::vector<std::pair<std::string, std::function<Values(Training&)>>> kUses = {
    {"the weights of a unit",
     [](Training& t) {
       Values values;
       for (int unit : {4, 0, 2}) {
         const auto& weights = t.shards().weights(unit);
         const auto& tensor = unit == 0   ? weights.embedding
                              : unit == 4 ? weights.last_norm
                                          : weights.block.down.weight;
         values[std::to_string(unit)] = tensor.clone();
         t.shards().release(unit);
       }
       return values;
     }},
    {"the values of owned fragments",
     [](Training& t) {
       Values values;
       for (const auto& own : t.shards().owned()) values[own.fragment.name] = own.value.clone();
       return values;
     }},
    {"all trained tensors",
     [](Training& t) {
       Values values;
       t.shards().visit(true, [&](const std::string& name, const Tensor& tensor) {
         values[name] = tensor.clone();
       });
       return values;
     }},
    {"this rank's part of a tensor",
     [](Training& t) {
       return Values{{"norm", t.shards().own_part("model.norm.weight").memory.clone()}};
     }},
    {"the optimizer's state", masters_of},
    {"the training state of a checkpoint",
     [](Training& t) {
       Values values;
       for (const auto& [name, tensor] :
            train::training_state_tensors(t.shards(), t.learner->optimizer(), 0, 1))
         values[name] = tensor.clone();
       return values;
     }},
    {"an optimizer that starts from the weights",
     [](Training& t) {
       t.learner->create_optimizer();
       return masters_of(t);
     }},
    {"a tensor that is set",
     [](Training& t) {
       t.shards().set("model.norm.weight", at::ones({16}));
       return Values{{"norm", t.shards().own_part("model.norm.weight").memory.clone()}};
     }},
    {"a tensor that is mixed",
     [](Training& t) {
       t.shards().mix("model.norm.weight", at::ones({16}), .5);
       return Values{{"norm", t.shards().own_part("model.norm.weight").memory.clone()}};
     }},
    {"an evaluation",
     [](Training& t) {
       train::StepRecord record(at::kCPU, 1);
       t.learner->evaluate(sentence_from(3), record);
       return Values{{"sums", record.values().clone()}};
     }},
    {"a step that is skipped",
     [](Training& t) {
       t.skipped_step();
       return masters_of(t);
     }},
    {"a micro-batch that is abandoned",
     [](Training& t) {
       t.shards().begin_micro_batch(true, true);
       for (int unit = 0; unit <= 4; ++unit) {
         t.shards().weights(unit);
         t.shards().release(unit);
       }
       for (const int unit : {4, 3}) t.shards().gradients(unit);
       t.shards().abandon_micro_batch();
       return masters_of(t);
     }},
    {"a rank that is replaced",
     [](Training& t) {
       t.learner->abandon_step();
       train::share_training_state(*t.learner, 0);
       return masters_of(t);
     }},
};

bool equal(const Values& ours, const Values& theirs) {
  return ours.size() == theirs.size() &&
         std::equal(ours.begin(), ours.end(), theirs.begin(), [](const auto& a, const auto& b) {
           return a.first == b.first && at::equal(a.second, b.second);
         });
}

}  // namespace

TEST_CASE("updates that run as late as allowed change no bit of a training", "[updates]") {
  const bool tied = GENERATE(true, false);
  const int stage = GENERATE(0, 1, 2, 3);
  CAPTURE(tied, stage);
  Training early(tied, stage, UpdateOrder::at_once), late(tied, stage, UpdateOrder::late);
  for (int step = 0; step < 5; ++step) {
    const auto ours = late.step(), theirs = early.step();
    CHECK(theirs.grad_norm > .05);  // it is clipped
    CHECK(ours.loss_sum == theirs.loss_sum);
    CHECK(ours.grad_norm == theirs.grad_norm);
  }
  CHECK(equal(masters_of(late), masters_of(early)));
}

TEST_CASE("everything that uses what an update changes waits for it", "[updates]") {
  const int stage = GENERATE(0, 1, 2, 3);
  for (const auto& [name, use] : kUses) {
    if (stage == 3 && name == "a rank that is replaced") continue;
    CAPTURE(stage, name);
    Training early(true, stage, UpdateOrder::at_once), late(true, stage, UpdateOrder::late);
    for (auto* training : {&early, &late})
      for (int step = 0; step < 2; ++step) training->step();
    CHECK(equal(use(late), use(early)));
    // Nor does a use disturb the update.
    CHECK(equal(masters_of(late), masters_of(early)));
  }
}

TEST_CASE("master weights that are visited are those after the update", "[updates]") {
  const auto visited = [](UpdateOrder order) {
    parallel::ShardOptions options = shard_options(1, order);
    const auto comm = comm::join(rendezvous::Contract{}, {});
    parallel::Shards shards(small_config(true, 3), model::lay_out(small_config(true, 3)), options,
                            *comm);
    std::vector<Tensor> masters;
    for (const auto& own : shards.owned()) masters.push_back(at::zeros({own.fragment.size}));
    shards.update([&](int) {
      for (auto& master : masters) master.add_(1);
    });
    Values values;
    shards.visit_owned(masters, [&](const std::string& name, const Tensor& tensor) {
      values[name] = tensor.clone();
    });
    return values;
  };
  CHECK(equal(visited(UpdateOrder::late), visited(UpdateOrder::at_once)));
}

TEST_CASE("the forward pass of a unit waits for no later update", "[updates]") {
  const int stage = GENERATE(0, 1, 2, 3);
  const auto comm = comm::join(rendezvous::Contract{}, {});
  const auto config = small_config(false, 3);
  parallel::Shards shards(config, model::lay_out(config), shard_options(stage, UpdateOrder::late),
                          *comm);
  std::vector<int> updated;
  shards.update([&](int bucket) { updated.push_back(bucket); });
  CHECK(updated.empty());
  for (int unit = 0; unit <= 4; ++unit) {
    shards.weights(unit);
    CHECK(updated.size() == static_cast<std::size_t>(unit) + 1);
    CHECK(updated.back() == unit);
    shards.release(unit);
  }
  SECTION("and a second micro-batch for none") {
    for (int unit = 0; unit <= 4; ++unit) shards.weights(unit);
    CHECK(updated.size() == 5);
  }
}

TEST_CASE("updated parts are gathered after their update", "[updates]") {
  const int stage = GENERATE(1, 2);
  const auto order = GENERATE(UpdateOrder::at_once, UpdateOrder::beside, UpdateOrder::late);
  tests::ListedComm comm(1);
  const auto config = small_config(true, 3);
  parallel::Shards shards(config, model::lay_out(config), shard_options(stage, order), comm);
  shards.update([&](int) { comm.names.emplace_back("update"); });
  for (int unit = 0; unit <= 4; ++unit) shards.weights(unit);
  std::vector<std::string> expected;
  for (int bucket = 0; bucket < 5; ++bucket)
    for (const char* each : {"update", "all-gather of updated weights"})
      expected.emplace_back(each);
  CHECK(comm.names == expected);
}

TEST_CASE("a GPU's order of updates means at once on a CPU", "[updates]") {
  parallel::UpdateStream updates(at::kCPU, UpdateOrder::beside);
  int count = 0;
  updates.begin();
  updates.run(0, [&] { ++count; });
  CHECK(count == 1);
}

TEST_CASE("an unknown order of updates is refused", "[updates]") {
  CHECK(parallel::update_order("") == UpdateOrder::at_once);
  CHECK(parallel::update_order("beside") == UpdateOrder::beside);
  CHECK_THROWS_WITH(parallel::update_order("1"),
                    Catch::Matchers::Contains("at_once, beside or late"));
}
