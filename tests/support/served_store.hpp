#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/store/server.hpp"

namespace mgpu::tests {

// A store served by its own thread, for tests with blocking clients.
class ServedStore {
 public:
  explicit ServedStore(rendezvous::store::ServerOptions options = {})
      : server_(std::move(options)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this](std::stop_token stop) { serve(stop); }) {}
  ~ServedStore() {
    thread_.request_stop();
    ring();
  }

  int port() const { return server_.port(); }

  // Calls a function with the server in the thread of the server.
  template <class Call>
  auto in_loop(Call call) {
    std::packaged_task<decltype(call(server_))()> task([&] { return call(server_); });
    {
      const std::scoped_lock lock(mutex_);
      calls_.push_back([&task] { task(); });
    }
    ring();
    return task.get_future().get();
  }

  rendezvous::store::StoreServer::Statistics statistics() {
    return in_loop([](auto& server) { return server.statistics(); });
  }
  void reset() {
    in_loop([](auto& server) { server.reset(); });
  }

 private:
  void ring() { ::eventfd_write(wake_.get(), 1); }

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd wanted[] = {{server_.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      ::poll(wanted, 2, -1);
      eventfd_t rings;
      ::eventfd_read(wake_.get(), &rings);
      server_.serve_ready();
      std::vector<std::function<void()>> calls;
      {
        const std::scoped_lock lock(mutex_);
        calls.swap(calls_);
      }
      for (const auto& call : calls) call();
    }
  }

  rendezvous::store::StoreServer server_;
  rendezvous::UniqueFd wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
  std::jthread thread_;
};

}  // namespace mgpu::tests
