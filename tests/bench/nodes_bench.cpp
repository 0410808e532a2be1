// How fast a multi-node job forms, and what it costs its leader.
//
//   nodes_bench [--agents N] [--runs N] [--window N] [--steady SECONDS] [--loss PERCENT]
//
// N agents, all in this process and connecting at once (or a window at a time), join a leader in
// another process: launcher::Leader on its event loop, as in mgpu-run. They authenticate, join,
// send heartbeats as datagrams and reconnect when they are rejected, as agents do; they
// start no ranks.
//
// form: from the first connect until the last agent has its Begin.
// failure: from one agent's Failing, through the Stop and NodeEnded of all, until the last has its
//   next Begin. 8 ranks on each.
// steady: the leader's CPU time while there are only heartbeats, and the lost nodes.
//
// Without --agents it runs 100, 1,000 and 10,000. Prints the best of the runs.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>

#include "launcher/lifecycle/report.hpp"
#include "launcher/nodes/leader.hpp"
#include "rendezvous/authenticated_channel.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace {

using namespace mgpu::rendezvous;
using mgpu::launcher::Leader;
using Seconds = std::chrono::duration<double>;

constexpr int kRanks = 8;
constexpr Nanoseconds kKeepAlive = std::chrono::seconds(5);
constexpr Nanoseconds kPatience = std::chrono::seconds(120);
// Between two connection attempts of an agent, doubled each time.
constexpr Nanoseconds kShortestPause = std::chrono::milliseconds(20);
constexpr Nanoseconds kLongestPause = std::chrono::seconds(1);
constexpr std::uint64_t kDatagrams = ~0ull;
const std::string kJob = "bench";
const std::string kSecret = "a secret of thirty-two bytes or more";

// The leader in its own process, for the lifetime of this object.
class LeaderProcess {
 public:
  explicit LeaderProcess(int nodes) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) throw_errno("pipe");
    const UniqueFd from(pipe[0]), to(pipe[1]);
    pid_ = ::fork();
    if (pid_ == 0) lead(nodes, to.get());
    if (::read(from.get(), &port_, sizeof port_) != sizeof port_)
      throw std::runtime_error("the leader did not start");
  }
  LeaderProcess(const LeaderProcess&) = delete;
  LeaderProcess& operator=(const LeaderProcess&) = delete;
  ~LeaderProcess() { end(); }

  // Before its agents end, so that it does not detect lost ones.
  void end() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

  int port() const { return port_; }

  double cpu_seconds() const {
    double nanoseconds = 0;
    std::ifstream(fmt::format("/proc/{}/schedstat", pid_)) >> nanoseconds;
    return nanoseconds / 1e9;
  }

  double resident_mib() const {
    std::ifstream file(fmt::format("/proc/{}/status", pid_));
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
    throw std::runtime_error("the leader is gone");
  }

 private:
  [[noreturn]] static void lead(int nodes, int report_to) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    boost::asio::io_context io;
    Leader leader(io,
                  {.job = kJob,
                   .target = "bench",
                   .host = "here",
                   .credentials = {.secret = kSecret},
                   .rules = {.min_nodes = nodes,
                             .max_nodes = nodes,
                             .keep_alive = kKeepAlive,
                             .limits = {.max_restarts = 1 << 20}}},
                  {.print_line =
                       [told = 0](std::string_view line) mutable {
                         const bool bad = line.find("is lost") != line.npos ||
                                          line.find("rejected") != line.npos;
                         if (bad && ++told <= 3) fmt::print(stderr, "leader: {}\n", line);
                       },
                   .job_ended = [](int) {},
                   .state_changed = [](auto&&...) {}});
    const int port = leader.port();
    if (::write(report_to, &port, sizeof port) == sizeof port) io.run();
    ::_exit(1);
  }

  pid_t pid_ = -1;
  int port_ = 0;
};

std::string ends_of(int node) {
  mgpu::launcher::AttemptResult attempt{.started_at = "2026-01-01 00:00:00"};
  for (int local = 0; local < kRanks; ++local)
    attempt.ranks.push_back({.rank = node * kRanks + local,
                             .local_rank = local,
                             .pid = 1000 + local,
                             .report = {.signal = SIGTERM},
                             .ended_by_us = true,
                             .node_rank = node,
                             .host = fmt::format("node{:05}", node)});
  return attempt_to_json(attempt);
}

