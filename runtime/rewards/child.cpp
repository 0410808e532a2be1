#include "runtime/rewards/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/processes/child_steps.hpp"
#include "rendezvous/processes/spawn.hpp"
#include "runtime/rewards/sandbox.hpp"

namespace mgpu::rewards {
namespace {

using rendezvous::UniqueFd;
using namespace std::chrono_literals;

constexpr std::size_t kMaxAnswer = 64 << 20;
constexpr std::size_t kMaxStderr = 64 << 10;  // per request, of a sandboxed program
constexpr auto kStart = 120s;  // for a program that announces readiness: imports can take long
constexpr auto kEnd = 2s;      // from the end of its stdout to its exit

struct Pair {
  UniqueFd ours;
  UniqueFd theirs;
};

// Pipes, not sockets: a socket would belong to our network namespace, also in a sandbox.
Pair output() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) rendezvous::throw_errno("cannot make a pipe");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Pair input() {
  Pair pair = output();
  std::swap(pair.ours, pair.theirs);
  return pair;
}

// Blocks the signal that writing to a program that has exited would send to this thread.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~WithoutSigpipe() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;
    const timespec now{};
    while (::sigtimedwait(&sigpipe_, nullptr, &now) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t sigpipe_, before_;
};

void write_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;  // nobody reads our stderr
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
}

void make_nonblocking(const UniqueFd& fd) {
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// The signal that has killed the program, 0 if none has. The shell of a sandbox exits with the
// status of its program, and reports signal N as 128 + N.
int signal_of(int status, bool sandboxed) {
  if (WIFSIGNALED(status)) return WTERMSIG(status);
  constexpr int kSignals = exit_status::of_signal(0);
  return sandboxed && WEXITSTATUS(status) > kSignals ? WEXITSTATUS(status) - kSignals : 0;
}

// Its own variables, and behind them ours.
std::vector<std::string> environment_of(const ChildProgram& program) {
  auto all = program.environment;
  for (char** variable = environ; *variable; ++variable) all.emplace_back(*variable);
  return all;
}

}  // namespace

Child::Child(ChildProgram program)
    : program_(std::move(program)), cancelled_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!cancelled_) rendezvous::throw_errno("cannot make an eventfd");
}

Child::~Child() {
  stop();
}

void Child::start() {
  auto in = input();
  auto out = output();
  if (program_.sandboxed) {
    auto err = output();
    process_ = start_in_sandbox({.argv = program_.argv,
                                 .environment = program_.environment,
                                 .folder = program_.folder,
                                 .readable = program_.readable,
                                 .in = in.theirs.get(),
                                 .out = out.theirs.get(),
                                 .err = err.theirs.get()});
    err_ = std::move(err.ours);
    make_nonblocking(err_);
  } else {
    process_ = rendezvous::ChildProcess(
        rendezvous::spawn_and_confirm({.argv = program_.argv,
                                       .envp = environment_of(program_),
                                       .workdir = program_.folder,
                                       .stdin_fd = in.theirs.get(),
                                       .stdout_fd = out.theirs.get(),
                                       .leads = rendezvous::ChildSetup::Leads::group,
                                       .search_path = true,
                                       .only_stdio = true}));
  }
  in.theirs.reset();  // so that we see the end of its stdout when it exits
  out.theirs.reset();
  to_ = std::move(in.ours);
  from_ = std::move(out.ours);
  make_nonblocking(to_);
  make_nonblocking(from_);
  received_.clear();
  if (!program_.announces_ready) return;
  const auto word = exchange("", std::chrono::steady_clock::now() + kStart);
  if (word.find("\"error\"") == word.npos) return;
  try {
    parse_scores(word, 0);  // throws the reported error
  } catch (const std::runtime_error& e) {
    if (word.find("\"is_wrong\"") == word.npos) throw;
    throw rendezvous::InputError(e.what());
  }
}

void Child::stop() {
  if (!process_.running()) return;
  to_.reset();
  from_.reset();
  process_.kill();
  while (pass_on_stderr()) {
  }
  err_.reset();
}

void Child::throw_exit() {
  // Until it is reaped, no other group can have the id of its group.
  const bool exited = process_.wait_for_exit(kEnd);
  if (!exited) throw std::runtime_error("it closed its stdout but keeps running");
  const auto status = process_.kill();  // with the orphan processes of its group
  to_.reset();
  from_.reset();
  while (pass_on_stderr()) {
  }
  err_.reset();
  if (!status) throw std::runtime_error("its exit status is not known");
  if (const int signal = signal_of(*status, program_.sandboxed); signal != 0)
    throw std::runtime_error(
        fmt::format("{} was killed by signal {} before it answered", program_.argv[0], signal));
  if (WEXITSTATUS(*status) == exit_status::kCannotExecute)
    throw std::runtime_error(fmt::format(
        "cannot run {}; check that it exists and is executable",
        rendezvous::shown(program_.command.empty() ? program_.argv[0] : program_.command)));
  throw std::runtime_error(fmt::format("{} exited with status {} before it answered",
                                       program_.argv[0], WEXITSTATUS(*status)));
}

