#include <cmath>
#include <limits>
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

// The first micro-batch of a step overwrites the gradients of the step before, without setting them
// to 0 first.
namespace {

using namespace mgpu;
using tests::sentence_from;
using tests::small_config;

struct Steps {
  std::unique_ptr<comm::Comm> comm;
  std::unique_ptr<train::Learner> learner;
  data::StepBatches batches;

  Steps(bool tied, int zero_stage) {
    comm = comm::join(rendezvous::Contract{}, {});
    train::LearnerOptions options;
    options.shards.zero_stage = zero_stage;
    options.shards.bucket_elements = 256;
    options.optimizer = optim::make_adamw({});
    const auto config = small_config(tied);
    at::manual_seed(5);
    learner = std::make_unique<train::Learner>(config, model::lay_out(config), options, *comm);
    for (auto& owned : learner->shards().owned()) owned.value.normal_(0, .1);
    learner->create_optimizer();
  }

  double norm_of(std::vector<data::Batch> micro_batches) {
    batches.micro_batches = std::move(micro_batches);
    batches.target_tokens = 0;
    for (const auto& batch : batches.micro_batches) batches.target_tokens += batch.target_tokens;
    batches.rank_target_tokens = {batches.target_tokens};
    const auto record = learner->step(batches, 0, {});
    return record.outcome(batches.step++).grad_norm;
  }

  void poison() {
    for (auto& owned : learner->shards().owned())
      owned.grad.fill_(std::numeric_limits<double>::quiet_NaN());
  }
};

}  // namespace

TEST_CASE("the gradients of a step do not depend on what their memory held before", "[learner]") {
  const bool tied = GENERATE(true, false);
  const int stage = GENERATE(0, 1, 2, 3);
  CAPTURE(tied, stage);
  Steps steps(tied, stage);
  const std::vector<data::Batch> both{sentence_from(1), sentence_from(2)};
  const double first = steps.norm_of(both);
  CHECK(first > 0);
  steps.poison();
  CHECK(steps.norm_of(both) == first);

  SECTION("a first micro-batch without target tokens leaves nothing of it") {
    const double alone = steps.norm_of({sentence_from(1)});
    steps.poison();
    CHECK(steps.norm_of({data::batch_without_work(), sentence_from(1)}) == alone);
  }
  SECTION("nor does a first micro-batch that is skipped") {
    steps.poison();
    const auto record =
        steps.learner->step({.count = 1,
                             .run = [](std::size_t, train::StepRecord&) { FAIL("it is skipped"); },
                             .divisible = {},
                             .skipped = [](std::size_t) { return true; }},
                            0, {});
    CHECK(record.outcome(9).grad_norm == 0);
  }
}
