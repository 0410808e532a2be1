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
#include "rendezvous/store/request_policy.hpp"
#include "rendezvous/store/session.hpp"

namespace mgpu::rendezvous::store {

struct ServerOptions {
  enum class Reach { loopback, network, address };
  // 127.0.0.1; all addresses of the machine, IPv6 and IPv4; or only `address`.
  Reach reach = Reach::loopback;
  std::string address = {};  // numeric
  int port = 0;              // 0: any free one

  // How long a connection may take to send VALIDATE; a tenth of that while more than `crowd_size`
  // connections have not sent it.
  std::chrono::milliseconds validate_timeout{30'000};
  std::size_t crowd_size = 256;

  // Decides by its peer address whether a connection is served; empty: all are.
  std::function<bool(int connection, const sockaddr& peer)> admit = {};

  // Takes over connections whose first byte is not a store client's, with the bytes received so
  // far. admit() is not called for them. Empty: such connections are closed.
  std::function<void(UniqueFd, std::string_view)> other_protocol = {};

  RequestPolicy policy = {};
};

// The key/value store for c10d's TCPStore clients. It is passive: it has no thread and never
// blocks. The owner's event loop watches fd() and calls serve_ready() when it is readable. All
// calls must come from one thread.
class StoreServer {
 public:
  // Starts to listen. Throws an error with address and port if it cannot.
  explicit StoreServer(ServerOptions options);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();

  int port() const { return port_; }
  int fd() const { return epoll_.get(); }

  // Replaces ServerOptions::admit for future connections.
  void admit_only(std::function<bool(int, const sockaddr&)> admit) {
    options_.admit = std::move(admit);
  }

  // Sets a value, which the policy does not restrict.
  void set(std::string_view key, std::string_view value);

  // Handles what is ready, a bounded amount. fd() stays readable if there is more.
  void serve_ready();

  // Closes all connections, including those not accepted yet, and deletes all keys. The port stays
  // open.
  void reset();

  struct Statistics {
    std::size_t connections = 0;
    std::size_t unvalidated = 0;  // connections that have not sent VALIDATE
    std::size_t rejected = 0;     // violated the protocol, were too slow, too many or not admitted
    std::size_t keys = 0;
    std::size_t bytes = 0;   // of keys and values
    std::size_t unsent = 0;  // bytes of replies that clients have not read
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
  UniqueFd alarm_;    // a timer: to close slow connections, or to resume accepting
  UniqueFd reserve_;  // closed to accept (and reject) a connection when descriptors run out
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
