#include "launcher/nodes/rendezvous_endpoint.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "launcher/nodes/free_port.hpp"
#include "launcher/nodes/master_address.hpp"

namespace mgpu::launcher {
namespace {

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

}  // namespace

RendezvousEndpoint::RendezvousEndpoint(boost::asio::io_context& io, const Options& options)
    : io_(io), rank0_store_(options.rank0_store) {
  const MasterAddress asked = master_address(options);
  address_ = asked.host;
  fixed_port_ = asked.port;
  reachable_ = !is_loopback(address_);
}

void RendezvousEndpoint::begin_attempt() {
  if (rank0_store_) {
    port_ = fixed_port_ != 0 ? fixed_port_ : free_port();
    return;
  }
  if (store_ && fixed_port_ != 0) {
    store_->reset();
    return;
  }
  using rendezvous::store::ServerOptions;
  using Reach = ServerOptions::Reach;
  ServerOptions wanted;
  wanted.reach = reachable_ ? Reach::network : Reach::loopback;
  wanted.port = fixed_port_;
  // All ranks run here, as our user.
  wanted.admit = [this](int connection, const sockaddr& peer) {
    return local_peers_.is_local(peer) && local_peers_.is_own_user(connection);
  };
  watch_.reset();
  store_ = std::make_unique<rendezvous::store::StoreServer>(std::move(wanted));
  port_ = store_->port();
  watch_ = std::make_unique<boost::asio::posix::stream_descriptor>(
      io_, ::fcntl(store_->fd(), F_DUPFD_CLOEXEC, 3));
  serve();
}

void RendezvousEndpoint::serve() {
  watch_->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, served = store_.get()](const boost::system::error_code& failed) {
                       if (failed || served != store_.get()) return;
                       store_->serve_ready();
                       serve();
                     });
}

}  // namespace mgpu::launcher
