#include "runtime/data/lost_pages.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "runtime/data/mapped_file.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;

namespace {

int told = -1;  // where the child writes its message

// Maps the file, makes it shorter and reads it all, in a process of its own. Returns what that
// reported, and its status.
std::pair<std::string, int> read_while_cut(const std::string& file) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    told = ends[1];
    report_lost_pages([](const char* message) {
      if (::write(told, message, std::strlen(message)) > 0) ::_exit(1);
    });
    const MappedFile mapped(file);
    std::filesystem::resize_file(file, 5000);
    std::size_t sum = 0;
    for (const char c : mapped.bytes()) sum += static_cast<unsigned char>(c);
    ::_exit(sum > 0 ? 10 : 11);
  }
  ::close(ends[1]);
  std::string text(1000, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], text.data(), 1000))));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return {text, status};
}

}  // namespace

TEST_CASE("a mapped file that becomes shorter is named, and not only SIGBUS",
          "[lost_pages][fork]") {
  const TempDir dir;
  const std::string file = dir.path("some rows.jsonl");
  write(file, std::string(20000, 'x'));
  const auto [text, status] = read_while_cut(file);
  CHECK(text ==
        "cannot read " + file +
            ": another program made it shorter while it was read; start again when the file "
            "is complete");
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
}

TEST_CASE("a lack of shared memory is still the signal that others recognise",
          "[lost_pages][fork]") {
  if (::access("/dev/shm", W_OK) != 0) return;
  const TempDir dir("/dev/shm");
  const std::string file = dir.path("nccl-1");
  write(file, std::string(20000, 'x'));
  const auto [text, status] = read_while_cut(file);
  CHECK(text.empty());
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGBUS);
}
