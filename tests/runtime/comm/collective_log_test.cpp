#include "runtime/comm/collective_log.hpp"

#include "tests/support/catch.hpp"

using mgpu::comm::CollectiveLog;

TEST_CASE("the current collective is the first that has not finished", "[comm]") {
  CollectiveLog log;
  CHECK_FALSE(log.current());
  const auto first = log.started("all-gather", 10);
  const auto second = log.started("all-reduce", 20);
  CHECK(first == 1);
  CHECK(log.current()->sequence == first);
  CHECK(log.current()->name == "all-gather");
  CHECK(log.current()->elements == 10);
  CHECK_FALSE(log.current()->finished);
  log.finished(second);
  CHECK(log.current()->sequence == first);
  log.finished(first);
  CHECK(log.current()->sequence == second);
  CHECK(log.current()->finished);
}

TEST_CASE("old collectives are forgotten, and long names are cut off", "[comm]") {
  CollectiveLog log;
  const auto oldest = log.started("oldest", 1);
  for (int i = 0; i < 1000; ++i) log.finished(log.started("all-reduce", 2));
  log.finished(oldest);
  CHECK(log.current()->sequence == 1001);
  const auto last = log.started(std::string(100, 'x').c_str(), 3);
  CHECK(log.current()->sequence == last);
  CHECK(log.current()->name == std::string(47, 'x'));
}

TEST_CASE("the log begins again when the ranks have connected again", "[comm]") {
  CollectiveLog log;
  log.started("all-reduce", 1);
  log.restart();
  CHECK_FALSE(log.current());
  CHECK(log.started("broadcast", 2) == 1);
  CHECK(log.current()->name == "broadcast");
}
