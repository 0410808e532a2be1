#include "runtime/train/background.hpp"

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/support/catch.hpp"

using mgpu::train::Background;

TEST_CASE("a value is computed by another thread and may be movable only", "[background]") {
  Background<std::unique_ptr<std::thread::id>> thread(
      [] { return std::make_unique<std::thread::id>(std::this_thread::get_id()); });
  CHECK(*thread.take() != std::this_thread::get_id());
}

TEST_CASE("an error in the background is thrown where the value is taken", "[background]") {
  Background<int> value([]() -> int { throw std::runtime_error("no such file"); });
  CHECK_THROWS_WITH(value.take(), "no such file");
}

TEST_CASE("work whose value nobody takes is not waited for", "[background]") {
  auto go = std::make_shared<std::promise<void>>();
  auto done = std::make_shared<std::promise<void>>();
  auto ended = done->get_future();
  {
    const Background<int> value([go, done] {
      go->get_future().wait();
      done->set_value();
      return 1;
    });
  }
  go->set_value();
  ended.wait();
}