class Agents {
 public:
  Agents(int port, int count, int window, int loss)
      : window_(window > 0 ? window : count),
        loss_(loss),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        datagrams_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
        agents_(count) {
    for (int option : {SO_RCVBUF, SO_SNDBUF}) {
      const int size = 8 << 20;
      ::setsockopt(datagrams_.get(), SOL_SOCKET, option, &size, sizeof size);
    }
    address_.sin_family = AF_INET;
    address_.sin_port = htons(static_cast<std::uint16_t>(port));
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    watch(datagrams_.get(), kDatagrams);
  }

  // Until all have their first Begin.
  void form() {
    const auto give_up = boot_now() + kPatience;
    while (in_round(0) < agents_.size()) {
      while (opened_ < agents_.size() && opened_ - welcomed_ < window_) call(opened_++);
      drive(give_up);
    }
  }

  // A rank of one agent fails; until all have the Begin of the next round.
  void fail(int round) {
    agents_[0].channel->send(Failing{.round = round, .when = boot_now().count()});
    end_part(0, round, Outcome::failed);
    const auto give_up = boot_now() + kPatience;
    while (in_round(round + 1) < agents_.size()) drive(give_up);
  }

  void live_until(Nanoseconds end) {
    while (boot_now() < end) drive(end + kPatience);
  }

  std::size_t count() const { return agents_.size(); }
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_got() const { return bytes_got_; }
  // Connections that the leader closed, before and after an agent's first Begin.
  int turned_away() const { return turned_away_; }
  int lost() const { return lost_; }
  // Agents that would now stop their ranks: the leader received nothing from them for a keep-alive.
  std::size_t cut_off() const {
    return std::count_if(agents_.begin(), agents_.end(), [now = boot_now()](const Agent& agent) {
      return now - agent.heartbeats.confirmed_until() > kKeepAlive;
    });
  }

 private:
  struct Agent {
    UniqueFd socket;
    std::unique_ptr<AgentChannel> channel;
    HeartbeatTracker heartbeats;
    std::uint64_t session = 0;
    Nanoseconds heartbeat_interval{0}, pause{0}, datagram_heard{0}, next_stream_beat{0};
    int round = -1;
    bool watches_room = true;
  };
  struct Due {
    Nanoseconds when;
    std::size_t agent;
    std::uint64_t session;  // 0: the agent is due to connect
    bool operator>(const Due& other) const { return when > other.when; }
  };

  std::size_t in_round(int round) {
    if (round != counted_round_) {
      counted_round_ = round;
      in_ = std::count_if(agents_.begin(), agents_.end(),
                          [&](const Agent& agent) { return agent.round >= round; });
    }
    return in_;
  }

