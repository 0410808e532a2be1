#include "runtime/train/background_save.hpp"

#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "rendezvous/store/client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/served_store.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::train;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using mgpu::tests::ServedStore;
using mgpu::tests::TempDir;

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongest{60};

// A rank of several threads in this process, with a file of its own.
struct Rank {
  rendezvous::Contract contract;
  Snapshot snapshot{at::kCPU};
  BackgroundSave writer{contract, snapshot};

  Rank(int rank, int world, int port) {
    contract.rank = rank;
    contract.world_size = world;
    contract.master_port = port;
    const std::vector<Snapshot::File> files{
        {fmt::format("rank-{}", rank), {{"w", checkpoint::DType::f32, {1000}}}}};
    REQUIRE(snapshot.reserve(Snapshot::size_of(files)));
    snapshot.lay_out(files);
    snapshot.add("w", at::ones({1000}), true);
    snapshot.start();
  }

  void begin(const std::string& folder) { writer.begin({.folder = folder}); }
};

// Lets rank 0 begin a checkpoint and returns the folder of its draft.
std::string begin_on_rank_0(
    Rank& rank, const std::string& output, std::int64_t step,
    std::function<void()> write_small_files = [] {}, std::function<void()> remove_older = {}) {
  SaveJob job;
  job.draft = std::make_unique<checkpoint::CheckpointDraft>(output, step);
  job.folder = job.draft->path();
  job.write_small_files = std::move(write_small_files);
  job.publish = [](checkpoint::CheckpointDraft& draft, const auto& records) {
    draft.publish(records, {});
  };
  job.remove_older = std::move(remove_older);
  auto folder = job.folder;
  rank.writer.begin(std::move(job));
  return folder;
}

std::size_t entries_in(const std::string& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a checkpoint appears when the parts of all ranks are complete", "[background_save]") {
  const TempDir dir(TempDir::in_memory());
  ServedStore store;
  Rank first(0, 2, store.port()), second(1, 2, store.port());
  for (const std::int64_t step : {1, 2}) {
    const auto folder = begin_on_rank_0(first, dir.root(), step);
    CHECK_FALSE(fs::exists(dir.path(fmt::format("checkpoint-{}", step))));
    CHECK_FALSE(first.writer.ended(0s));  // it waits for the other rank
    CHECK(first.writer.running());
    second.begin(folder);
    CHECK(second.writer.ended(kLongest));
    CHECK(first.writer.ended(kLongest));
    CHECK_FALSE(first.writer.ended(kLongest));  // only once
    const auto found = checkpoint::find_newest_complete(dir.root());
    CHECK(found.step == step);
    CHECK(fs::exists(found.path + "/rank-0"));
    CHECK(fs::exists(found.path + "/rank-1"));
    CHECK(entries_in(dir.root()) == static_cast<std::size_t>(step));
  }
  // Keys of earlier checkpoints do not stay.
  rendezvous::store::StoreClient client("127.0.0.1", store.port());
  std::size_t keys = 0;
  for (const auto& key : client.list_keys()) keys += key.find("/save/") != key.npos;
  CHECK(keys == 1);
}

TEST_CASE("the error of rank 0 removes the draft, and is not another rank's error",
          "[background_save]") {
  const TempDir dir(TempDir::in_memory());
  ServedStore store;
  Rank first(0, 2, store.port()), second(1, 2, store.port());
  const auto folder =
      begin_on_rank_0(first, dir.root(), 1, [] { throw std::runtime_error("the disk is full"); });
  CHECK_THROWS_WITH(first.writer.ended(kLongest), Contains("the disk is full"));
  CHECK(entries_in(dir.root()) == 0);
  second.begin(folder);
  CHECK(second.writer.ended(kLongest));
  CHECK_FALSE(first.writer.running());
}

