#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/file_images.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using mgpu::tests::TempDir;

namespace {

// Saves checkpoints in an endless loop and writes each step to `told` once it is published. Every
// third save replaces the previous one, and every second one is written from memory by two threads.
[[noreturn]] void save_for_ever(const std::string& output_dir, std::int64_t step, int told) {
  const std::vector<std::byte> bytes(40'000, std::byte{7});
  for (int i = 0;; ++i) {
    step += i % 3 != 2;
    CheckpointDraft draft(output_dir, step);
    std::vector<FileRecord> records;
    if (i % 2 == 0) {
      records = *write_images(draft.path(), {{"model.safetensors", bytes}, {"part/1", bytes}}, 2);
    } else {
      SafetensorsWriter writer(draft.path() + "/model.safetensors", {{"a", DType::u8, {40'000}}});
      writer.write("a", bytes);
      records.push_back(writer.finish());
    }
    write_file(draft.path() + "/state", std::string(9'000, 's'));
    draft.publish(records, {});
    if (::write(told, &step, sizeof step) != sizeof step) ::_exit(1);
    rotate(output_dir, 2);
  }
}

// The last step that the saver reported before it was killed.
std::int64_t last_told(int fd, std::int64_t before) {
  for (std::int64_t step; ::read(fd, &step, sizeof step) == sizeof step;) before = step;
  return before;
}

}  // namespace

TEST_CASE("whenever a save is killed, the newest checkpoint is complete", "[checkpoint][fork]") {
  const TempDir dir(TempDir::in_memory());
  std::mt19937 random(20240607);
  std::int64_t step = 0, told = 0;
  for (int round = 0; round < 60; ++round) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t saver = ::fork();
    if (saver == 0) save_for_ever(dir.root(), step, ends[1]);
    ::close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
    ::kill(saver, SIGKILL);
    ::waitpid(saver, nullptr, 0);
    told = last_told(ends[0], told);
    ::close(ends[0]);

    const auto found = find_newest_complete(dir.root());
    CAPTURE(round, told, found.step);
    CHECK(found.skipped.empty());
    CHECK(found.step >= told);
    step = found.step;
  }
  CHECK(step > 20);  // it was not killed before it had saved anything
  remove_unfinished_saves(dir.root());
  CHECK(find_newest_complete(dir.root()).step == step);
}
