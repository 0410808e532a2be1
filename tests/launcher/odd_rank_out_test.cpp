#include "launcher/hang_evidence/odd_rank_out.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

namespace {

const std::string kTorch = "/venv/lib/python3.11/site-packages/torch";

RankState sleeping(int rank) {
  return {.rank = rank, .pid = 1000 + rank, .process_state = 'S', .kernel_function = "futex_wait"};
}

// In a call of torch.distributed that train.py made in this line.
RankState in_call(int rank, const std::string& name, int line) {
  auto state = sleeping(rank);
  state.python = {{kTorch + "/distributed/distributed_c10d.py", 3075, name},
                  {kTorch + "/distributed/c10d_logger.py", 83, "wrapper"},
                  {"/home/me/train.py", line, "main"}};
  return state;
}

RankState in_own_code(int rank, int line, char process_state = 'S') {
  auto state = sleeping(rank);
  state.process_state = process_state;
  state.kernel_function = process_state == 'R' ? "" : "hrtimer_nanosleep";
  state.python = {{"/home/me/train.py", line, "load"}};
  return state;
}

RankState reporting(int rank, std::int64_t sequence, bool waiting,
                    const std::string& name = "all-reduce of gradients") {
  auto state = sleeping(rank);
  state.collective =
      CollectiveState{.name = name, .sequence = sequence, .elements = 64, .waiting = waiting};
  return state;
}

// NCCL's collectives are in the queue of the GPU.
RankState waiting_for_gpu(int rank, int line) {
  auto state = sleeping(rank);
  state.process_state = 'R';
  state.python = {{kTorch + "/cuda/__init__.py", 1162, "synchronize"},
                  {"/home/me/train.py", line, "main"}};
  return state;
}

RankState in_state(int rank, char process_state) {
  auto state = in_call(rank, "all_reduce", 10);
  state.process_state = process_state;
  return state;
}

RankState in_native(int rank, std::vector<std::string> functions) {
  auto state = sleeping(rank);
  state.native = std::move(functions);
  return state;
}

}  // namespace

TEST_CASE("the rank that the others wait for is named, and why", "[hang]") {
  struct Case {
    std::vector<RankState> ranks;
    int odd;
    std::string reason;
  };
  const auto [ranks, odd, reason] = GENERATE(values<Case>({
      {{in_call(0, "all_reduce", 10), in_state(1, 'T'), in_call(2, "all_reduce", 10)},
       1,
       "rank 1 is suspended by a signal; kill -CONT 1001 resumes it"},
      {{in_call(0, "all_reduce", 10), in_state(1, 'Z')}, 1, "rank 1 is no longer running"},
      {{in_call(0, "all_reduce", 10), {.rank = 1}}, 1, "rank 1 is no longer running"},
      {{in_call(0, "all_reduce", 10), in_state(1, 'D')},
       1,
       "rank 1 is in an uninterruptible system call (futex_wait), often because of a disk, a file "
       "server or a driver"},
      {{in_call(0, "all_reduce", 10), in_own_code(1, 20)},
       1,
       "rank 1 is not in a collective operation: it is at train.py:20 in load (waits in "
       "hrtimer_nanosleep), while rank 0 is in all_reduce (train.py:10)"},
      {{waiting_for_gpu(0, 10), in_own_code(1, 20)},
       1,
       "rank 1 is not in a collective operation: it is at train.py:20 in load (waits in "
       "hrtimer_nanosleep), while rank 0 is in train.py:10 in main, which called synchronize "
       "(__init__.py:1162) (running)"},
      {{in_own_code(0, 20, 'R'), in_call(1, "all_reduce", 10), in_call(2, "all_reduce", 10)},
       0,
       "rank 0 is not in a collective operation: it is at train.py:20 in load (running), while "
       "ranks 1, 2 are in all_reduce (train.py:10)"},
      {{in_call(0, "all_reduce", 10), in_call(1, "all_reduce", 10), in_call(2, "barrier", 14)},
       2,
       "rank 2 is in barrier (train.py:14), while ranks 0, 1 are in all_reduce (train.py:10)"},
      {{in_call(0, "all_reduce", 10), in_call(1, "all_reduce", 22), in_call(2, "all_reduce", 10)},
       1,
       "rank 1 is in all_reduce (train.py:22), while ranks 0, 2 are in all_reduce (train.py:10)"},
      {{in_own_code(0, 20), in_own_code(1, 20), in_own_code(2, 25)},
       2,
       "rank 2 is at train.py:25 in load (waits in hrtimer_nanosleep), while ranks 0, 1 are at "
       "train.py:20 in load (waits in hrtimer_nanosleep)"},
      {{reporting(0, 7, true), reporting(1, 7, false), reporting(2, 7, true)},
       1,
       "rank 1 is not in a collective operation, while ranks 0, 2 wait for all-reduce of gradients "
       "(collective 7, 64 elements)"},
      {{reporting(0, 7, true), reporting(1, 6, true), reporting(2, 7, true)},
       1,
       "rank 1 is still in all-reduce of gradients (collective 6, 64 elements), while rank 0 is in "
       "all-reduce of gradients (collective 7, 64 elements)"},
      {{reporting(0, 7, true), reporting(1, 7, true), reporting(2, 7, true, "barrier")},
       2,
       "rank 2 is in barrier (collective 7, 64 elements), while ranks 0, 1 are in all-reduce of "
       "gradients (collective 7, 64 elements)"},
      {{in_native(0, {"read"}), in_native(1, {"poll", "ncclAllReduce"})},
       0,
       "rank 0 is not in a collective operation: it is at read (waits in futex_wait), while rank 1 "
       "is in ncclAllReduce"},
      {{sleeping(0), {.rank = 1, .process_state = 'R'}, sleeping(2)},
       1,
       "rank 1 is at an unknown location (running), while ranks 0, 2 are at an unknown location "
       "(waits in futex_wait)"},
  }));
  CAPTURE(reason);
  const auto found = odd_rank_out(ranks);
  CHECK(found.rank == odd);
  CHECK(found.reason == reason);
}

