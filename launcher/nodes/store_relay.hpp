#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/authenticated_channel.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/store/local_peers.hpp"
#include "rendezvous/store/relay_records.hpp"

namespace mgpu::launcher {

// The agent's end of the store: ranks of this node connect to a port on its loopback interface, and
// their bytes travel over one authenticated connection to the leader. For one round. Passive like
// the store: the owner's event loop watches fd() and calls serve_ready() when it is readable.
class StoreRelay {
 public:
  struct Settings {
    std::string job;
    rendezvous::Credentials credentials;
    sockaddr_storage leader{};
    socklen_t leader_size = 0;
    std::string leader_name;  // for messages
    int round = 0;
  };

  // Starts to listen and to connect. `failed` is called once if the connection to the leader is
  // lost: then the ranks lose theirs. Throws if it cannot listen.
  StoreRelay(Settings settings, std::function<void(const std::string& why)> failed);
  StoreRelay(const StoreRelay&) = delete;
  StoreRelay& operator=(const StoreRelay&) = delete;
  ~StoreRelay();

  int port() const { return port_; }
  int fd() const { return epoll_.get(); }
  void serve_ready();

 private:
  struct Client;

  void connect();
  void accept_all();
  void serve_link(std::uint32_t events);
  void read_link();
  void on_link_bytes(std::string_view bytes);
  void on_record(const rendezvous::store::RelayRecord& record);
  void deliver(Client& client, std::string_view bytes);
  void serve_client(Client& client, std::uint32_t events);
  void read_client(Client& client);
  void write_client(Client& client);
  void watch_client(Client& client);
  void give_credit(Client& client, std::size_t bytes);
  void drop(Client& client);
  void flush();
  void write_link();
  void fail(const std::string& why);

  Settings settings_;
  std::function<void(const std::string&)> failed_;
  rendezvous::UniqueFd epoll_, listener_, reserve_, link_;
  int port_ = 0;
  rendezvous::store::LocalPeers local_peers_;
  rendezvous::AgentChannel channel_;
  bool connected_ = false, open_ = false, broken_ = false;
  bool link_watches_writable_ = true;
  std::unordered_map<rendezvous::store::RelayedClient, std::unique_ptr<Client>> clients_;
  rendezvous::store::RelayedClient next_client_ = 0;
  std::string records_;  // for the leader, not yet in the channel
  std::vector<char> buffer_;
};

}  // namespace mgpu::launcher
