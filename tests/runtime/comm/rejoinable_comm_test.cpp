#include "runtime/comm/rejoinable_comm.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/served_store.hpp"

using namespace mgpu::comm;
using namespace std::chrono_literals;
using mgpu::rendezvous::Contract;
using mgpu::tests::ServedStore;

namespace {

Contract contract_of(int rank, int port, int replacement) {
  Contract contract;
  contract.rank = contract.local_rank = rank;
  contract.world_size = contract.local_world_size = 2;
  contract.master_port = port;
  contract.replacement = replacement;
  return contract;
}

CommOptions options_with(bool peer_replaced) {
  return {.backend = Backend::gloo,
          .timeout = 60s,
          .fatal = [](const std::string& text) { throw std::runtime_error(text); },
          .peer_replaced = [peer_replaced] { return peer_replaced; }};
}

double sum_of(Comm& comm, double own) {
  auto value = at::full({1}, own, at::kDouble);
  comm.all_reduce(value, "a sum").wait();
  return value.item<double>();
}

}  // namespace

TEST_CASE("a rank goes on with a new peer after the old one was lost", "[comm]") {
  ServedStore store;
  const auto join_as = [&](int rank, int replacement) {
    return std::make_unique<RejoinableComm>(contract_of(rank, store.port(), replacement),
                                            options_with(true));
  };
  auto peer = std::async(std::launch::async, [&] {
    auto old = join_as(1, 0);
    return sum_of(*old, 2);  // then it ends without a word
  });
  auto comm = join_as(0, 0);
  CHECK(sum_of(*comm, 1) == 3);
  CHECK(peer.get() == 3);

  SECTION("its collective fails, or it is interrupted") {
    if (GENERATE(true, false)) comm->interrupt();
    CHECK_THROWS_AS(sum_of(*comm, 1), PeerLost);
    auto replacement = std::async(std::launch::async, [&] {
      auto made = join_as(1, 1);
      made->rejoin(1);
      return sum_of(*made, 7);
    });
    comm->rejoin(1);
    CHECK(sum_of(*comm, 1) == 8);
    CHECK(replacement.get() == 8);
  }
}

TEST_CASE("a lost peer that nobody replaces is fatal", "[comm]") {
  ServedStore store;
  auto peer = std::async(std::launch::async, [&] {
    RejoinableComm old(contract_of(1, store.port(), 0), options_with(false));
  });
  RejoinableComm comm(contract_of(0, store.port(), 0), options_with(false));
  peer.get();
  CHECK_THROWS_WITH(sum_of(comm, 1), Catch::Matchers::Contains("rank 0: a sum failed"));
}

TEST_CASE("a new process acts as if all ranks were like it until it has joined", "[comm]") {
  RejoinableComm comm(contract_of(1, 1, 4), options_with(false));
  CHECK(sum_of(comm, 1.5) == 3);
  auto all = at::full({2}, 0.0, at::kDouble);
  comm.all_gather(all, at::full({1}, 6.0, at::kDouble), "a gather").wait();
  CHECK(all.sum().item<double>() == 12);
}
