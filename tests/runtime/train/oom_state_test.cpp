#include "runtime/train/oom_state.hpp"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::train;
using mgpu::tests::TempDir;
using Texts = std::vector<std::string>;

namespace {

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

std::string with_pieces(std::int64_t pieces) {
  Progress progress;
  progress.oom = OomState{.pieces = pieces};
  return progress_text(progress);
}

}  // namespace

TEST_CASE("the newest readable checkpoint tells what ran out of memory", "[oom_state]") {
  const TempDir dir(TempDir::in_memory());
  const auto pieces = [&](const std::string& wanted) {
    const auto state = oom_in_checkpoint(dir.path(""), wanted);
    return state ? state->pieces : 0;
  };
  CHECK(pieces("auto") == 0);
  write(dir.path("checkpoint-2/trainer_state.json"), with_pieces(2));
  write(dir.path("checkpoint-10/trainer_state.json"), with_pieces(8));
  write(dir.path("checkpoint-best/trainer_state.json"), with_pieces(16));
  CHECK(pieces("auto") == 8);
  CHECK(pieces("true") == 8);
  CHECK(pieces("no") == 0);
  CHECK(pieces(dir.path("checkpoint-2")) == 2);
  SECTION("an incomplete one is passed over") {
    std::filesystem::create_directories(dir.path("checkpoint-11"));
    CHECK(pieces("auto") == 8);
    write(dir.path("checkpoint-12/trainer_state.json"), with_pieces(4).substr(0, 20));
    CHECK(pieces("auto") == 8);
  }
}

TEST_CASE("an unreadable file of an earlier attempt is left out", "[oom_state]") {
  const TempDir dir(TempDir::in_memory());
  CHECK_FALSE(oom_in_file(dir.path("")));
  const OomState state{.changes = {"zero_stage: 1"}, .oom_count = 1, .jobs = {"a"}};
  write(dir.path(kOomFile), oom_state_text(state));
  CHECK(oom_in_file(dir.path("")) == state);
  write(dir.path(kOomFile), "{");
  CHECK_FALSE(oom_in_file(dir.path("")));
}

TEST_CASE("an attempt answers only what earlier attempts of its job have not", "[oom_state]") {
  const OomState saved{.changes = {"zero_stage: 1"}, .pieces = 2, .oom_count = 1, .jobs = {"a"}};
  SECTION("the same job") {
    CHECK(remembered(saved, {}, 2, {"a"}).oom_count == 1);
  }
  SECTION("a node of the job has been replaced, and rank 0 is on another one") {
    const OomState on_two{.oom_count = 1, .jobs = {"a", "b"}};
    CHECK(remembered(on_two, {}, 2, {"b", "c"}).oom_count == 1);
  }
  SECTION("another job answers all of its own") {
    CHECK(remembered(saved, {}, 2, {"b"}).oom_count == 0);
    CHECK(remembered(saved, {}, 0, {"a"}).oom_count == 0);
    CHECK(remembered(saved, {}, 2, {}).oom_count == 0);
  }
  CHECK(remembered(saved, {}, 2, {"b"}).changes == saved.changes);
  CHECK(remembered(saved, {}, 2, {"b"}).pieces == 2);
  CHECK(remembered(saved, {}, 2, {"b"}).jobs == Texts{"b"});
  CHECK(remembered({}, {}, 1, {"b"}) == OomState{.jobs = {"b"}});
}

TEST_CASE("the file of an attempt of this job is newer than the checkpoint it began with",
          "[oom_state]") {
  const OomState saved{.changes = {"zero_stage: 1"}, .pieces = 4, .oom_count = 1, .jobs = {"a"}};
  OomState recorded{.changes = {"zero_stage: 1", "zero_stage: 2"}, .oom_count = 2, .jobs = {"a"}};
  const auto both = remembered(saved, recorded, 3, {"a"});
  CHECK(both.changes == recorded.changes);
  CHECK(both.oom_count == 2);
  CHECK(both.pieces == 4);
  SECTION("but not if a later attempt has saved one") {
    recorded.oom_count = 0;
    CHECK(remembered(saved, recorded, 3, {"a"}).changes == saved.changes);
  }
  SECTION("and the file of another job is left out") {
    CHECK(remembered(saved, recorded, 3, {"b"}).changes == saved.changes);
    CHECK(remembered(saved, recorded, 1, {"a"}).changes == saved.changes);
  }
}