void Child::write_some(const std::string& out, std::size_t& sent) {
  ssize_t n = 0;
  int error = 0;
  {
    const WithoutSigpipe guard;
    n = ::write(to_.get(), out.data() + sent, out.size() - sent);
    error = errno;
  }
  if (n >= 0) {
    sent += static_cast<std::size_t>(n);
  } else if (error == EPIPE) {
    sent = out.size();  // the reason is found when its stdout is read
  } else if (error != EAGAIN && error != EINTR) {
    errno = error;
    rendezvous::throw_errno("cannot write to its stdin");
  }
}

bool Child::read_some() {
  std::array<char, 65536> buffer;
  const auto n = ::read(from_.get(), buffer.data(), buffer.size());
  if (n == 0) return false;
  if (n > 0) received_.append(buffer.data(), static_cast<std::size_t>(n));
  if (n < 0 && errno != EAGAIN && errno != EINTR) rendezvous::throw_errno("cannot read its stdout");
  if (received_.size() > kMaxAnswer) throw std::runtime_error("its answer is longer than 64 MiB");
  return true;
}

bool Child::pass_on_stderr() {
  if (!err_) return false;
  std::array<char, 65536> buffer;
  const auto n = ::read(err_.get(), buffer.data(), buffer.size());
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno == EAGAIN) return false;
  if (n <= 0) {
    err_.reset();
    return false;
  }
  // The program may be hostile: it must not control the terminal or fill the disk of a log.
  const std::string_view text(buffer.data(), static_cast<std::size_t>(n));
  if (shown_stderr_ > kMaxStderr) return true;
  const auto shown = text.substr(0, kMaxStderr - shown_stderr_);
  shown_stderr_ += shown.size();
  write_to_stderr(rendezvous::printable_output(shown));
  if (shown.size() == text.size()) return true;
  shown_stderr_ = kMaxStderr + 1;
  write_to_stderr(fmt::format(
      "\nmgpu-train: {} has written more than {} KiB to stderr for one request; the rest is not "
      "shown\n",
      rendezvous::shown(program_.command.empty() ? program_.argv[0] : program_.command),
      kMaxStderr >> 10));
  return true;
}

std::string Child::exchange(std::string out, Deadline deadline) {
  std::size_t sent = 0;
  shown_stderr_ = 0;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left <= 0ms) throw std::runtime_error("it did not answer in time (reward_timeout)");
    std::array<pollfd, 4> fds = {
        pollfd{from_.get(), POLLIN, 0}, pollfd{sent < out.size() ? to_.get() : -1, POLLOUT, 0},
        pollfd{err_.get(), POLLIN, 0}, pollfd{cancelled_.get(), POLLIN, 0}};
    const auto wait = static_cast<int>(std::min<long long>(left.count(), 60'000));
    if (::poll(fds.data(), fds.size(), wait) < 0 && errno != EINTR)
      rendezvous::throw_errno("cannot wait for its answer");
    if (fds[3].revents != 0) throw std::runtime_error("its request was cancelled");
    if (fds[2].revents != 0) pass_on_stderr();
    if (fds[1].revents != 0) write_some(out, sent);
    if (fds[0].revents == 0) continue;
    if (!read_some()) throw_exit();
    const auto line = received_.find('\n');
    if (line == received_.npos) continue;
    if (sent < out.size()) throw std::runtime_error("it answered before it had read the request");
    std::string answer = received_.substr(0, line);
    received_.erase(0, line + 1);
    if (!received_.empty())
      throw std::runtime_error("it answered one request with more than one line");
    return answer;
  }
}

std::string Child::request(const std::string& line, Deadline deadline, std::stop_token cancel) {
  const std::stop_callback wake(std::move(cancel),
                                [this] { ::eventfd_write(cancelled_.get(), 1); });
  try {
    if (!process_.running()) {
      const auto begun = std::chrono::steady_clock::now();
      start();
      deadline += std::chrono::steady_clock::now() - begun;
    }
    return exchange(line + "\n", deadline);
  } catch (...) {
    stop();  // a late answer must not be read as the next one
    throw;
  }
}

}  // namespace mgpu::rewards
