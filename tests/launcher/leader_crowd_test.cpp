#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "launcher/nodes/leader.hpp"
#include "rendezvous/authenticated_channel.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;

namespace {

const Credentials kToken{.secret = "a secret of this test, 32 bytes or more"};

// The channel of an agent over a socket; it reads only when the test calls it.
struct Guest {
  UniqueFd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  AgentChannel talk{kToken, "job", "agent", "the leader"};
  bool closed = false;
  bool begun = false;

  explicit Guest(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    say();
  }

  void say() {
    auto& bytes = talk.output();
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    bytes.clear();
  }

  void listen() {
    std::array<char, 4096> bytes;
    const auto got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) closed = true;
    if (got <= 0) return;
    std::vector<AuthenticatedChannel::Heard> heard;
    talk.receive({bytes.data(), static_cast<std::size_t>(got)}, heard);
    for (const auto& item : heard) {
      const auto* message = std::get_if<Message>(&item);
      if (message && std::holds_alternative<Welcome>(*message)) talk.send(Join{.host = "here"});
      if (message && std::holds_alternative<Begin>(*message)) begun = true;
    }
    say();
  }
};

bool room_for(rlim_t files) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur >= files;
}

}  // namespace

// With more than 1024 unauthenticated connections the oldest was closed: of 10,000 agents that
// connected at once none succeeded, since they reconnected and evicted each other.
TEST_CASE("agents that all connect at once do not evict each other", "[leader]") {
  constexpr int kNodes = 1500;
  if (!room_for(2 * kNodes + 100)) {
    WARN("too few open files are allowed here");
    return;
  }
  boost::asio::io_context io;
  Leader leader(
      io,
      {.job = "job",
       .target = "target",
       .host = "here",
       .credentials = kToken,
       .rules = {.min_nodes = kNodes, .max_nodes = kNodes}},
      {.announce = [](std::string_view) {}, .over = [](int) {}, .changed = [](auto&&...) {}});
  const auto limit = std::chrono::steady_clock::now() + 60s;
  std::vector<std::unique_ptr<Guest>> guests;
  while (guests.size() < kNodes) {  // all begin their handshake before any of them continues
    guests.push_back(std::make_unique<Guest>(leader.port()));
    io.poll();
  }
  for (std::size_t begun = 0; begun < kNodes; begun = 0) {
    io.poll();
    for (auto& guest : guests) {
      guest->listen();
      REQUIRE_FALSE(guest->closed);
      begun += guest->begun;
    }
    if (begun == kNodes) break;
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
}
