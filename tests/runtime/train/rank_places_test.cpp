#include "runtime/train/rank_places.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::train;

namespace {

using Lines = std::vector<std::string>;

std::vector<RankPlace> ranks_on_gpus(int hosts, int gpus) {
  std::vector<RankPlace> places;
  for (int host = 0; host < hosts; ++host)
    for (int gpu = 0; gpu < gpus; ++gpu)
      places.push_back({gpu, 100 + gpu, "node-" + std::to_string(host), "NVIDIA H200"});
  return places;
}

}  // namespace

TEST_CASE("at the start each rank has a line with its GPU", "[places]") {
  CHECK(start_lines(ranks_on_gpus(1, 4), "nccl") ==
        Lines{"rank 0 of 4 initialized on GPU 0 (NVIDIA H200), pid 100",
              "rank 1 of 4 initialized on GPU 1 (NVIDIA H200), pid 101",
              "rank 2 of 4 initialized on GPU 2 (NVIDIA H200), pid 102",
              "rank 3 of 4 initialized on GPU 3 (NVIDIA H200), pid 103",
              "distributed trainer initialized: 4 ranks on 1 host, backend nccl"});
}

TEST_CASE("ranks without a GPU are on the CPU", "[places]") {
  CHECK(start_lines({{-1, 7, "a", "cpu"}, {-1, 8, "a", "cpu"}}, "gloo") ==
        Lines{"rank 0 of 2 initialized on the CPU, pid 7",
              "rank 1 of 2 initialized on the CPU, pid 8",
              "distributed trainer initialized: 2 ranks on 1 host, backend gloo"});
}

TEST_CASE("a single rank has one line at the start", "[places]") {
  CHECK(start_lines({{0, 7, "a", "NVIDIA H200"}}, "none") ==
        Lines{"trainer initialized: 1 rank on GPU 0 (NVIDIA H200)"});
  CHECK(start_lines({{-1, 7, "a", "cpu"}}, "none") ==
        Lines{"trainer initialized: 1 rank on the CPU"});
}

TEST_CASE("the lines of ranks on several hosts name the host", "[places]") {
  const auto lines = start_lines(ranks_on_gpus(2, 2), "nccl");
  REQUIRE(lines.size() == 5);
  CHECK(lines[2] == "rank 2 of 4 initialized on GPU 0 (NVIDIA H200) of host node-1, pid 100");
  CHECK(lines[4] == "distributed trainer initialized: 4 ranks on 2 hosts, backend nccl");
}

TEST_CASE("more than 8 ranks have a line per host", "[places]") {
  auto places = ranks_on_gpus(2, 8);
  CHECK(start_lines(places, "nccl") ==
        Lines{"ranks 0-7 of 16 initialized on GPUs 0-7 (NVIDIA H200) of host node-0",
              "ranks 8-15 of 16 initialized on GPUs 0-7 (NVIDIA H200) of host node-1",
              "distributed trainer initialized: 16 ranks on 2 hosts, backend nccl"});

  SECTION("ranks whose GPUs are not consecutive have lines of their own") {
    places[5].gpu = 9;
    const auto lines = start_lines(places, "nccl");
    REQUIRE(lines.size() == 5);
    CHECK(lines[0] == "ranks 0-4 of 16 initialized on GPUs 0-4 (NVIDIA H200) of host node-0");
    CHECK(lines[1] == "rank 5 of 16 initialized on GPU 9 (NVIDIA H200) of host node-0, pid 105");
  }
  SECTION("64 ranks on one CPU have one") {
    const std::vector<RankPlace> ranks(64, RankPlace{-1, 7, "a", "cpu"});
    CHECK(start_lines(ranks, "gloo").at(0) == "ranks 0-63 of 64 initialized on the CPU");
  }
}

TEST_CASE("more than 16 hosts have one line in all", "[places]") {
  CHECK(start_lines(ranks_on_gpus(17, 8), "nccl") ==
        Lines{"distributed trainer initialized: 136 ranks on 17 hosts, backend nccl"});
}
