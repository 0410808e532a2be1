#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous::store {

// Tells which connections come from this machine, and from which user. PyTorch's clients of the
// store cannot authenticate, so the store has to look at their sockets.
class LocalPeers {
 public:
  LocalPeers();

  // Whether the address belongs to this machine (its network namespace). The list of addresses is
  // read again every second.
  bool is_local(const sockaddr& address);

  // Whether the process at the other end of this connection, which comes from this machine, runs as
  // one of these users: one question to the kernel (sock_diag). False also if that socket is closed
  // already. If the kernel cannot answer such questions, true for every process.
  bool runs_as(int connection, std::span<const uid_t> users);

  // The same for our effective user.
  bool is_own_user(int connection);

 private:
  enum class Kernel { unknown, answers, cannot };

  std::optional<uid_t> user_of(int connection) const;
  std::optional<bool> kernel_answers() const;

  UniqueFd diag_;
  Kernel kernel_ = Kernel::unknown;
  std::set<std::string> addresses_;
  std::chrono::steady_clock::time_point read_at_{};
};

}  // namespace mgpu::rendezvous::store
