#include <set>
#include <string>

#include "runtime/comm/comm.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::comm;
using mgpu::rendezvous::Contract;

TEST_CASE("all ranks choose the same backend, also those that share a GPU", "[comm]") {
  CHECK(choose(Backend::automatic, 0) == Backend::gloo);
  CHECK(choose(Backend::automatic, 1) == Backend::nccl);
  CHECK(choose(Backend::gloo, 1) == Backend::gloo);
  CHECK_THROWS_WITH(choose(Backend::nccl, 0),
                    "backend: nccl needs GPUs and none is visible; use backend: gloo");
}

TEST_CASE("ranks that share a GPU are on different hosts for NCCL", "[comm]") {
  const auto host = [](int node, int local_rank, int gpus) {
    Contract contract;
    contract.group_rank = node;
    contract.local_rank = local_rank;
    return nccl_host(contract, gpus);
  };
  SECTION("the first rank on each GPU stays on its own") {
    CHECK(host(0, 0, 1).empty());
    CHECK(host(1, 1, 2).empty());
  }
  SECTION("the second ones of a node are together on another one, and so on") {
    CHECK(host(0, 2, 2) == host(0, 3, 2));
    const std::set<std::string> all{host(0, 1, 1), host(0, 2, 1), host(1, 1, 1), host(1, 2, 1)};
    CHECK(all.size() == 4);
    CHECK_FALSE(all.contains(""));
  }
}
