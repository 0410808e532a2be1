#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mgpu::launcher {

using Address = std::uint64_t;

// The memory of another process, read without stopping it. Every call throws std::runtime_error if
// the memory cannot be read.
class ProcessMemory {
 public:
  explicit ProcessMemory(pid_t pid) : pid_(pid) {}

  void read(Address from, void* to, std::size_t bytes) const;
  template <class Value>
  Value value(Address from) const {
    Value value{};
    read(from, &value, sizeof value);
    return value;
  }
  Address pointer(Address from) const { return value<Address>(from); }
  std::string bytes(Address from, std::size_t size) const;

 private:
  pid_t pid_;
};

// Where the process has loaded the symbols of the first of its files that exports all of them: its
// program, or a library whose file name begins with `library`. In the order of `names`; empty:
// there is no such file.
std::vector<Address> find_symbols(pid_t pid, const std::string& library,
                                  const std::vector<std::string>& names);

}  // namespace mgpu::launcher
