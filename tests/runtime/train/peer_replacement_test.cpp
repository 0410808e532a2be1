#include "runtime/train/peer_replacement.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "tests/support/catch.hpp"
#include "tests/support/local_socket.hpp"

using namespace std::chrono_literals;
using mgpu::rendezvous::Contract;
using mgpu::train::PeerReplacement;

namespace {

// The launcher's end of the worker socket.
class ReplacingLauncher {
 public:
  Contract contract() const {
    Contract contract;
    contract.rank = 3;
    contract.worker_socket = listener_.address();
    return contract;
  }
  void accept() { connection_ = listener_.accept(); }
  std::string received() { return connection_.receive(); }
  void send(std::string_view text) { connection_.send(text); }

 private:
  mgpu::tests::LocalListener listener_{fmt::format("peer-replacement-test-{}", ::getpid())};
  mgpu::tests::LocalConnection connection_;
};

}  // namespace

TEST_CASE("a rank that is ready learns that a peer is replaced", "[peer_replacement]") {
  ReplacingLauncher launcher;
  auto loss = std::make_shared<std::promise<int>>();
  auto lost = loss->get_future();
  PeerReplacement peers(launcher.contract(), [loss, calls = 0]() mutable {
    if (++calls == 1) loss->set_value(calls);
  });
  launcher.accept();
  CHECK_FALSE(peers.requested(0ms));
  peers.set_ready(true);
  CHECK(launcher.received() == "{\"rank\": 3, \"replaces\": true}\n");
  CHECK_FALSE(peers.requested(1ms));

  launcher.send("{\"of_a_later_version\": 1}\n{\"repl");
  launcher.send("ace\": 2}\n");
  REQUIRE(peers.requested(60s));
  CHECK(lost.get() == 1);
  peers.set_ready(false);  // too late: the request stays
  CHECK(peers.requested(0ms));
  CHECK(peers.take() == 2);
  CHECK_FALSE(peers.requested(60s));  // at once: it is not ready any more
  peers.set_ready(true);
  CHECK(launcher.received() == "{\"rank\": 3, \"replaces\": true}\n");
  launcher.send("{\"replace\": 3}\n");
  REQUIRE(peers.requested(60s));
  CHECK(peers.take() == 3);
}

// Else it could have connected again, and the late interruption would hit the new connections.
TEST_CASE("the request is passed on only after the collectives were interrupted",
          "[peer_replacement]") {
  ReplacingLauncher launcher;
  auto begun = std::make_shared<std::promise<void>>(), end = std::make_shared<std::promise<void>>();
  PeerReplacement peers(launcher.contract(), [begun, ended = end->get_future().share()] {
    begun->set_value();
    ended.wait();
  });
  launcher.accept();
  peers.set_ready(true);
  launcher.send("{\"replace\": 1}\n");
  begun->get_future().wait();
  CHECK_FALSE(peers.requested(0ms));
  peers.set_ready(false);  // too late
  end->set_value();
  REQUIRE(peers.requested(60s));
  CHECK(peers.take() == 1);
}

TEST_CASE("a rank that is not ready ends when a peer is replaced", "[peer_replacement]") {
  ReplacingLauncher launcher;
  const pid_t rank = ::fork();
  if (rank == 0) {
    const PeerReplacement peers(launcher.contract(), [] {});
    ::alarm(60);
    while (true) ::pause();
  }
  launcher.accept();
  launcher.send("{\"replace\": 1}\n");
  int status = 0;
  REQUIRE(::waitpid(rank, &status, 0) == rank);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 1));
}

TEST_CASE("without a launcher nobody is replaced", "[peer_replacement]") {
  PeerReplacement peers(Contract(), [] {});
  peers.set_ready(true);
  CHECK_FALSE(peers.requested(0ms));
}
