#include "rendezvous/store/background_server.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

namespace mgpu::rendezvous::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookMs = 50;  // for the last client, while it ends

}  // namespace

BackgroundServer::BackgroundServer(ServerOptions options)
    : server_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC)) {
  if (!wake_) throw std::system_error(errno, std::generic_category(), "eventfd");
  // A thread inherits the mask of its creator: signals belong to the other threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BackgroundServer::~BackgroundServer() {
  if (std::uncaught_exceptions() > 0) patience_ = std::chrono::seconds(0);
  thread_.request_stop();
  const std::uint64_t one = 1;
  // It cannot block or fail: nobody else has written.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void BackgroundServer::run(const std::stop_token& stop) {
  std::optional<Clock::time_point> end;
  for (;;) {
    if (stop.stop_requested()) {
      if (!end) end = Clock::now() + patience_;
      if (server_.statistics().connections == 0 || Clock::now() > *end) return;
    }
    pollfd watched[] = {{server_.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(watched, end ? 1 : 2, end ? kLookMs : -1);
    if (watched[0].revents != 0) server_.serve_ready();
  }
}

}  // namespace mgpu::rendezvous::store
