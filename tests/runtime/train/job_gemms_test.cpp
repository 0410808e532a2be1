#include "runtime/train/job_gemms.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <barrier>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/train/learner.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_gemms.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::train;
using Catch::Matchers::Contains;
using tests::FakeGemms;
using tests::TempDir;

namespace {

constexpr double kAny = 1;  // flops: every product is worth a choice

// Two ranks in threads of this process.
struct Pair {
  std::barrier<> meeting{2};
  at::Tensor sent[2];
};

class PairComm : public comm::Comm {
 public:
  PairComm(Pair& pair, int rank) : pair_(pair), rank_(rank) {}
  int rank() const override { return rank_; }
  int world() const override { return 2; }
  const char* backend() const override { return "none"; }
  comm::Pending all_reduce(at::Tensor, const char*) override { return {}; }
  comm::Pending reduce_scatter(at::Tensor, at::Tensor, const char*) override { return {}; }
  comm::Pending all_to_all(at::Tensor, at::Tensor, const char*) override { return {}; }
  comm::Pending all_gather(at::Tensor out, at::Tensor in, const char*) override {
    exchange(in.clone(), [&] {
      for (int r = 0; r < 2; ++r) out.view({2, -1})[r].copy_(pair_.sent[r].view({-1}));
    });
    return {};
  }
  comm::Pending broadcast(at::Tensor tensor, int from, const char*) override {
    exchange(tensor.clone(), [&] { tensor.copy_(pair_.sent[from]); });
    return {};
  }
  void barrier(const char*) override { pair_.meeting.arrive_and_wait(); }
  void close() override {}

 private:
  void exchange(at::Tensor own, const std::function<void()>& receive) {
    pair_.sent[rank_] = std::move(own);
    pair_.meeting.arrive_and_wait();
    receive();
    pair_.meeting.arrive_and_wait();
  }

  Pair& pair_;
  int rank_;
};

void on_two_ranks(const std::function<void(comm::Comm&)>& work) {
  Pair pair;
  PairComm first(pair, 0), second(pair, 1);
  std::jthread other([&] { work(second); });
  work(first);
}

ops::GemmOperands product_of(std::int64_t rows) {
  return {.out = at::empty({rows, 24}, at::kBFloat16),
          .a = at::ones({rows, 16}, at::kBFloat16),
          .b = at::ones({16, 24}, at::kBFloat16)};
}

// A job of one rank that has chosen an algorithm for one product.
GemmTable chosen_in(const std::string& folder) {
  const auto comm = comm::join(rendezvous::Contract{}, {});
  JobGemms gemms(std::make_unique<FakeGemms>(), *comm, at::kCPU, folder, kAny);
  CHECK(gemms.begin("", {}).empty());
  gemms.choices()->begin_step(0);
  gemms.choices()->multiply(product_of(8));
  CHECK_THAT(gemms.choose(0), Contains("step 1: timed 1 matrix products"));
  return gemms.table().value();
}

struct Begun {
  std::string note;
  std::size_t choices = 0;
};

Begun begin_run(const std::string& folder, const std::string& checkpoint,
                const std::optional<GemmTable>& saved, std::unique_ptr<FakeGemms> library) {
  const auto comm = comm::join(rendezvous::Contract{}, {});
  JobGemms gemms(std::move(library), *comm, at::kCPU, folder, kAny);
  auto note = gemms.begin(checkpoint, saved);
  return {std::move(note), gemms.table()->choices.size()};
}

model::ModelConfig tiny_model() {
  model::ModelConfig config;
  config.vocab_size = 24;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.max_position = 64;
  return config;
}

// Losses of the steps [from, until) of a model whose weights do not change. `until_saved` gets the
// choices that a checkpoint after the step before `until` has.
std::vector<double> losses(const TempDir& dir, std::int64_t from, std::int64_t until,
                           std::optional<GemmTable>& saved) {
  const auto comm = comm::join(rendezvous::Contract{}, {});
  JobGemms gemms(std::make_unique<FakeGemms>(), *comm, at::kCPU, dir.root().string(), kAny);
  CHECK(gemms.begin(from > 0 ? "checkpoint" : "", saved).empty());
  LearnerOptions options;
  options.shards.dtype = options.model.dtype = at::kBFloat16;
  options.optimizer = optim::make_adamw({});
  options.gemms = gemms.choices();
  const auto config = tiny_model();
  at::manual_seed(5);
  Learner learner(config, model::lay_out(config), options, *comm);
  for (auto& owned : learner.shards().owned()) owned.value.normal_(0, .1);
  learner.create_optimizer();
  std::vector<double> losses;
  for (auto step = from; step < until; ++step) {
    data::BatchBuilder builder;
    const std::vector<std::int32_t> tokens(step < 3 ? 8 : 16, static_cast<std::int32_t>(3 + step));
    builder.add({tokens});
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) builder.set_target(i, tokens[i + 1]);
    data::StepBatches batches;
    batches.micro_batches = {builder.take()};
    batches.target_tokens = batches.micro_batches[0].target_tokens;
    batches.rank_target_tokens = {batches.target_tokens};
    batches.step = step;
    gemms.choices()->begin_step(step);
    const auto outcome = learner.step(batches, 0, {}).outcome(step);
    losses.push_back(outcome.loss_sum);
    if (outcome.new_products) gemms.choose(step);
  }
  saved = gemms.table();
  return losses;
}

}  // namespace

