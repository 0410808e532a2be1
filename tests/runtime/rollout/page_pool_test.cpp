#include "runtime/rollout/page_pool.hpp"

#include <set>
#include <stdexcept>

#include "tests/support/catch.hpp"

namespace {

using mgpu::rollout::PagePool;

TEST_CASE("a pool allocates every page except the first, each once", "[page_pool]") {
  PagePool pool(5);
  CHECK(pool.free() == 4);
  std::set<std::int32_t> taken;
  while (pool.free() > 0) taken.insert(pool.allocate());
  CHECK(taken == std::set<std::int32_t>{1, 2, 3, 4});
  CHECK_THROWS_AS(pool.allocate(), std::logic_error);
}

TEST_CASE("a page is free after its last reference is released", "[page_pool]") {
  PagePool pool(3);
  const auto page = pool.allocate();
  pool.share(page);
  pool.share(page);
  pool.release(page);
  pool.release(page);
  CHECK(pool.free() == 1);
  pool.release(page);
  CHECK(pool.free() == 2);

  SECTION("and then has one reference again") {
    const std::set<std::int32_t> both{pool.allocate(), pool.allocate()};
    CHECK(both == std::set<std::int32_t>{1, 2});
    pool.release(page);
    CHECK(pool.free() == 1);
    CHECK(pool.allocate() == page);
  }
}

TEST_CASE("a free page can neither be shared nor released", "[page_pool]") {
  PagePool pool(3);
  const auto page = pool.allocate();
  pool.release(page);
  CHECK_THROWS_AS(pool.share(page), std::logic_error);
  CHECK_THROWS_AS(pool.release(page), std::logic_error);
  CHECK_THROWS_AS(pool.release(0), std::logic_error);
  CHECK(pool.free() == 2);
}

TEST_CASE("a pool with only the reserved page has none to allocate", "[page_pool]") {
  PagePool pool(1);
  CHECK(pool.free() == 0);
  CHECK_THROWS_AS(pool.allocate(), std::logic_error);
}

}  // namespace