  void watch(int fd, std::uint64_t name, int how = EPOLL_CTL_ADD, std::uint32_t events = EPOLLIN) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = name;
    if (::epoll_ctl(epoll_.get(), how, fd, &event) != 0) throw_errno("epoll_ctl");
  }

  void call(std::size_t index) {
    Agent& agent = agents_[index];
    agent.socket.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!agent.socket) throw_errno("socket");
    const int on = 1;
    ::setsockopt(agent.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(agent.socket.get(), reinterpret_cast<sockaddr*>(&address_), sizeof address_) !=
            0 &&
        errno != EINPROGRESS)
      throw_errno("connect");
    agent.channel =
        std::make_unique<AgentChannel>(Credentials{.secret = kSecret}, kJob, "agent", "it");
    agent.watches_room = true;
    agent.session = 0;
    watch(agent.socket.get(), index, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
  }

  void drive(Nanoseconds give_up) {
    std::array<epoll_event, 256> events;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), 1);
    for (int i = 0; i < ready; ++i) {
      const auto name = events[i].data.u64;
      if (name == kDatagrams)
        hear();
      else if (events[i].events & EPOLLIN)
        read(name);
      else
        write(name);
    }
    const auto now = boot_now();
    if (now > give_up)
      throw std::runtime_error(fmt::format("{} of {} agents came that far in {} s", in_,
                                           agents_.size(), kPatience.count() / 1'000'000'000));
    // A bounded number: if heartbeats arrive too fast, messages must be handled too.
    for (int i = 0; i < 64 && !due_.empty() && due_.top().when <= now; ++i) {
      const Due due = due_.top();
      due_.pop();
      if (due.session == 0)
        call(due.agent);
      else if (agents_[due.agent].session == due.session)
        send_heartbeat(due.agent);
    }
  }

  void read(std::size_t index) {
    Agent& agent = agents_[index];
    const auto got = ::recv(agent.socket.get(), buffer_.data(), buffer_.size(), 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return lose(index);
    bytes_got_ += static_cast<std::uint64_t>(got);
    std::vector<AuthenticatedChannel::Received> received;
    agent.channel->receive({buffer_.data(), static_cast<std::size_t>(got)}, received);
    for (const auto& item : received)
      if (const auto* heartbeat = std::get_if<Heartbeat>(&item))
        agent.heartbeats.receive(*heartbeat, boot_now());
      else
        take(index, std::get<Message>(item));
    write(index);
  }

  void take(std::size_t index, const Message& message) {
    Agent& agent = agents_[index];
    if (const auto* welcome = std::get_if<Welcome>(&message)) {
      agent.session = welcome->session;
      ++welcomed_;
      by_session_[agent.session] = index;
      agent.heartbeat_interval = Nanoseconds(welcome->heartbeat_interval);
      agent.heartbeats = {};
      agent.heartbeats.begin(boot_now());
      agent.datagram_heard = boot_now();
      agent.next_stream_beat = agent.datagram_heard + kKeepAlive / 4;
      agent.channel->send(
          Join{.host = fmt::format("node{:05}", index), .nproc = kRanks, .rank0_port = 29500});
      send_heartbeat(index);
    } else if (const auto* begin = std::get_if<Begin>(&message)) {
      agent.round = begin->round;
      if (begin->round == counted_round_) ++in_;
    } else if (const auto* stop = std::get_if<Stop>(&message)) {
      end_part(index, stop->round, Outcome::stopped);
    } else if (const auto* refusal = std::get_if<Refusal>(&message)) {
      throw std::runtime_error("refused: " + refusal->why);
    }
  }

  void end_part(std::size_t index, int round, Outcome outcome) {
    agents_[index].channel->send(NodeEnded{.round = round,
                                           .outcome = outcome,
                                           .when = boot_now().count(),
                                           .cause = "status",
                                           .status = 1,
                                           .lasted = 60'000'000'000,
                                           .details = ends_of(static_cast<int>(index))});
    write(index);
  }

  void write(std::size_t index) {
    Agent& agent = agents_[index];
    if (!agent.socket) return;
    auto& unsent = agent.channel->output();
    if (!unsent.empty()) {
      const auto sent = ::send(agent.socket.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return lose(index);
      if (sent > 0) bytes_sent_ += static_cast<std::uint64_t>(sent);
      unsent.erase(0, static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
    }
    if (agent.watches_room == !unsent.empty()) return;
    agent.watches_room = !unsent.empty();
    watch(agent.socket.get(), index, EPOLL_CTL_MOD,
          agent.watches_room ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }

  void lose(std::size_t index) {
    ++(agents_[index].round < 0 ? turned_away_ : lost_);
    agents_[index].socket.reset();
    if (std::exchange(agents_[index].session, 0) != 0) --welcomed_;
    auto& pause = agents_[index].pause;
    pause = std::clamp(pause * 2, kShortestPause, kLongestPause);
    due_.push({boot_now() + pause, index, 0});
  }

  void send_heartbeat(std::size_t index) {
    Agent& agent = agents_[index];
    const auto now = boot_now();
    const std::string bytes =
        encode(agent.heartbeats.next(agent.session, now), agent.channel->key_out());
    if (!drops())
      ::sendto(datagrams_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL,
               reinterpret_cast<sockaddr*>(&address_), sizeof address_);
    due_.push({now + agent.heartbeat_interval, index, agent.session});
    // If datagrams do not arrive, the stream carries the heartbeats too.
    if (now < agent.next_stream_beat || now - agent.datagram_heard < kKeepAlive / 4) return;
    agent.next_stream_beat = now + kKeepAlive / 8;
    agent.channel->send(agent.heartbeats.next(agent.session, now));
    write(index);
  }

  void hear() {
    for (int i = 0; i < 256; ++i) {
      const auto got = ::recv(datagrams_.get(), buffer_.data(), buffer_.size(), 0);
      if (got < 0) return;
      const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(got));
      const auto session = session_of(bytes);
      const auto found = session ? by_session_.find(*session) : by_session_.end();
      if (found == by_session_.end() || drops()) continue;
      Agent& agent = agents_[found->second];
      if (const auto heartbeat = decode_heartbeat(bytes, agent.channel->key_in()))
        if (agent.heartbeats.receive(*heartbeat, boot_now())) agent.datagram_heard = boot_now();
    }
  }

  bool drops() { return loss_ > 0 && std::rand() % 100 < loss_; }

  std::size_t window_;
  int loss_;
  sockaddr_in address_{};
  UniqueFd epoll_, datagrams_;
  std::vector<Agent> agents_;
  std::unordered_map<std::uint64_t, std::size_t> by_session_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::array<char, 65536> buffer_;
  std::size_t opened_ = 0, welcomed_ = 0, in_ = 0;
  int counted_round_ = 0;
  std::uint64_t bytes_sent_ = 0, bytes_got_ = 0;
  int turned_away_ = 0, lost_ = 0;
};

struct Figures {
  double form = 0, form_cpu = 0, fail = 0, fail_cpu = 0;  // seconds, of the leader
  double bytes_to_leader = 0, bytes_from_leader = 0;      // of TCP, per agent
  double resident = 0, resident_empty = 0;                // MiB
  double steady_cpu = 0;                                  // of a core
  int turned_away = 0, lost = 0;
  std::size_t cut_off = 0;
};

Figures measure(int count, int window, int loss, int steady) {
  Figures figures;
  LeaderProcess leader(count);
  figures.resident_empty = leader.resident_mib();
  Agents agents(leader.port(), count, window, loss);
  auto begin = boot_now();
  auto cpu = leader.cpu_seconds();
  agents.form();
  figures.form = Seconds(boot_now() - begin).count();
  figures.form_cpu = leader.cpu_seconds() - cpu;
  figures.bytes_to_leader = static_cast<double>(agents.bytes_sent()) / count;
  figures.bytes_from_leader = static_cast<double>(agents.bytes_got()) / count;
  if (steady > 0) {
    agents.live_until(boot_now() + std::chrono::seconds(2));
    begin = boot_now();
    cpu = leader.cpu_seconds();
    agents.live_until(begin + std::chrono::seconds(steady));
    figures.steady_cpu = (leader.cpu_seconds() - cpu) / Seconds(boot_now() - begin).count();
    figures.cut_off = agents.cut_off();
  }
  figures.resident = leader.resident_mib();
  begin = boot_now();
  cpu = leader.cpu_seconds();
  agents.fail(0);
  figures.fail = Seconds(boot_now() - begin).count();
  figures.fail_cpu = leader.cpu_seconds() - cpu;
  figures.turned_away = agents.turned_away();
  figures.lost = agents.lost();
  leader.end();
  return figures;
}

void print(int count, const Figures& figures, bool steady) {
  fmt::print(
      "{:6} agents: form {:.3f} s ({:.1f} us of the leader's CPU each, {:.0f} + {:.0f} bytes "
      "each, {} called again), failure {:.3f} s ({:.1f} us each), memory {:.1f} MiB "
      "({:.1f} KiB each)",
      count, figures.form, figures.form_cpu / count * 1e6, figures.bytes_to_leader,
      figures.bytes_from_leader, figures.turned_away, figures.fail, figures.fail_cpu / count * 1e6,
      figures.resident, (figures.resident - figures.resident_empty) * 1024 / count);
  if (steady)
    fmt::print(", quiet {:.1f} % of a core, {} cut off", figures.steady_cpu * 100, figures.cut_off);
  fmt::print(", {} lost\n", figures.lost);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char* argv[]) try {
  int window = 0, runs = 5, steady = 20, loss = 0;
  std::vector<int> counts = {100, 1'000, 10'000};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (option == "--agents") counts = {std::max(1, value)};
    if (option == "--runs") runs = std::max(1, value);
    if (option == "--window") window = value;
    if (option == "--steady") steady = value;
    if (option == "--loss") loss = value;
  }
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  bool all_lived = true;
  for (const int count : counts) {
    if (files.rlim_cur < static_cast<rlim_t>(count) + 100)
      throw std::runtime_error(
          fmt::format("{} agents need {} open files and {} are allowed; see `ulimit -Hn`", count,
                      count + 100, files.rlim_cur));
    Figures best;
    for (int run = 0; run < runs; ++run) {
      // The steady state hardly varies: it is measured once, with the most agents.
      const bool last = run + 1 == runs;
      auto now = measure(count, window, loss, last && count == counts.back() ? steady : 0);
      all_lived = all_lived && now.lost == 0 && now.cut_off == 0;
      if (run > 0) {
        now.form = std::min(now.form, best.form);
        now.form_cpu = std::min(now.form_cpu, best.form_cpu);
        now.fail = std::min(now.fail, best.fail);
        now.fail_cpu = std::min(now.fail_cpu, best.fail_cpu);
      }
      best = now;
    }
    print(count, best, steady > 0 && count == counts.back());
  }
  return all_lived ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "nodes_bench: {}\n", error.what());
  return 1;
}