TEST_CASE("no rank is named when none differs, or when two differ from each other", "[hang]") {
  struct Case {
    std::vector<RankState> ranks;
    std::string reason;
  };
  const auto [ranks, reason] = GENERATE(values<Case>({
      {{}, "no rank could be examined"},
      {{in_call(0, "all_reduce", 10), in_call(1, "all_reduce", 10)},
       "no rank differs from the others"},
      {{in_state(0, 'T'), in_state(1, 'T')}, "no rank differs from the others"},
      {{in_call(0, "all_reduce", 10), in_call(1, "barrier", 14)},
       "the ranks wait for each other: rank 0 is at all_reduce (train.py:10); rank 1 is at barrier "
       "(train.py:14)"},
      {{reporting(0, 7, false), reporting(1, 7, false)}, "no rank differs from the others"},
  }));
  CAPTURE(reason);
  const auto found = odd_rank_out(ranks);
  CHECK_FALSE(found.rank.has_value());
  CHECK(found.reason == reason);
}

TEST_CASE("several ranks that are not in a collective are all listed", "[hang]") {
  std::vector<RankState> ranks{in_call(0, "all_reduce", 10)};
  for (int rank = 1; rank < 12; ++rank) ranks.push_back(in_own_code(rank, 20));
  const auto found = odd_rank_out(ranks);
  CHECK(found.rank == 1);
  CHECK(found.reason.starts_with(
      "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more are not in a collective operation: they are at "
      "train.py:20"));
}

TEST_CASE("the place of a collective is where the program calls it, not torch", "[hang]") {
  auto state = sleeping(0);
  state.python = {{kTorch + "/_ops.py", 1, "op"},
                  {kTorch + "/distributed/distributed_c10d.py", 9, "all_gather"},
                  {kTorch + "/distributed/fsdp/shard.py", 5, "unshard"},
                  {kTorch + "/nn/modules/module.py", 1700, "__call__"},
                  {kTorch + "/distributed/fsdp/wrap.py", 8, "forward"},
                  {"/home/me/train.py", 31, "step"}};
  CHECK(activity_of(state) == "unshard (train.py:31)");
}
