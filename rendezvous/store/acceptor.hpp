#pragma once

#include <sys/socket.h>

#include <chrono>

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/store/listener.hpp"

namespace mgpu::rendezvous::store {

// Accepts connections, also when the process has no descriptor left: it holds one in reserve, so
// that a connection can at least be rejected. One that is never accepted would wake the event loop
// forever. Passive: its owner waits for the epoll and calls accept().
class Acceptor {
 public:
  // Watches the listener with an epoll, which must stay open longer than this object lives. Throws
  // if that is not possible.
  Acceptor(Listener listener, int epoll);

  int fd() const { return listener_.socket.get(); }
  int port() const { return listener_.port; }

  struct Accepted {
    UniqueFd socket = {};  // none: `error` is the reason
    sockaddr_storage peer = {};
    bool took_reserve = false;  // close this socket or another one, then call restore_reserve()
    int error = 0;

    bool more() const;     // another connection may be waiting
    bool starved() const;  // even the reserve did not help: pause() for kPause
  };
  // Accepts one waiting connection.
  Accepted accept();
  void restore_reserve();

  static constexpr std::chrono::milliseconds kPause{100};
  void pause();
  void resume();  // also when it has not paused

  // Closes all connections that wait to be accepted.
  void close_waiting();

 private:
  Listener listener_;
  int epoll_;
  UniqueFd reserve_;
};

}  // namespace mgpu::rendezvous::store
