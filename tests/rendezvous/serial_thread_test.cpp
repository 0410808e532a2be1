#include "rendezvous/base/serial_thread.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

using mgpu::rendezvous::SerialThread;
using namespace std::chrono_literals;

TEST_CASE("calls are made in order, in one other thread", "[serial_thread]") {
  const auto made = std::make_shared<std::vector<int>>();
  const auto threads = std::make_shared<std::vector<std::thread::id>>();
  SerialThread thread;
  CHECK(thread.idle());
  for (int i = 0; i < 100; ++i)
    thread.run([=] {
      made->push_back(i);
      threads->push_back(std::this_thread::get_id());
    });
  REQUIRE(thread.wait_until_idle(60s));
  for (int i = 0; i < 100; ++i) CHECK(made->at(static_cast<size_t>(i)) == i);
  for (const auto& id : *threads) {
    CHECK(id == threads->front());
    CHECK(id != std::this_thread::get_id());
  }
}

TEST_CASE("a call may give further calls", "[serial_thread]") {
  const auto made = std::make_shared<std::atomic<int>>(0);
  const auto thread = std::make_shared<SerialThread>();
  thread->run([made, weak = std::weak_ptr(thread)] {
    if (const auto still = weak.lock()) still->run([made] { ++*made; });
    ++*made;
  });
  CHECK(thread->wait_until_idle(60s));
  CHECK(*made == 2);
}

TEST_CASE("a call that does not return holds up neither its giver nor the end", "[serial_thread]") {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto began = std::make_shared<std::promise<void>>();
  const auto finished = std::make_shared<std::promise<void>>();
  const auto later = std::make_shared<std::atomic<bool>>(false);
  {
    SerialThread thread;
    thread.run([gate, began, finished] {
      began->set_value();
      gate->get_future().wait();
      finished->set_value();
    });
    thread.run([later] { *later = true; });
    CHECK(began->get_future().wait_for(60s) == std::future_status::ready);
    CHECK_FALSE(thread.idle());
    CHECK_FALSE(thread.wait_until_idle(1ms));
  }
  gate->set_value();
  CHECK(finished->get_future().wait_for(60s) == std::future_status::ready);
  CHECK_FALSE(*later);  // it was dropped
}
