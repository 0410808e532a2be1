#include "rendezvous/base/unique_fd.hpp"

#include <fcntl.h>

#include "tests/support/catch.hpp"

using mgpu::rendezvous::UniqueFd;

namespace {
bool open_now(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}
}  // namespace

TEST_CASE("a UniqueFd closes what it owns and only that", "[unique_fd]") {
  UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int raw = first.get();
  REQUIRE(open_now(raw));

  SECTION("when it is destroyed") {
    {
      UniqueFd taken = std::move(first);
    }
    CHECK_FALSE(open_now(raw));
    CHECK_FALSE(first);
  }
  SECTION("not after release()") {
    CHECK(first.release() == raw);
    CHECK_FALSE(first);
    CHECK(open_now(raw));
    ::close(raw);
  }
}
