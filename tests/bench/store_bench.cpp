// How fast the store is, alone or compared with another server of the same wire format.
//
//   store_bench [--against PORT] [--runs N] [--clients N]
//   store_bench --at HOST PORT [--runs N]
//
// get: 16 connections request a value of 32 bytes with plain GET requests (PyTorch's client sends a
//   WAIT before each), one at a time or with 16 in flight. One thread drives all of them.
// join: N connections send VALIDATE, PING and ADD, at most 512 of them at the same time; then
//   all wait at one BARRIER. For our server only.
//
// --at measures the store at that address instead: "get" and, for one client, the time of a
// request. Ours runs in a child process, so both servers are driven across processes. Prints
// medians.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/store/server.hpp"
#include "tests/support/store_requests.hpp"

namespace {

using namespace mgpu::rendezvous;
using namespace mgpu::rendezvous::store;
namespace request = mgpu::tests::request;
using std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kGetClients = 16;
constexpr int kJoinWindow = 512;
constexpr Seconds kMeasure{1.0};
constexpr std::size_t kGetReply = 8 + 32;

// Our server in its own process, until this process ends.
int start_server() {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) throw_errno("pipe");
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    StoreServer server({});
    const int port = server.port();
    if (::write(pipe[1], &port, sizeof port) != sizeof port) ::_exit(1);
    for (;;) {
      pollfd wanted{server.fd(), POLLIN, 0};
      ::poll(&wanted, 1, -1);
      server.serve_ready();
    }
  }
  int port = 0;
  if (::read(pipe[0], &port, sizeof port) != sizeof port) throw_errno("the server did not start");
  return port;
}

// Many connections driven by one thread.
class Load {
 public:
  explicit Load(int port, std::string host = "127.0.0.1")
      : host_(std::move(host)), port_(port), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  // Starts to connect; drive() writes to the socket once it is connected.
  int open() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) throw_errno("socket");
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    if (::inet_pton(AF_INET, host_.c_str(), &address.sin_addr) != 1)
      throw std::runtime_error(host_ + ": need an IPv4 address");
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
        errno != EINPROGRESS)
      throw_errno("connect");
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(sockets_.size());
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event);
    sockets_.push_back(std::move(socket));
    return static_cast<int>(sockets_.size()) - 1;
  }

  void send(int client, std::string_view bytes) {
    while (::send(sockets_[client].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
           static_cast<ssize_t>(bytes.size())) {
      if (errno != EAGAIN) throw_errno("send");
      pollfd wanted{sockets_[client].get(), POLLOUT, 0};
      ::poll(&wanted, 1, -1);
    }
  }

  // Waits, and calls got(client, bytes) for each connection that has received an answer.
  template <class Got>
  void drive(Got got) {
    std::array<epoll_event, 256> events;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    for (int i = 0; i < ready; ++i) {
      const int client = static_cast<int>(events[i].data.u32);
      const auto size = ::recv(sockets_[client].get(), buffer_.data(), buffer_.size(), 0);
      if (size == 0) throw std::runtime_error("the server closed a connection");
      if (size < 0 && errno != EAGAIN) throw_errno("recv");
      if (size > 0) got(client, static_cast<std::size_t>(size));
    }
  }

  // Connects all, a window at a time; each does its handshake, sends `then` and waits for
  // `reply` bytes after the four of the PING.
  void join(int clients, const std::string& then, std::size_t reply) {
    const auto hello = request::validate() + request::ping(1);
    std::vector<std::size_t> heard(clients);
    int done = 0, opened = 0;
    const auto next = [&] {
      if (opened == clients) return;
      send(open(), hello);
      ++opened;
    };
    while (opened < std::min(clients, kJoinWindow)) next();
    while (done < clients)
      drive([&](int client, std::size_t bytes) {
        const auto before = heard[client];
        heard[client] += bytes;
        if (before < 4 && heard[client] >= 4 && reply > 0) send(client, then);
        if (heard[client] < 4 + reply) return;
        ++done;
        next();
      });
  }

  int clients() const { return static_cast<int>(sockets_.size()); }

 private:
  std::string host_;
  int port_;
  UniqueFd epoll_;
  std::vector<UniqueFd> sockets_;
  std::array<char, 65536> buffer_;
};

