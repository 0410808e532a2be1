#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <functional>
#include <vector>

#include "launcher/lifecycle/signal.hpp"
#include "launcher/ranks/inherited.hpp"

namespace mgpu::launcher {

// Waits for signals to this process and decides what each one means. A signal that was ignored when
// the process started stays ignored, except SIGCHLD. All other signals that are watched reach the
// process only through this class, from its constructor to its destructor.
class SignalWatch {
 public:
  struct Callbacks {
    std::function<void()> child_changed;  // SIGCHLD
    std::function<void(Signal)> stop_requested;
    std::function<void()> kill_requested;  // by a second SIGINT
    // SIGTSTP: this process is suspended when `ready` is called.
    std::function<void(const std::function<void()>& ready)> suspending;
    std::function<void()> resumed;
    std::function<void(Signal)> passed_on;  // to the ranks: SIGUSR1, SIGUSR2, SIGWINCH
  };

  SignalWatch(boost::asio::io_context& io, const std::vector<int>& stop_signals,
              const Inherited& inherited, Callbacks callbacks);
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  void await_signal();
  void on_signal(Signal signal);
  bool is_stop(Signal signal) const;

  boost::asio::signal_set signals_;
  std::vector<Signal> stop_signals_;
  Callbacks callbacks_;
  int interrupts_ = 0;
  bool suspending_ = false;
};

}  // namespace mgpu::launcher
