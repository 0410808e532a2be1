#pragma once

#include <csignal>

#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {

// A signal, or none. A constant such as SIGTERM converts to it. A number that is only known at run
// time, which could be an exit status, does not: numbered() makes a signal of it.
class Signal {
 public:
  constexpr Signal() = default;  // none
  // NOLINTNEXTLINE(google-explicit-constructor): tests and calls name signals, not their type
  consteval Signal(int constant) : number_(constant) {
    if (constant < 1 || constant >= NSIG) throw "not the number of a signal";
  }
  // From the kernel, an option or a message; 0: none. Messages may contain any number.
  static constexpr Signal numbered(int number) {
    Signal signal;
    signal.number_ = number;
    return signal;
  }

  // 0: none.
  constexpr int number() const { return number_; }
  constexpr explicit operator bool() const { return number_ != 0; }
  // The exit status of a process that it ended, as shells report it.
  constexpr int shell_status() const { return exit_status::of_signal(number_); }
  friend constexpr bool operator==(Signal, Signal) = default;

 private:
  int number_ = 0;
};

}  // namespace mgpu::launcher
