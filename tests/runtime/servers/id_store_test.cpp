#include "runtime/servers/id_store.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/store_requests.hpp"

using namespace mgpu;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using rendezvous::UniqueFd;
using servers::IdStore;
using servers::NcclId;
using servers::WorkerPeers;
using tests::request::Opcode;
namespace request = tests::request;

namespace {

constexpr uid_t kOtherUser = 65534;
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kStranger = "127.0.0.2";
const std::string kStoredKey = "/broadcast_from/0/0";  // with the prefix of c10d's clients

NcclId nccl_id() {
  NcclId id{};
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<char>(i);
  return id;
}

IdStore::Settings for_workers(std::int64_t workers = 1) {
  return {.address = kLoopback,
          .workers = workers,
          .peers = {.addresses = {kLoopback}, .users = {::geteuid()}}};
}

sockaddr_in socket_address(const char* address, int port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, address, &v4.sin_addr);
  return v4;
}

// A client that waits at most 20 s.
class Client {
 public:
  explicit Client(int port, const char* source = kLoopback, const char* target = kLoopback)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const auto from = socket_address(source, 0), to = socket_address(target, port);
    connected_ =
        ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0 &&
        ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }

  bool connected() const { return connected_; }
  bool has_reply() const {
    pollfd wanted{socket_.get(), POLLIN, 0};
    return ::poll(&wanted, 1, 0) > 0;
  }

  // False if the connection has ended.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // A reply of this size; a shorter one if the connection ends.
  std::string ask(const std::string& bytes, std::size_t size) const {
    std::string reply(size, '\0');
    std::size_t filled = 0;
    send(bytes);
    while (filled < size) {
      const auto got = ::recv(socket_.get(), reply.data() + filled, size - filled, 0);
      if (got <= 0) break;
      filled += static_cast<std::size_t>(got);
    }
    reply.resize(filled);
    return reply;
  }

  // Whether the store closes the connection.
  bool is_closed() const {
    char byte = 0;
    ssize_t got = 0;
    while ((got = ::recv(socket_.get(), &byte, 1, 0)) > 0) {
    }
    return got == 0 || errno == ECONNRESET;
  }

 private:
  UniqueFd socket_;
  bool connected_ = false;
};

// Runs clients in a thread and serves them; returns what they return.
template <class Clients>
auto served(IdStore& store, Clients clients) {
  auto result = std::async(std::launch::async, std::move(clients));
  store.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; }, 60s);
  return result.get();
}

bool shakes_hands(const Client& client) {
  return client.ask(request::validate() + request::ping(7), 4) == request::number<std::uint32_t>(7);
}

// The value of the id's key, as a worker reads it.
std::string id_read_by(const Client& worker) {
  shakes_hands(worker);
  const auto expected = request::string(servers::pickled_id(nccl_id())).size();
  return worker.ask(request::get(kStoredKey), expected).substr(sizeof(std::uint64_t));
}

struct Attack {
  const char* name;
  std::string bytes;
};

struct Outcome {
  bool closed = false;        // the attacker's connection
  std::string id_afterwards;  // as the next worker reads it
};

Outcome outcome_of(const Attack& attack) {
  IdStore store(for_workers(), nccl_id());
  return served(store, [&attack, port = store.port()] {
    const Client attacker(port);
    const bool greeted = shakes_hands(attacker);
    attacker.send(attack.bytes);
    Outcome outcome;
    outcome.closed = greeted && attacker.is_closed();
    outcome.id_afterwards = id_read_by(Client(port));
    return outcome;
  });
}

}  // namespace

TEST_CASE("the NCCL id is pickled as the type that vLLM's workers expect", "[servers]") {
  const auto id = nccl_id();
  const auto pickle = servers::pickled_id(id);
  CHECK_THAT(pickle, Contains("cvllm.distributed.device_communicators.pynccl_wrapper\n"
                              "ncclUniqueId\n"));
  CHECK(pickle.find(std::string(id.begin(), id.end())) != std::string::npos);
  CHECK(pickle.back() == '.');
}

