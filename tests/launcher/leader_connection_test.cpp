#include "launcher/nodes/leader_connection.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;

namespace {

const Credentials kSecret{.secret = "a secret of this test, 32 bytes or more"};
const std::string kJob = "job";

// An agent's connection to a leader that sends and receives only when the test does.
struct SlowLeader {
  boost::asio::io_context io{1};
  tcp::acceptor acceptor{io, {boost::asio::ip::address_v4::loopback(), 0}};
  tcp::socket socket{io};
  LeaderChannel channel{kSecret, kJob};
  std::vector<AuthenticatedChannel::Received> received;
  std::vector<Nanoseconds> leases;
  std::optional<std::string> lost;
  int rounds = 0, pauses = 0;
  LeaderConnection agent{io,
                         {.job = kJob,
                          .host = "127.0.0.1",
                          .port = acceptor.local_endpoint().port(),
                          .credentials = kSecret},
                         {.addresses_resolved = [](auto&) {},
                          .make_join = [] { return Join{.host = "here"}; },
                          .round_started = [this](auto&&...) { ++rounds; },
                          .stop_requested = [](const Stop&) {},
                          .paused = [this](const Pause&) { ++pauses; },
                          .leader_lost = [this](const std::string& why) { lost = why; },
                          .job_ended = [](auto&&...) {},
                          .lease_extended = [this](Nanoseconds until) { leases.push_back(until); },
                          .connected = [](int) {},
                          .print_note = [](std::string_view) {}}};

  SlowLeader() {
    agent.start();
    run_until([this, accepted = false]() mutable {
      if (accepted) return true;
      boost::system::error_code none_yet;
      acceptor.non_blocking(true);
      acceptor.accept(socket, none_yet);
      accepted = !none_yet;
      return accepted;
    });
    socket.non_blocking(true);
    run_until([this] { return exchange(), channel.is_open(); });
  }

  template <class Condition>
  void run_until(Condition met) {
    const auto limit = std::chrono::steady_clock::now() + 20s;
    while (!met()) {
      REQUIRE(std::chrono::steady_clock::now() < limit);
      io.run_one_for(1ms);
    }
  }

  // Sends what there is to send, and receives what has arrived.
  void exchange() {
    boost::system::error_code failed;
    auto& unsent = channel.output();
    unsent.erase(0, socket.write_some(boost::asio::buffer(unsent), failed));
    std::array<char, 4096> bytes;
    const auto got = socket.read_some(boost::asio::buffer(bytes), failed);
    if (!failed) channel.receive({bytes.data(), got}, received);
  }

  void welcome(Nanoseconds keep_alive) {
    channel.send(Welcome{.session = 1,
                         .heartbeat_interval = (keep_alive / 20).count(),
                         .keep_alive = keep_alive.count()});
    run_until([this] { return exchange(), agent.joined(); });
  }
};

}  // namespace

TEST_CASE("a lease begins when the leader can have received the proof, not with its welcome",
          "[connection]") {
  SlowLeader leader;
  const auto proof_received = boot_now();
  leader.welcome(5s);
  REQUIRE_FALSE(leader.leases.empty());
  CHECK(leader.leases.front() <= proof_received + 5s);
}

TEST_CASE("an agent sends a heartbeat before its join request", "[connection]") {
  SlowLeader leader;
  leader.welcome(5s);
  leader.run_until([&] { return leader.exchange(), leader.received.size() >= 2; });
  CHECK(std::holds_alternative<mgpu::rendezvous::Heartbeat>(leader.received[0]));
  REQUIRE(std::holds_alternative<Message>(leader.received[1]));
  CHECK(std::holds_alternative<Join>(std::get<Message>(leader.received[1])));
}

TEST_CASE("a process is suspended only after the leader has answered", "[connection]") {
  SlowLeader leader;
  leader.welcome(5s);
  bool ready = false;
  REQUIRE(leader.agent.suspend([&] { ready = true; }));
  const auto asked = [&] {
    leader.exchange();
    return std::ranges::any_of(leader.received, [](const auto& item) {
      const auto* message = std::get_if<Message>(&item);
      const auto* request = message ? std::get_if<Suspension>(message) : nullptr;
      return request && request->suspended;
    });
  };
  leader.run_until(asked);
  CHECK_FALSE(ready);
  leader.channel.send(Pause{.ranks = true});
  leader.run_until([&] { return leader.exchange(), ready; });
  CHECK(leader.pauses == 1);
}

TEST_CASE("a silent leader that is suspended is not lost", "[connection]") {
  SlowLeader leader;
  leader.welcome(20ms);
  leader.channel.send(Pause{.leader = true});
  leader.run_until([&] { return leader.exchange(), leader.pauses == 1 || leader.lost; });
  if (leader.lost) return;  // this machine was too slow
  const auto later = boot_now() + 100ms;
  leader.run_until([&] { return boot_now() > later; });
  CHECK_FALSE(leader.lost);

  SECTION("so a process that is suspended too does not wait for its answer") {
    bool ready = false;
    REQUIRE(leader.agent.suspend([&] { ready = true; }));
    leader.run_until([&] { return ready; });
  }
  SECTION("but one that stays silent after that is") {
    leader.channel.send(Pause{});
    leader.run_until([&] { return leader.exchange(), leader.lost.has_value(); });
  }
}

TEST_CASE("a welcome that arrives after the end of the lease does not end the connection",
          "[connection]") {
  SlowLeader leader;
  const auto lease_over = boot_now() + 20ms;
  leader.run_until([&] { return boot_now() > lease_over; });
  leader.welcome(20ms);
  CHECK(leader.leases.front() < boot_now());
  CHECK_FALSE(leader.lost);

  SECTION("but no round begins before a heartbeat is confirmed") {
    leader.channel.send(Begin{});
    leader.run_until([&] { return leader.exchange(), leader.lost.has_value(); });
    CHECK(leader.rounds == 0);
  }
}
