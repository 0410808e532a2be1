#include "runtime/train/learner.hpp"

#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "runtime/model/layout.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/train/weights_io.hpp"
#include "tests/support/catch.hpp"

namespace {

using mgpu::comm::Comm;
using mgpu::comm::Pending;
using mgpu::comm::Tensor;
using namespace mgpu;

// Lists the collectives of rank 0 of two. One of them finds no memory.
class Listed : public Comm {
 public:
  std::vector<std::string> names;
  int fails_at = -1;  // collectives that are started before; -1: all find memory

  int rank() const override { return 0; }
  int world() const override { return 2; }
  const char* backend() const override { return "none"; }
  Pending all_reduce(Tensor, const char* what) override { return list(what); }
  Pending reduce_scatter(Tensor, Tensor, const char* what) override { return list(what); }
  Pending all_gather(Tensor, Tensor, const char* what) override { return list(what); }
  Pending all_to_all(Tensor, Tensor, const char* what) override { return list(what); }
  Pending broadcast(Tensor, int, const char* what) override { return list(what); }
  void barrier(const char* what) override { list(what); }
  void close() override {}

 private:
  Pending list(const char* what) {
    if (fails_at-- == 0) throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "no memory");
    names.emplace_back(what);
    return Pending([] {});
  }
};

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

// The collectives of a step with one micro-batch, which is skipped.
std::vector<std::string> collectives_of_a_skipped_step(int zero_stage, int fails_at) {
  Listed comm;
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
  const int fails_at = GENERATE(0, 1, 2);
  CAPTURE(stage, fails_at);
  CHECK(collectives_of_a_skipped_step(stage, fails_at) == collectives_of_a_skipped_step(stage, -1));
}