TEST_CASE("all ranks use what rank 0 measured, for the products of all of them", "[gemm]") {
  const TempDir dir(TempDir::in_memory());
  std::vector<ops::GemmChoice> chosen[2];
  std::size_t timed[2] = {};
  on_two_ranks([&](comm::Comm& comm) {
    auto library = std::make_unique<FakeGemms>();
    auto& fake = *library;
    if (comm.rank() == 1) fake.times = {1, 2, 3};  // it would decide otherwise
    JobGemms gemms(std::move(library), comm, at::kCPU, dir.root().string(), kAny);
    gemms.begin("", {});
    gemms.choices()->begin_step(3);
    gemms.choices()->multiply(product_of(8));
    gemms.choices()->multiply(product_of(comm.rank() == 0 ? 16 : 32));
    gemms.choices()->begin_step(4);
    gemms.choices()->multiply(product_of(64));  // its step is not complete
    gemms.choose(3);
    chosen[comm.rank()] = gemms.choices()->all();
    timed[comm.rank()] = fake.timed.size();
    CHECK(gemms.choices()->products_until(4).size() == 1);
  });
  CHECK((chosen[0] == chosen[1]));
  REQUIRE(chosen[0].size() == 3);
  for (const auto& choice : chosen[0]) {
    CHECK(choice.algorithm == tests::algorithm_number(2));
    CHECK(choice.from_step == 5);
  }
  CHECK(timed[0] == 3);
  CHECK(timed[1] == 0);
}

TEST_CASE("ranks with different GPUs leave all products to PyTorch, with a note", "[gemm]") {
  const TempDir dir(TempDir::in_memory());
  std::string notes[2];
  on_two_ranks([&](comm::Comm& comm) {
    JobGemms gemms(std::make_unique<FakeGemms>(comm.rank() == 0 ? "H100" : "H200"), comm, at::kCPU,
                   dir.root().string());
    notes[comm.rank()] = gemms.begin("", {});
    CHECK(gemms.choices() == nullptr);
    CHECK_FALSE(gemms.table());
    CHECK(gemms.choose(0).empty());
  });
  CHECK_THAT(notes[0], Contains("gemm_choice: timed has no effect: the ranks have different GPUs"));
  CHECK(notes[1] == notes[0]);
}

TEST_CASE("a run without a GPU leaves all products to PyTorch, with a note", "[gemm]") {
  const auto comm = comm::join(rendezvous::Contract{}, {});
  JobGemms gemms(nullptr, *comm, at::kCPU, ".");
  CHECK(gemms.begin("", {}) == "gemm_choice: timed has no effect: there are no GPUs");
  CHECK(gemms.choices() == nullptr);
}

TEST_CASE("a later run uses the choices in the output folder", "[gemm]") {
  const TempDir dir(TempDir::in_memory());
  const auto folder = dir.root().string();
  const auto chosen = chosen_in(folder);
  REQUIRE(chosen.choices.size() == 1);
  SECTION("of the same library on the same GPU") {
    const auto begun = begin_run(folder, "", {}, std::make_unique<FakeGemms>());
    CHECK(begun.note.empty());
    CHECK(begun.choices == 1);
  }
  SECTION("but not on another GPU or with another version") {
    const auto [device, version] = GENERATE(
        table<const char*, const char*>({{"Other GPU", "fakeblas 1"}, {"Fake GPU", "fakeblas 2"}}));
    const auto begun = begin_run(folder, "", {}, std::make_unique<FakeGemms>(device, version));
    CHECK_THAT(begun.note, Contains("gemm_choices.json are chosen again: they are of fakeblas 1 on "
                                    "Fake GPU, and this run uses"));
    CHECK(begun.choices == 0);
  }
  SECTION("and not if it resumes from a checkpoint with choices of its own") {
    const auto begun = begin_run(folder, "checkpoint-5", GemmTable{"fakeblas 1", "Fake GPU", {}},
                                 std::make_unique<FakeGemms>());
    CHECK(begun.note.empty());
    CHECK(begun.choices == 0);
  }
  SECTION("and stops with one line if the file cannot be used") {
    std::ofstream(dir.path(kGemmFile)) << "{}";
    CHECK_THROWS_WITH(begin_run(folder, "", {}, std::make_unique<FakeGemms>()),
                      Contains("gemm_choices.json: library is missing; it must be a string; remove "
                               "the file"));
  }
}

TEST_CASE("a resumed run uses the same algorithms in the same steps", "[gemm]") {
  const TempDir dir(TempDir::in_memory());
  std::optional<GemmTable> saved;
  const auto whole = losses(dir, 0, 7, saved);
  // New products come in steps 0 and 3, and get algorithms, which change results, in steps 2 and 5.
  // A checkpoint can be saved between.
  for (const std::int64_t at : {1, 2, 3, 4, 5, 6}) {
    const TempDir other(TempDir::in_memory());
    CAPTURE(at);
    saved.reset();
    auto parts = losses(other, 0, at, saved);
    for (const double loss : losses(other, at, 7, saved)) parts.push_back(loss);
    CHECK(parts == whole);
  }
  SECTION("which a run without the choices of its checkpoint does not") {
    saved.reset();
    CHECK(losses(dir, 2, 7, saved) != std::vector(whole.begin() + 2, whole.end()));
  }
  SECTION("and so does a new one with the file of an earlier one") {
    saved.reset();
    CHECK(losses(dir, 0, 7, saved) == whole);
  }
}