TEST_CASE("a rank that cannot write its part fails", "[background_save]") {
  const TempDir dir(TempDir::in_memory());
  ServedStore store;
  Rank first(0, 2, store.port()), second(1, 2, store.port());
  const auto folder = begin_on_rank_0(first, dir.root(), 1);
  fs::create_directories(folder + "/rank-1/in the way");
  second.begin(folder);
  CHECK_THROWS_WITH(second.writer.ended(kLongest), Contains("rank-1"));
  SECTION("and rank 0 does not wait for its part") {
    CHECK(first.writer.ended(kLongest));
    CHECK_FALSE(first.writer.published());
  }
  SECTION("or is replaced") {
    CHECK(first.writer.abandon());
  }
  CHECK(entries_in(dir.root()) == 0);
}

TEST_CASE("a rank on another file system does not keep rank 0 waiting for its part",
          "[background_save]") {
  const TempDir dir(TempDir::in_memory());
  ServedStore store;
  Rank first(0, 2, store.port()), second(1, 2, store.port());
  const fs::path draft = begin_on_rank_0(first, dir.root(), 1);
  const auto unseen = dir.path("elsewhere/" + draft.filename().string());
  second.begin(unseen);
  CHECK_THROWS_WITH(
      first.writer.ended(kLongest),
      Contains("rank 1 does not see " + unseen + "; all ranks must write to the same file system"));
  CHECK(second.writer.ended(kLongest));
  CHECK_FALSE(second.writer.published());
  CHECK(entries_in(dir.root()) == 0);
}

TEST_CASE("an older checkpoint that cannot be removed does not end training", "[background_save]") {
  const TempDir dir(TempDir::in_memory());
  ServedStore store;
  Rank first(0, 2, store.port()), second(1, 2, store.port());
  const auto folder = begin_on_rank_0(
      first, dir.root(), 1, [] {}, [] { throw std::runtime_error("it is in use"); });
  second.begin(folder);
  CHECK(second.writer.ended(kLongest));
  CHECK(second.writer.published());
  CHECK(first.writer.ended(kLongest));
  CHECK(first.writer.published());
  CHECK(first.writer.take_note() == "it is in use");
  CHECK_FALSE(first.writer.take_note());
  CHECK(checkpoint::find_newest_complete(dir.root()).step == 1);
}

TEST_CASE("a checkpoint that was given up leaves nothing behind", "[background_save]") {
  const TempDir dir(TempDir::in_memory());
  ServedStore store;
  Rank first(0, 2, store.port()), second(1, 2, store.port());
  SECTION("because another rank was lost") {
    begin_on_rank_0(first, dir.root(), 1);
    CHECK(first.writer.abandon());
    CHECK_FALSE(first.writer.abandon());
  }
  SECTION("because rank 0 was lost, whose folder its successor removes") {
    const checkpoint::CheckpointDraft draft(dir.root(), 1);
    second.begin(draft.path());
    CHECK(second.writer.abandon());
    checkpoint::remove_unfinished_saves(dir.root());
  }
  SECTION("because training ends with an error") {
    Rank third(0, 2, store.port());
    begin_on_rank_0(third, dir.root(), 1);
  }
  CHECK(entries_in(dir.root()) == 0);
}

TEST_CASE("a complete checkpoint cannot be given up", "[background_save]") {
  const TempDir dir(TempDir::in_memory());
  Rank only(0, 1, 0);
  std::promise<void> written, goes_on;
  begin_on_rank_0(only, dir.root(), 1, [&] {
    written.set_value();
    goes_on.get_future().wait();
  });
  written.get_future().wait();
  CHECK_FALSE(only.writer.ended(0s));
  CHECK(entries_in(dir.root()) == 1);  // the draft
  CHECK_FALSE(fs::exists(dir.path("checkpoint-1")));
  goes_on.set_value();
  CHECK_FALSE(only.writer.abandon());
  CHECK(only.writer.ended(0s));
  CHECK(checkpoint::find_newest_complete(dir.root()).step == 1);
}
