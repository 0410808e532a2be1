#pragma once

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <utility>

namespace mgpu::launcher {

// A timer that does not run while the job is suspended.
class PausableTimer {
 public:
  explicit PausableTimer(boost::asio::io_context& io) : timer_(io) {}

  void start(std::chrono::milliseconds delay, std::function<void()> done) {
    done_ = std::move(done);
    paused_ = false;
    arm(delay);
  }
  void cancel() {
    timer_.cancel();
    done_ = nullptr;
  }
  void pause() {
    if (!done_ || std::exchange(paused_, true)) return;
    left_ = timer_.expiry() - std::chrono::steady_clock::now();
    timer_.cancel();
  }
  void resume() {
    if (done_ && std::exchange(paused_, false)) arm(std::max(left_, decltype(left_)::zero()));
  }

 private:
  void arm(std::chrono::steady_clock::duration delay) {
    timer_.expires_after(delay);
    timer_.async_wait([this](const boost::system::error_code& cancelled) {
      // A cancelled wait may already be queued as a success; then expiry is in the future.
      if (cancelled || !done_ || timer_.expiry() > std::chrono::steady_clock::now()) return;
      std::exchange(done_, nullptr)();
    });
  }

  boost::asio::steady_timer timer_;
  std::function<void()> done_;
  std::chrono::steady_clock::duration left_{};
  bool paused_ = false;
};

}  // namespace mgpu::launcher
