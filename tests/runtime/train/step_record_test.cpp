#include "runtime/train/step_record.hpp"

#include <ATen/ops/zeros_like.h>

#include <vector>

#include "tests/support/catch.hpp"

namespace {

using namespace mgpu;
using comm::Pending;
using comm::Tensor;

// One of two ranks. It keeps what it sends, and adds what the other rank has sent.
class Half : public comm::Comm {
 public:
  Half(int rank, std::vector<Tensor> arriving) : rank_(rank), arriving_(std::move(arriving)) {}

  std::vector<Tensor> sent;

  int rank() const override { return rank_; }
  int world() const override { return 2; }
  const char* backend() const override { return "none"; }
  Pending all_reduce(Tensor tensor, const char*) override {
    const auto number = sent.size();
    sent.push_back(tensor.clone());
    if (number < arriving_.size()) tensor.add_(arriving_[number]);
    return {};
  }
  Pending reduce_scatter(Tensor, Tensor, const char*) override { return {}; }
  Pending all_gather(Tensor, Tensor, const char*) override { return {}; }
  Pending all_to_all(Tensor, Tensor, const char*) override { return {}; }
  Pending broadcast(Tensor, int, const char*) override { return {}; }
  void barrier(const char*) override {}
  void close() override {}

 private:
  int rank_;
  std::vector<Tensor> arriving_;
};

struct Sums {
  std::vector<Tensor> sent;
  bool confirmed;
};

Sums sums_of_a_step(int rank, std::int64_t number, std::vector<Tensor> arriving) {
  Half comm(rank, std::move(arriving));
  train::StepRecord record(at::kCPU, 2);
  record.add_memory(rank, 1 << 20);
  record.reduce(comm);
  const bool unconfirmed = record.confirm(comm, number).item<float>() > 0;
  record.copy_to_host();
  const bool confirmed = record.outcome(0).confirmed;
  CHECK(confirmed != unconfirmed);
  return {comm.sent, confirmed};
}

}  // namespace

TEST_CASE("the sums of a step are confirmed by marks that only this step has", "[step_record]") {
  const auto of_other = [](std::int64_t number) { return sums_of_a_step(1, number, {}).sent; };
  CHECK(sums_of_a_step(0, 0, of_other(0)).confirmed);
  CHECK(sums_of_a_step(0, 7, of_other(7)).confirmed);
  SECTION("not by what the other rank has sent in an earlier step") {
    CHECK_FALSE(sums_of_a_step(0, 7, of_other(6)).confirmed);
  }
  SECTION("not without anything from it") {
    CHECK_FALSE(sums_of_a_step(0, 7, {}).confirmed);
    CHECK_FALSE(sums_of_a_step(0, 0, {}).confirmed);
  }
}
