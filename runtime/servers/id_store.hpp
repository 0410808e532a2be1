#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/store/local_peers.hpp"
#include "rendezvous/store/server.hpp"
#include "runtime/http/client.hpp"

// Serves the id of an NCCL group to the workers of a vLLM server.
namespace mgpu::servers {

using NcclId = std::array<char, 128>;

// The key of the id in the store, and its value: a pickle of the type that vLLM's workers load.
inline constexpr const char* kIdKey = "broadcast_from/0/0";
std::string pickled_id(const NcclId& id);

// Who may connect to the store.
struct WorkerPeers {
  std::set<std::string> addresses;  // numeric, as numeric_address() returns them
  std::vector<uid_t> users;         // of processes on this host
};

// The peers that may be workers of a server: all addresses of its host. If the server runs on this
// host, also the loopback addresses and `own_address`, but only processes of our user, of root and
// of the user who listens at the server's port. Throws if the host cannot be resolved. `proc` is
// /proc.
WorkerPeers worker_peers(const http::Address& server, const std::string& own_address,
                         const std::string& proc = "/proc");

// A key/value store that contains only the id, for clients of c10d's TCPStore. Its protocol has no
// authentication, and the workers load what they read with pickle, which executes any code in it.
// Therefore the store listens on one address, only `peers` may connect, they can change nothing,
// and the port is open only while the group forms. For one thread.
class IdStore {
 public:
  struct Settings {
    std::string address;  // of this host, numeric
    int port = 0;         // 0: any free one
    std::int64_t workers = 1;
    WorkerPeers peers;
  };

  // Listens from now on. Throws if it cannot.
  IdStore(Settings settings, const NcclId& id);
  IdStore(const IdStore&) = delete;
  IdStore& operator=(const IdStore&) = delete;

  int port() const { return port_; }

  // Serves the workers until `connected` returns true; calls it about every millisecond. Throws
  // what it throws, and an error after `limit`. However it ends, the port and all connections are
  // then closed. Call it once.
  void serve_until(const std::function<bool()>& connected, std::chrono::milliseconds limit);

 private:
  bool admits(int connection, const sockaddr& peer);
  void serve_clients(const std::function<bool()>& connected, std::chrono::milliseconds limit);
  std::string rejection_note() const;

  Settings settings_;
  rendezvous::store::LocalPeers local_peers_;
  std::set<std::string> rejected_;  // who was not admitted, for the error message
  std::unique_ptr<rendezvous::store::StoreServer> store_;  // null when the port is closed
  int port_ = 0;
};

}  // namespace mgpu::servers
