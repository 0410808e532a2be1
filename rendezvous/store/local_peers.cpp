#include "rendezvous/store/local_peers.hpp"

#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace mgpu::rendezvous::store {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kAllStates = ~0U;

// An address without scope and port, as bytes; IPv4-mapped ones as IPv4.
struct Endpoint {
  std::string address;
  std::uint16_t port = 0;  // in network byte order
};

Endpoint endpoint_of(const sockaddr& from) {
  if (from.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &from, sizeof v4);
    return {{reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr}, v4.sin_port};
  }
  if (from.sa_family != AF_INET6) return {};
  sockaddr_in6 v6{};
  std::memcpy(&v6, &from, sizeof v6);
  const auto* bytes = reinterpret_cast<const char*>(&v6.sin6_addr);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return {{bytes + 12, 4}, v6.sin6_port};
  return {{bytes, 16}, v6.sin6_port};
}

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

}  // namespace

LocalPeers::LocalPeers()
    : diag_(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {
  const timeval limit{.tv_sec = 2,
                      .tv_usec = 0};  // normally the answer is there when send() returns
  ::setsockopt(diag_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

bool LocalPeers::is_local(const sockaddr& address) {
  const std::string bytes = endpoint_of(address).address;
  if (bytes.size() == 4 && bytes[0] == 127) return true;
  const auto now = std::chrono::steady_clock::now();
  if (addresses_.empty() || now > read_at_ + 1s) {
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) == 0) {
      addresses_.clear();
      for (const ifaddrs* at = first; at; at = at->ifa_next)
        if (at->ifa_addr) addresses_.insert(endpoint_of(*at->ifa_addr).address);
      ::freeifaddrs(first);
      read_at_ = now;
    }
  }
  return !bytes.empty() && addresses_.contains(bytes);
}

bool LocalPeers::is_own_user(int connection) {
  const uid_t own = ::geteuid();
  return runs_as(connection, {&own, 1});
}

bool LocalPeers::runs_as(int connection, std::span<const uid_t> users) {
  const auto user = user_of(connection);
  // "No such socket" can also mean that the kernel has no answers at all.
  if (kernel_ == Kernel::unknown && user) kernel_ = Kernel::answers;
  if (kernel_ == Kernel::unknown)
    if (const auto answers = kernel_answers())
      kernel_ = *answers ? Kernel::answers : Kernel::cannot;
  return kernel_ == Kernel::cannot ||
         (user && std::find(users.begin(), users.end(), *user) != users.end());
}

// Asks for a connection that certainly exists: one of our own. Nullopt: there is none, because
// descriptors or ports have run out, which another user may have caused.
std::optional<bool> LocalPeers::kernel_answers() const {
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto& address = reinterpret_cast<sockaddr&>(loopback);
  socklen_t size = sizeof loopback;
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), &address, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), &address, &size) != 0 ||
      ::connect(client.get(), &address, size) != 0)
    return {};
  const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted) return {};
  return user_of(accepted.get()).has_value();
}

// The user of the socket at the other end of a connection within this machine.
std::optional<uid_t> LocalPeers::user_of(int connection) const {
  sockaddr_storage ours{}, theirs{};
  socklen_t size = sizeof ours;
  if (::getsockname(connection, reinterpret_cast<sockaddr*>(&ours), &size) != 0) return {};
  size = sizeof theirs;
  if (::getpeername(connection, reinterpret_cast<sockaddr*>(&theirs), &size) != 0) return {};
  const Endpoint to = endpoint_of(reinterpret_cast<const sockaddr&>(ours));
  const Endpoint from = endpoint_of(reinterpret_cast<const sockaddr&>(theirs));
  Question question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  auto& request = question.request;
  request.sdiag_family = from.address.size() == 16 ? AF_INET6 : AF_INET;
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = kAllStates;
  request.id.idiag_sport = from.port;
  request.id.idiag_dport = to.port;
  std::memcpy(request.id.idiag_src, from.address.data(), from.address.size());
  std::memcpy(request.id.idiag_dst, to.address.data(), to.address.size());
  request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (::send(diag_.get(), &question, sizeof question, 0) != sizeof question) return {};
  alignas(nlmsghdr) std::array<char, 1024> answer;
  const auto got = ::recv(diag_.get(), answer.data(), answer.size(), 0);
  nlmsghdr header{};
  inet_diag_msg socket{};
  if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof socket))) return {};
  std::memcpy(&header, answer.data(), sizeof header);
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return {};
  std::memcpy(&socket, answer.data() + NLMSG_HDRLEN, sizeof socket);
  // A socket that is closed already has no owner; the kernel reports root.
  if (socket.idiag_inode == 0) return {};
  return socket.idiag_uid;
}

}  // namespace mgpu::rendezvous::store