TEST_CASE("workers read the id with the requests of c10d's clients", "[servers]") {
  IdStore store(for_workers(2), nccl_id());
  const auto value = request::string(servers::pickled_id(nccl_id()));
  const auto replies = served(store, [&value, port = store.port()] {
    std::vector<std::string> all;
    for (int rank = 1; rank <= 2; ++rank) {
      const Client worker(port);
      all.push_back(worker.ask(request::validate() + request::ping(7), 4));
      all.push_back(worker.ask(request::add("init/", 1), 8));
      all.push_back(worker.ask(request::wait({kStoredKey}), 1));
      all.push_back(worker.ask(request::get(kStoredKey), value.size()));
    }
    return all;
  });
  const auto pong = request::number<std::uint32_t>(7);
  CHECK(replies == std::vector<std::string>{pong, request::number<std::int64_t>(1), request::kStop,
                                            value, pong, request::number<std::int64_t>(2),
                                            request::kStop, value});
}

TEST_CASE("a stranger at another address cannot read the id", "[servers]") {
  IdStore store(for_workers(), nccl_id());
  const Client stranger(store.port(), kStranger), worker(store.port());
  REQUIRE(stranger.connected());
  stranger.send(request::validate() + request::ping(1) + request::get(kStoredKey));
  worker.send(request::validate() + request::ping(1));

  SECTION("and the worker is served nevertheless") {
    store.serve_until([&] { return stranger.has_reply() && worker.has_reply(); }, 20s);
    CHECK(worker.ask("", 4) == request::number<std::uint32_t>(1));
  }
  SECTION("and the error names the address if the workers do not connect") {
    const auto give_up = [&] {
      if (stranger.has_reply()) throw std::runtime_error("the server gave up");
      return false;
    };
    CHECK_THROWS_WITH(store.serve_until(give_up, 20s),
                      "the server gave up; connections from 127.0.0.2 were rejected, because only "
                      "the server's processes at 127.0.0.1 may connect");
  }
  CHECK(stranger.ask("", 1).empty());
}

TEST_CASE("another user of this host cannot read the id", "[servers][users][fork]") {
  if (::geteuid() != 0) {
    WARN("only root can become another user");
    return;
  }
  auto settings = for_workers();
  const bool serves = GENERATE(false, true);  // whether the server runs as this user
  if (serves) settings.peers.users.push_back(kOtherUser);
  IdStore store(std::move(settings), nccl_id());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kOtherUser) != 0 || ::setuid(kOtherUser) != 0) ::_exit(2);
    ::_exit(shakes_hands(Client(store.port())) ? 1 : 0);
  }
  int status = -1;
  store.serve_until([&] { return ::waitpid(child, &status, WNOHANG) == child; }, 60s);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == (serves ? 1 : 0));
}

TEST_CASE("no client can overwrite or delete the id", "[servers]") {
  const auto pickle = servers::pickled_id(nccl_id());
  const auto attack = GENERATE_COPY(values<Attack>({
      {"SET", request::set(kStoredKey, "evil")},
      {"COMPARE_SET", request::compare_set(kStoredKey, pickle, "evil")},
      {"APPEND", request::of_pair(Opcode::append, kStoredKey, "evil")},
      {"MULTI_SET", request::multi_set({{kStoredKey, "evil"}})},
      {"DELETE_KEY", request::of_key(Opcode::delete_key, kStoredKey)},
      {"ADD", request::add(kStoredKey, 1)},
      {"BARRIER", request::barrier(kStoredKey, 1)},
      {"QUEUE_PUSH", request::of_pair(Opcode::queue_push, kStoredKey, "evil")},
      {"QUEUE_POP", request::of_key(Opcode::queue_pop, kStoredKey)},
  }));
  CAPTURE(attack.name);
  const auto outcome = outcome_of(attack);
  CHECK(outcome.closed);
  CHECK(outcome.id_afterwards == pickle);
}

