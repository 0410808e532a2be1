#include "runtime/rewards/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <thread>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rewards {
namespace {

using rendezvous::UniqueFd;
using namespace std::chrono_literals;

constexpr std::size_t kMostAnswer = 64 << 20;
constexpr auto kStart = 120s;  // of a program that announces itself: imports can take long
constexpr auto kEnd = 2s;      // from the end of its stdout to its own
constexpr int kNotStarted = 127;

struct Pair {
  UniqueFd ours;
  UniqueFd theirs;
};

// A socket, not a pipe: writing to a program that has ended must not be a signal to us.
Pair input() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    rendezvous::throw_errno("cannot make a socket");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Pair output() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) rendezvous::throw_errno("cannot make a pipe");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void make_nonblocking(const UniqueFd& fd) {
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// Between fork and exec only async-signal-safe calls are made.
[[noreturn]] void become(char* const* argv, const char* folder, int in, int out, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNotStarted);  // the parent died before prctl
  struct sigaction fresh{};
  fresh.sa_handler = SIG_DFL;
  for (int signo = 1; signo < NSIG; ++signo) ::sigaction(signo, &fresh, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(in, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0 ||
      (*folder != '\0' && ::chdir(folder) != 0))
    ::_exit(kNotStarted);
  ::execvp(argv[0], argv);
  ::_exit(kNotStarted);
}

// How a process that has closed its stdout ended; nothing when it does not end.
std::optional<int> status_soon(pid_t pid) {
  int status = 0;
  for (const auto limit = std::chrono::steady_clock::now() + kEnd;;) {
    const pid_t reaped = ::waitpid(pid, &status, WNOHANG);
    if (reaped == pid) return status;
    if (reaped < 0 && errno != EINTR) return std::nullopt;
    if (std::chrono::steady_clock::now() > limit) return std::nullopt;
    std::this_thread::sleep_for(5ms);
  }
}

}  // namespace

Child::Child(ChildProgram program) : program_(std::move(program)) {}

Child::~Child() {
  end();
}

void Child::start() {
  auto in = input();
  auto out = output();
  std::vector<char*> argv;
  for (auto& word : program_.argv) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) rendezvous::throw_errno("cannot start " + program_.argv[0]);
  if (pid_ == 0)
    become(argv.data(), program_.folder.c_str(), in.theirs.get(), out.theirs.get(), parent);
  ::setpgid(pid_, pid_);  // both do it: whoever comes first
  to_ = std::move(in.ours);
  from_ = std::move(out.ours);
  make_nonblocking(to_);
  make_nonblocking(from_);
  received_.clear();
  if (!program_.announces) return;
  const auto word = exchange("", std::chrono::steady_clock::now() + kStart);
  if (word.find("\"error\"") != word.npos) scores_in(word, 0);  // throws what it says
}

void Child::end() {
  if (pid_ < 0) return;
  to_.reset();
  from_.reset();
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // it may not have made its group yet
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

void Child::report_end() {
  const pid_t ended = pid_;
  const auto status = status_soon(ended);
  if (!status) throw std::runtime_error("it closed its stdout and went on running");
  ::kill(-ended, SIGKILL);  // what it left behind
  pid_ = -1;
  to_.reset();
  from_.reset();
  if (WIFSIGNALED(*status))
    throw std::runtime_error(fmt::format("{} was killed by signal {} before it answered",
                                         program_.argv[0], WTERMSIG(*status)));
  if (WEXITSTATUS(*status) == kNotStarted)
    throw std::runtime_error(
        fmt::format("cannot run {}: is it there and executable?",
                    rendezvous::shown(program_.argv.size() > 2 && program_.argv[1] == "-c" &&
                                              program_.argv[0] == "/bin/sh"
                                          ? program_.argv[2].substr(5)
                                          : program_.argv[0])));
  throw std::runtime_error(fmt::format("{} ended with status {} before it answered",
                                       program_.argv[0], WEXITSTATUS(*status)));
}

void Child::write_some(const std::string& out, std::size_t& sent) {
  const auto n = ::send(to_.get(), out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
  if (n >= 0) {
    sent += static_cast<std::size_t>(n);
  } else if (errno == EPIPE || errno == ECONNRESET) {
    sent = out.size();  // why it ended shows at its stdout
  } else if (errno != EAGAIN && errno != EINTR) {
    rendezvous::throw_errno("cannot write to it");
  }
}

bool Child::read_some() {
  std::array<char, 65536> buffer;
  const auto n = ::read(from_.get(), buffer.data(), buffer.size());
  if (n == 0) return false;
  if (n > 0) received_.append(buffer.data(), static_cast<std::size_t>(n));
  if (n < 0 && errno != EAGAIN && errno != EINTR) rendezvous::throw_errno("cannot read from it");
  if (received_.size() > kMostAnswer) throw std::runtime_error("its answer does not end");
  return true;
}

std::string Child::exchange(std::string out, Deadline deadline) {
  std::size_t sent = 0;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left <= 0ms) throw std::runtime_error("it did not answer in time (reward_timeout)");
    std::array<pollfd, 2> fds = {pollfd{from_.get(), POLLIN, 0},
                                 pollfd{sent < out.size() ? to_.get() : -1, POLLOUT, 0}};
    const auto wait = static_cast<int>(std::min<long long>(left.count(), 60'000));
    if (::poll(fds.data(), fds.size(), wait) < 0 && errno != EINTR)
      rendezvous::throw_errno("cannot wait for it");
    if (fds[1].revents != 0) write_some(out, sent);
    if (fds[0].revents == 0) continue;
    if (!read_some()) report_end();
    const auto line = received_.find('\n');
    if (line == received_.npos) continue;
    if (sent < out.size()) throw std::runtime_error("it answered before it was asked");
    std::string answer = received_.substr(0, line);
    received_.erase(0, line + 1);
    if (!received_.empty()) throw std::runtime_error("it gave more than one line for one question");
    return answer;
  }
}

std::string Child::ask(const std::string& line, Deadline deadline) {
  try {
    if (pid_ < 0) {
      const auto begun = std::chrono::steady_clock::now();
      start();
      deadline += std::chrono::steady_clock::now() - begun;
    }
    return exchange(line + "\n", deadline);
  } catch (...) {
    end();  // a late answer must not be taken for the next one
    throw;
  }
}

}  // namespace mgpu::rewards
