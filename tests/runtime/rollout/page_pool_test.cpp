#include "runtime/rollout/page_pool.hpp"

#include <set>
#include <stdexcept>

#include "tests/support/catch.hpp"

namespace {

using mgpu::rollout::PagePool;

TEST_CASE("a pool gives every page but the first, each to one", "[page_pool]") {
  PagePool pool(5);
  CHECK(pool.free() == 4);
  std::set<std::int32_t> taken;
  while (pool.free() > 0) taken.insert(pool.take());
  CHECK(taken == std::set<std::int32_t>{1, 2, 3, 4});
  CHECK_THROWS_AS(pool.take(), std::logic_error);
}

TEST_CASE("a page is free again when all who hold it have given it back", "[page_pool]") {
  PagePool pool(3);
  const auto page = pool.take();
  pool.share(page);
  pool.share(page);
  pool.give(page);
  pool.give(page);
  CHECK(pool.free() == 1);
  pool.give(page);
  CHECK(pool.free() == 2);

  SECTION("and then has one holder again") {
    const std::set<std::int32_t> both{pool.take(), pool.take()};
    CHECK(both == std::set<std::int32_t>{1, 2});
    pool.give(page);
    CHECK(pool.free() == 1);
    CHECK(pool.take() == page);
  }
}

TEST_CASE("a page that nobody holds can neither be shared nor given back", "[page_pool]") {
  PagePool pool(3);
  const auto page = pool.take();
  pool.give(page);
  CHECK_THROWS_AS(pool.share(page), std::logic_error);
  CHECK_THROWS_AS(pool.give(page), std::logic_error);
  CHECK_THROWS_AS(pool.give(0), std::logic_error);
  CHECK(pool.free() == 2);
}

TEST_CASE("a pool with nobody's page alone has none to give", "[page_pool]") {
  PagePool pool(1);
  CHECK(pool.free() == 0);
  CHECK_THROWS_AS(pool.take(), std::logic_error);
}

}  // namespace