// Answers per second to plain GETs with `in_flight` requests on each connection.
double measure_get(int port, int in_flight, const std::string& host = "127.0.0.1",
                   int clients = kGetClients) {
  Load load(port, host);
  load.join(clients, {}, 0);
  load.send(0, request::set("/bench", std::string(32, 'x')) + request::get("/bench"));
  std::size_t heard = 0;
  while (heard < kGetReply) load.drive([&](int, std::size_t bytes) { heard += bytes; });

  const auto get = request::get("/bench");
  std::string window;
  for (int i = 0; i < in_flight; ++i) window += get;
  for (int client = 0; client < clients; ++client) load.send(client, window);
  std::vector<std::size_t> rest(clients);
  std::size_t answers = 0, asked = static_cast<std::size_t>(clients) * in_flight, counted = 0;
  const auto begin = steady_clock::now();
  Seconds taken{};
  while (answers < asked) {  // to the last answer, so that the server is idle again
    load.drive([&](int client, std::size_t bytes) {
      rest[client] += bytes;
      const auto whole = rest[client] / kGetReply;
      rest[client] %= kGetReply;
      answers += whole;
      if (whole == 0 || counted > 0) return;
      load.send(client, std::string_view(window).substr(0, whole * get.size()));
      asked += whole;
    });
    if (counted == 0 && (taken = steady_clock::now() - begin) >= kMeasure) counted = answers;
  }
  return static_cast<double>(counted) / taken.count();
}

struct Joined {
  double join = 0;
  double barrier = 0;
};

// With a new server: one that still closes the last run's connections is slower.
Joined measure_join(int clients) {
  const int port = start_server();
  Load load(port);
  const auto begin = steady_clock::now();
  load.join(clients, request::add("/members", 1), 8);
  const auto joined = steady_clock::now();
  const auto arrive = request::barrier("/barrier", clients);
  for (int client = 0; client < clients; ++client) load.send(client, arrive);
  std::size_t released = 0;
  while (released < static_cast<std::size_t>(clients))
    load.drive([&](int, std::size_t bytes) { released += bytes; });
  return {Seconds(joined - begin).count(), Seconds(steady_clock::now() - joined).count()};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare_get(int ours, int theirs, int in_flight, int runs) {
  std::vector<double> our_rates, their_rates;
  for (int run = 0; run < runs; ++run) {  // in turn, so that both run under the same load
    our_rates.push_back(measure_get(ours, in_flight));
    if (theirs > 0) their_rates.push_back(measure_get(theirs, in_flight));
  }
  const auto name = fmt::format("get, {} x {} in flight", kGetClients, in_flight);
  const double rate = median(our_rates);
  if (theirs > 0)
    fmt::print("{:28} {:10.0f}/s {:10.0f}/s  {:5.2f} x\n", name, rate, median(their_rates),
               rate / median(their_rates));
  else
    fmt::print("{:28} {:10.0f}/s\n", name, rate);
}

void measure_at(const std::string& host, int port, int runs) {
  const auto rate = [&](int in_flight, int clients) {
    std::vector<double> rates;
    for (int run = 0; run < runs; ++run)
      rates.push_back(measure_get(port, in_flight, host, clients));
    return median(rates);
  };
  const double many = rate(16, kGetClients), one_each = rate(1, kGetClients), single = rate(1, 1);
  fmt::print("{:.0f} {:.0f} {:.1f}\n", many, one_each, 1e6 / single);
}

}  // namespace

int main(int argc, char* argv[]) try {
  if (argc > 3 && std::string_view(argv[1]) == "--at") {
    measure_at(argv[2], std::atoi(argv[3]), argc > 5 ? std::max(1, std::atoi(argv[5])) : 3);
    return 0;
  }
  int theirs = 0, runs = 5, clients = 10'000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--against") theirs = std::atoi(argv[i + 1]);
    if (option == "--runs") runs = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--clients") clients = std::atoi(argv[i + 1]);
  }
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  const int ours = start_server();
  fmt::print("{:28} {:>12} {:>12}  ratio; medians of {}\n", "", "ours", "theirs", runs);
  compare_get(ours, theirs, 1, runs);
  compare_get(ours, theirs, 16, runs);
  std::vector<double> joins, barriers;
  for (int run = 0; run < runs; ++run) {
    const auto joined = measure_join(clients);
    joins.push_back(joined.join);
    barriers.push_back(joined.barrier);
  }
  fmt::print("{:28} {:10.3f} s\n", fmt::format("{} clients join", clients), median(joins));
  fmt::print("{:28} {:10.3f} s\n", fmt::format("{} at a barrier", clients), median(barriers));
} catch (const std::exception& error) {
  fmt::print(stderr, "store_bench: {}\n", error.what());
  return 1;
}
