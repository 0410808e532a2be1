#pragma once

#include <cstdint>
#include <string>

namespace mgpu::launcher {

struct MemoryFacts;

// "61.2 GiB", "64.0 MiB".
std::string size_text(std::uint64_t bytes);

// "58.2 of 60.0 GiB".
std::string share_text(std::uint64_t used, std::uint64_t total);

// The known numbers, such as "this rank used up to 58.2 GiB, its 4 child processes 31.0 GiB, the
// cgroup up to 60.0 GiB of 60.0 GiB"; empty: none is known.
std::string memory_numbers(const MemoryFacts& memory);

}  // namespace mgpu::launcher
