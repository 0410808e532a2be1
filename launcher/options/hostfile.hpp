#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// One host of a hostfile.
struct Host {
  std::string user;          // empty: not given
  std::string name;          // a name or address
  std::optional<int> slots;  // ranks on the host; not given: decided there
  int line = 0;

  std::string address() const { return user.empty() ? name : user + "@" + name; }
  friend bool operator==(const Host&, const Host&) = default;
};

// Reads the syntax that Open MPI and DeepSpeed share, one host per line in the order of node ranks:
//
//   # a comment
//   [user@]name [slots=N] [max_slots=N]
//
// Each further line of the same name without slots= adds one slot, as in Open MPI; if any line of
// that name has slots=, a duplicate is an error, as in DeepSpeed. Throws UsageError with
// "path:line: ...".
// At most 4,096 hosts and lines of 1,024 bytes.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& path);

// The same for the file of --hostfile, which may have at most 1 MiB.
std::vector<Host> read_hostfile(const Options& options);

}  // namespace mgpu::launcher
