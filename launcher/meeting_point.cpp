#include "launcher/meeting_point.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <stdexcept>

#include "launcher/meeting_address.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

bool can_bind(int port) {
  rendezvous::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(static_cast<std::uint16_t>(port));
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0;
}

// A port that is free now and that no outgoing connection will take before rank 0 binds it: from
// below the range that the kernel hands out itself.
int free_port() {
  constexpr int kLowest = 20000, kHighest = 32000, kTries = 200;
  std::minstd_rand random(std::random_device{}());
  std::uniform_int_distribution<int> pick(kLowest, kHighest);
  for (int i = 0; i < kTries; ++i)
    if (const int port = pick(random); can_bind(port)) return port;
  throw std::runtime_error(
      "cannot find a free port between 20000 and 32000; name one with "
      "--master-port");
}

}  // namespace

MeetingPoint::MeetingPoint(boost::asio::io_context& io, const Options& options)
    : io_(io), rank0_store_(options.rank0_store) {
  const MeetingAddress asked = meeting_address(options);
  address_ = asked.host;
  fixed_port_ = asked.port;
  reachable_ = !is_loopback(address_);
}

void MeetingPoint::begin_attempt() {
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
  watch_.reset();
  store_ = std::make_unique<rendezvous::store::StoreServer>(std::move(wanted));
  port_ = store_->port();
  watch_ = std::make_unique<boost::asio::posix::stream_descriptor>(
      io_, ::fcntl(store_->fd(), F_DUPFD_CLOEXEC, 3));
  serve();
}

void MeetingPoint::serve() {
  watch_->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, served = store_.get()](const boost::system::error_code& failed) {
                       if (failed || served != store_.get()) return;
                       store_->poll();
                       serve();
                     });
}

}  // namespace mgpu::launcher
