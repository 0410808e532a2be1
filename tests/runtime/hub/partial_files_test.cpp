#include "runtime/hub/partial_files.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include "rendezvous/base/unique_fd.hpp"
#include "tests/runtime/hub/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::hub;
using namespace mgpu::tests;
namespace fs = std::filesystem;

TEST_CASE("only partial files that nobody can continue are removed", "[hub]") {
  const TempDir dir(TempDir::in_memory());
  const fs::path repository = dir.root() / "models--o--n", blobs = repository / "blobs";
  put(blobs / "aa", "whole");
  put(blobs / "bb.0123abcd.incomplete", "half");
  put(blobs / "cc.incomplete", "half");
  put(blobs / "dd.0123abcd.incomplete", "half");
  const auto lock = dir.root() / ".locks/models--o--n/dd.lock";
  put(lock, "");
  const mgpu::rendezvous::UniqueFd other(::open(lock.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(other.get(), LOCK_EX | LOCK_NB) == 0);
  CHECK(bytes_in(repository) == 17);

  remove_partial_files(repository, false);
  CHECK(fs::exists(blobs / "aa"));
  CHECK_FALSE(fs::exists(blobs / "bb.0123abcd.incomplete"));
  CHECK(fs::exists(blobs / "cc.incomplete"));
  CHECK(fs::exists(blobs / "dd.0123abcd.incomplete"));

  SECTION("a full disk needs the others too") {
    remove_partial_files(repository, true);
    CHECK_FALSE(fs::exists(blobs / "cc.incomplete"));
    CHECK(fs::exists(blobs / "dd.0123abcd.incomplete"));
    CHECK(fs::exists(blobs / "aa"));
  }
}

TEST_CASE("a file that begins with its final size has only the bytes that are written", "[hub]") {
  const TempDir dir(TempDir::in_memory());
  const auto file = dir.root() / "blobs/x.incomplete";
  put(file, std::string(8192, 'x'));
  fs::resize_file(file, 1 << 30);
  CHECK(bytes_in(dir.root()) == 8192);
}

TEST_CASE("a repository that is not in the cache has no bytes", "[hub]") {
  CHECK(bytes_in("/nowhere/models--o--n") == 0);
  remove_partial_files("/nowhere/models--o--n", true);
}
