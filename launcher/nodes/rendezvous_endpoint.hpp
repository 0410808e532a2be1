#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <memory>
#include <string>

#include "launcher/options/options.hpp"
#include "rendezvous/store/local_peers.hpp"
#include "rendezvous/store/server.hpp"

namespace mgpu::launcher {

// Where the ranks of one attempt find each other: the launcher's store, or with --rank0-store a
// port that rank 0 binds itself. Each attempt starts with an empty store: on a new port, or on a
// fixed port after all old connections are closed.
class RendezvousEndpoint {
 public:
  RendezvousEndpoint(boost::asio::io_context& io, const Options& options);

  // Prepares the next attempt. Throws if it cannot listen on the port.
  void begin_attempt();
  const std::string& address() const { return address_; }
  int port() const { return port_; }

 private:
  void serve();

  boost::asio::io_context& io_;
  bool rank0_store_;
  bool reachable_ = false;  // by other machines
  int fixed_port_ = 0;      // 0: chosen automatically
  std::string address_;
  int port_ = 0;
  rendezvous::store::LocalPeers local_peers_;
  std::unique_ptr<rendezvous::store::StoreServer> store_;
  std::unique_ptr<boost::asio::posix::stream_descriptor> watch_;
};

}  // namespace mgpu::launcher
