#include "runtime/train/learner.hpp"

#include <c10/util/Exception.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/layout.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/train/weights_io.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/listed_comm.hpp"

namespace {

using namespace mgpu;

model::ModelConfig small_config() {
  model::ModelConfig config;
  config.vocab_size = 20;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.max_position = 64;
  return config;
}

// The collectives of a step with one micro-batch, which is skipped. `fails_at`: the one that finds
// no memory.
std::vector<std::string> collectives_of_a_skipped_step(int zero_stage,
                                                       std::optional<std::size_t> fails_at) {
  tests::ListedComm comm(0);
  comm.fail = [] { throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "no memory"); };
  train::LearnerOptions options;
  options.shards.zero_stage = zero_stage;
  options.shards.bucket_elements = 256;
  options.optimizer = optim::make_adamw({});
  options.survives_out_of_memory = true;
  const auto config = small_config();
  train::Learner learner(config, model::lay_out(config, {}), options, comm);
  learner.create_optimizer();
  comm.names.clear();
  comm.fails_at = fails_at;
  learner.step({.count = 1,
                .run = [](std::size_t, train::StepRecord&) { FAIL("it is skipped"); },
                .divisible = [](std::size_t) { return false; },
                .skipped = [](std::size_t) { return true; }},
               1e-3, {});
  return comm.names;
}

}  // namespace

TEST_CASE("a rank without memory for a skipped micro-batch starts the same collectives as others",
          "[learner]") {
  const int stage = GENERATE(2, 3);
  const std::size_t fails_at = GENERATE(0U, 1U, 2U);
  CAPTURE(stage, fails_at);
  CHECK(collectives_of_a_skipped_step(stage, fails_at) == collectives_of_a_skipped_step(stage, {}));
}