TEST_CASE("no client can park bytes in the store", "[servers]") {
  const std::string megabyte(1 << 20, 'x');
  const auto attack = GENERATE_COPY(values<Attack>({
      {"a key of its own", request::set("/broadcast_from/0/1", "evil")},
      {"a counter of its own", request::add("/counter", 1)},
      {"a queue", request::of_pair(Opcode::queue_push, "/queue", megabyte)},
      {"half of a large value", request::opcode(Opcode::set) + request::string("/k") +
                                    request::number<std::uint64_t>(2 << 20) + megabyte},
      {"half of a long list of keys", request::opcode(Opcode::wait) +
                                          request::number<std::uint64_t>(100'000) +
                                          request::string(megabyte.substr(0, 8000))},
      {"a long key to wait for", request::wait({megabyte.substr(0, 8000)})},
  }));
  CAPTURE(attack.name);
  const auto outcome = outcome_of(attack);
  CHECK(outcome.closed);
  CHECK(outcome.id_afterwards == servers::pickled_id(nccl_id()));
}

TEST_CASE("more connections than the workers need are closed", "[servers]") {
  constexpr int kWorkers = 2, kSpare = 16;
  IdStore store(for_workers(kWorkers), nccl_id());
  struct Count {
    int served = 0;
    bool reused = false;
  };
  const auto count = served(store, [port = store.port()] {
    Count result;
    std::vector<Client> clients;
    for (int i = 0; i < 2 * (kWorkers + kSpare); ++i)
      if (shakes_hands(clients.emplace_back(port))) ++result.served;
    clients.clear();
    // The server may see the next connection before it sees that the others are closed.
    for (int tries = 0; tries < 100 && !result.reused; ++tries)
      result.reused = shakes_hands(Client(port));
    return result;
  });
  CHECK(count.served == kWorkers + kSpare);
  CHECK(count.reused);
}

TEST_CASE("the port is closed as soon as the group has formed or has failed", "[servers]") {
  IdStore store(for_workers(), nccl_id());
  const int port = store.port();
  const Client worker(port);
  worker.send(request::validate() + request::ping(1));

  SECTION("all workers are connected") {
    store.serve_until([&] { return worker.has_reply(); }, 20s);
  }
  SECTION("the server gives up") {
    const auto give_up = []() -> bool { throw std::runtime_error("status 500"); };
    CHECK_THROWS_WITH(store.serve_until(give_up, 20s), "status 500");
  }
  SECTION("the workers do not come in time") {
    CHECK_THROWS_WITH(store.serve_until([] { return false; }, 30ms),
                      Contains("did not connect to 127.0.0.1:" + std::to_string(port)) &&
                          Contains("vllm_group_port"));
  }
  CHECK(worker.is_closed());
  CHECK_FALSE(Client(port).connected());
  auto again = for_workers();
  again.port = port;
  CHECK(IdStore(std::move(again), nccl_id()).port() == port);
}

TEST_CASE("the port is closed at the other addresses of this host", "[servers]") {
  const IdStore store(for_workers(), nccl_id());
  CHECK(Client(store.port()).connected());
  CHECK_FALSE(Client(store.port(), kLoopback, kStranger).connected());
}

TEST_CASE("a port that is in use is reported with its key", "[servers]") {
  const IdStore store(for_workers(), nccl_id());
  auto same = for_workers();
  same.port = store.port();
  CHECK_THROWS_WITH(IdStore(same, nccl_id()),
                    "vllm_group_port: cannot listen on 127.0.0.1:" + std::to_string(store.port()) +
                        ": Address already in use");
}

TEST_CASE("only addresses of the server may connect", "[servers]") {
  using Addresses = std::set<std::string>;
  const auto addresses = [](const std::string& host, const std::string& own) {
    return servers::worker_peers({.host = host, .port = "8000"}, own, "/none").addresses;
  };
  CHECK(addresses("192.0.2.7", "192.0.2.1") == Addresses{"192.0.2.7"});
  CHECK(addresses("::ffff:192.0.2.7", "192.0.2.1") == Addresses{"192.0.2.7"});

  SECTION("for a server on this host also loopback and our own address") {
    CHECK(addresses("127.0.0.1", "127.0.0.1") == Addresses{"127.0.0.1", "::1"});
    CHECK(addresses("127.0.0.1", "fe80::1%eth0") == Addresses{"127.0.0.1", "::1", "fe80::1"});
  }
}
