#include "rendezvous/base/background_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace mgpu::rendezvous {

void run_in_background(std::function<void()> work) {
  // A thread inherits the mask of its creator.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error& error) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw std::runtime_error("cannot start a thread: " + error.code().message());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace mgpu::rendezvous
