#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/store/acceptor.hpp"
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

  // What all keys, values, waits and unfinished requests may take. A client whose request needs
  // more is closed.
  std::size_t max_bytes = std::size_t{1} << 30;
  // When there are more connections, or no descriptor is left, those that have not sent VALIDATE
  // are closed first, and then, in favour of an admitted client, those without a request for
  // `idle_timeout` that wait for nothing. If there is none, the new connection is closed.
  std::size_t max_connections = 65'536;
  std::chrono::milliseconds idle_timeout{60'000};

  // Decides by its peer address whether a connection is served; empty: all are.
  std::function<bool(int connection, const sockaddr& peer)> admit = {};

  // Takes over connections whose first byte is not a store client's, with the bytes received so
  // far. admit() is not called for them. Empty: such connections are closed.
  std::function<void(UniqueFd, std::string_view)> other_protocol = {};

  RequestPolicy policy = {};
};

// Where the store writes for clients on other nodes, whose bytes their agent carries.
class RelayOutput {
 public:
  virtual ~RelayOutput() = default;
  virtual void replies(ClientId client, std::string_view bytes) = 0;
  // Bytes of receive_relayed() that do not count any more.
  virtual void consumed(ClientId client, std::size_t bytes) = 0;
  // The store has closed the client: its number is not valid any more.
  virtual void closed(ClientId client) = 0;
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

  int port() const { return acceptor_.port(); }
  int fd() const { return epoll_.get(); }

  // Replaces ServerOptions::admit for future connections.
  void admit_only(std::function<bool(int, const sockaddr&)> admit) {
    options_.admit = std::move(admit);
  }

  // Sets a value, which the policy does not restrict.
  void set(std::string_view key, std::string_view value);

  // Handles what is ready, a bounded amount. fd() stays readable if there is more.
  void serve_ready();

  // Clients on other nodes. The number stays valid until closed() was called for it. Nullopt: there
  // are too many clients.
  std::optional<ClientId> open_relayed(RelayOutput& output);
  // At most kRelayWindow bytes may be under way that consumed() has not reported.
  void receive_relayed(ClientId client, std::string_view bytes);
  // The client takes that many more bytes of replies, in addition to the first kRelayWindow.
  void allow_relayed(ClientId client, std::size_t bytes);
  void close_relayed(ClientId client);

  // Closes all connections, including those not accepted yet, and deletes all keys. The port stays
  // open.
  void reset();

  struct Statistics {
    std::size_t connections = 0;
    std::size_t unvalidated = 0;  // connections that have not sent VALIDATE
    std::size_t rejected = 0;     // violated the protocol, were too slow, too many or not admitted
    std::size_t keys = 0;
    std::size_t relayed = 0;  // of the connections, those of clients on other nodes
    std::size_t bytes = 0;    // of keys and values
    std::size_t unsent = 0;   // bytes of replies that clients have not read
  };
  Statistics statistics() const;

 private:
  struct Connection;
  struct Unvalidated {
    ClientId client = -1;
    std::chrono::steady_clock::time_point since;
  };

  Connection* find(ClientId client) const;
  void serve(Connection& connection);
  void identify(Connection& connection, std::string_view bytes);
  void process(Connection& connection, std::string_view bytes);
  bool admits(int fd) const;
  void hand_over(Connection& connection, std::string_view bytes);
  void serve_relayed(Connection& connection);
  void count_buffers(Connection& connection);
  void send(Connection& connection, std::string_view bytes);
  std::optional<std::size_t> write(Connection& connection, std::string_view bytes);
  void flush(Connection& connection);
  void watch(Connection& connection);
  void mark_for_close(Connection& connection);
  void reject(Connection& connection);
  void close_marked();

  bool accept_one();
  void accept_peer(UniqueFd socket, const sockaddr_storage& peer);
  void adopt(UniqueFd socket);
  void add(Connection& connection);
  bool admits_at_once(const sockaddr_storage& peer, int socket) const;
  bool make_room(bool for_client);
  std::chrono::milliseconds time_left() const;
  void set_alarm(std::chrono::milliseconds delay);
  void on_alarm();

  ServerOptions options_;
  UniqueFd epoll_;
  Acceptor acceptor_;
  UniqueFd alarm_;  // a timer: to close slow connections, or to resume accepting
  bool alarm_set_ = false;

  Memory memory_;
  SessionOutput output_;
  std::vector<char> buffer_;
  std::vector<std::unique_ptr<Connection>> connections_;               // by descriptor
  std::unordered_map<ClientId, std::unique_ptr<Connection>> relayed_;  // their numbers are negative
  ClientId next_relayed_ = -2;
  std::vector<ClientId> closing_;
  std::list<Unvalidated> unvalidated_;  // the oldest first
  std::size_t open_ = 0;
  std::size_t buffered_ = 0;                   // bytes of unfinished requests and unsent replies
  std::chrono::steady_clock::time_point now_;  // when the current work began
  std::chrono::steady_clock::time_point next_idle_{};  // no connection is idle before
  std::size_t rejected_ = 0;
};

}  // namespace mgpu::rendezvous::store
