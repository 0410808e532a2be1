#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/store/memory.hpp"
#include "rendezvous/store/session.hpp"

namespace mgpu::rendezvous::store {

struct ServerOptions {
  enum class Reach { loopback, network };
  Reach reach = Reach::loopback;  // 127.0.0.1, or every address of the machine, IPv6 and IPv4
  int port = 0;                   // 0: any that is free

  // How long a connection may take to say VALIDATE; a tenth of it once more than `crowd` have not.
  std::chrono::milliseconds validate_timeout{30'000};
  std::size_t crowd_size = 256;

  // Asked about the peer of each connection before a byte of it is served; empty: all may come.
  std::function<bool(const sockaddr&)> admit = {};

  // Takes connections whose first byte is no store client's, with the bytes that came; empty:
  // they break the rules. They need not be admitted.
  std::function<void(UniqueFd, std::string_view)> other_protocol = {};
};

// The key/value store that c10d's TCPStore clients speak to. It is passive: it has no thread and
// never blocks. The owner's loop watches fd() and calls poll() when that is readable; all calls
// come from that one thread.
class StoreServer {
 public:
  // Listens from here on, or throws with the address and port that it cannot have.
  explicit StoreServer(ServerOptions options);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();

  int port() const { return port_; }
  int fd() const { return epoll_.get(); }

  // Who may come from now on; see ServerOptions.
  void admit_only(std::function<bool(const sockaddr&)> admit) { options_.admit = std::move(admit); }

  // Does the work that is ready, a bounded amount of it. fd() stays readable if there is more.
  void poll();

  // Closes every connection, those that nobody has accepted yet too, and forgets all keys.
  // The port stays ours.
  void reset();

  struct Statistics {
    std::size_t connections = 0;
    std::size_t unvalidated = 0;  // of them, those that have not said VALIDATE
    std::size_t rejected = 0;     // broke the rules, were too slow, too many or not admitted
    std::size_t keys = 0;
    std::size_t bytes = 0;   // of keys and values
    std::size_t unsent = 0;  // bytes of replies that clients have not taken
  };
  Statistics statistics() const;

 private:
  struct Connection;
  struct Unvalidated {
    int fd = -1;
    std::chrono::steady_clock::time_point since;
  };

  void serve(Connection& connection);
  void identify(Connection& connection, std::string_view bytes);
  void process(Connection& connection, std::string_view bytes);
  bool admits(int fd) const;
  void hand_over(Connection& connection, std::string_view bytes);
  void send(Connection& connection, std::string_view bytes);
  void flush(Connection& connection);
  void watch(Connection& connection);
  void mark_for_close(Connection& connection);
  void reject(Connection& connection);
  void close_marked();

  bool accept_one();
  bool accept_with_reserve();
  void accept_peer(UniqueFd socket, const sockaddr_storage& peer);
  void adopt(UniqueFd socket);
  std::chrono::milliseconds time_left() const;
  void set_alarm(std::chrono::milliseconds delay);
  void on_alarm();

  ServerOptions options_;
  UniqueFd epoll_;
  UniqueFd listener_;
  UniqueFd alarm_;    // a timer: newcomers to look at, or accepting to take up again
  UniqueFd reserve_;  // given up to be able to accept, and so to refuse, when descriptors run out
  int port_ = 0;
  bool alarm_set_ = false;

  Memory memory_;
  SessionOutput output_;
  std::vector<char> buffer_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by descriptor
  std::vector<int> closing_;
  std::list<Unvalidated> unvalidated_;  // the oldest first
  std::size_t open_ = 0;
  std::size_t rejected_ = 0;
};

}  // namespace mgpu::rendezvous::store
