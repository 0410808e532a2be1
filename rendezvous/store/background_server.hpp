#pragma once

#include <chrono>
#include <stop_token>
#include <thread>

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/store/server.hpp"

namespace mgpu::rendezvous::store {

// A store with a thread of its own, for jobs whose launcher serves none.
class BackgroundServer {
 public:
  // Listens before it returns. Throws as StoreServer does.
  explicit BackgroundServer(ServerOptions options);
  BackgroundServer(const BackgroundServer&) = delete;
  BackgroundServer& operator=(const BackgroundServer&) = delete;
  // Serves until the last client has closed its connection, but at most some seconds. While an
  // exception is on its way, which ends the job, it stops at once.
  ~BackgroundServer();

  int port() const { return server_.port(); }

 private:
  void run(const std::stop_token& stop);

  StoreServer server_;
  UniqueFd wake_;  // an eventfd
  // How long the end waits for the last client. Set before the stop is requested.
  std::chrono::seconds patience_{10};
  std::jthread thread_;
};

}  // namespace mgpu::rendezvous::store
