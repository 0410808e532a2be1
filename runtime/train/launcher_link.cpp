#include "runtime/train/launcher_link.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/background_thread.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::train {
namespace {

using rendezvous::UniqueFd;

bool orders_abort(std::string_view line) {
  const auto json = rendezvous::parse_untrusted_json(line);
  const auto abort = json.is_object() ? json.find("abort") : json.end();
  return json.is_object() && abort != json.end() && abort->is_boolean() && abort->get<bool>();
}

// Returns when the launcher has closed the connection.
void read_orders(const UniqueFd& fd) {
  std::string pending;
  char bytes[512];
  while (true) {
    const auto got = ::recv(fd.get(), bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    pending.append(bytes, static_cast<std::size_t>(got));
    for (auto end = pending.find('\n'); end != pending.npos; end = pending.find('\n')) {
      // Not exit(): other threads wait for the failed rank in calls that never return.
      if (orders_abort(std::string_view(pending).substr(0, end)))
        ::_exit(exit_status::of_signal(SIGTERM));
      pending.erase(0, end + 1);
    }
  }
}

}  // namespace

UniqueFd connect_to_launcher(const std::string& address) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (!address.starts_with('@') || address.size() > sizeof to.sun_path) return {};
  std::memcpy(to.sun_path + 1, address.data() + 1, address.size() - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0) return {};
  return fd;
}

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

void obey_abort_orders(const rendezvous::Contract& contract) {
  auto fd = std::make_shared<UniqueFd>(connect_to_launcher(contract.worker_socket));
  const auto hello = fmt::format("{{\"rank\": {}, \"aborts\": true}}\n", contract.rank);
  if (!*fd || !send_all(fd->get(), hello)) return;
  rendezvous::run_in_background([fd] { read_orders(*fd); });
}

StepReports::StepReports(const rendezvous::Contract& contract)
    : rank_(contract.rank), launcher_(connect_to_launcher(contract.worker_socket)) {}

void StepReports::report(std::int64_t step) {
  constexpr std::chrono::milliseconds kApart{500};
  const auto now = Clock::now();
  if (!launcher_ || now - last_ < kApart) return;
  last_ = now;
  const auto line = fmt::format("{{\"rank\": {}, \"step\": {}}}\n", rank_, step);
  // A part of a line would make the rest unreadable: it ends the reports.
  const auto sent = ::send(launcher_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(line.size()) && !(sent < 0 && errno == EAGAIN)) launcher_ = {};
}

}  // namespace mgpu::train
