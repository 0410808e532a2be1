#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mgpu::launcher {

// One host of a hostfile.
struct Host {
  std::string user;          // empty: not said
  std::string name;          // a name or address
  std::optional<int> slots;  // ranks there; not said: what the host has
  int line = 0;

  std::string address() const { return user.empty() ? name : user + "@" + name; }
  friend bool operator==(const Host&, const Host&) = default;
};

// Reads the syntax that Open MPI and DeepSpeed share, one host a line in the order of node ranks:
//
//   # a comment
//   [user@]name [slots=N] [max_slots=N]
//
// A name that stands there again counts one slot more, as for Open MPI, where no line of it says
// slots=; otherwise that is an error, as for DeepSpeed. Throws UsageError with "path:line: ...".
// At most 4,096 hosts and lines of 1,024 bytes.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& path);

// The same of a file of at most 1 MiB.
std::vector<Host> read_hostfile(const std::string& path);

}  // namespace mgpu::launcher
