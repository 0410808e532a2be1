#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::launcher {

// Where the kernel's files are; tests put a made-up machine there.
struct Roots {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
};

// What a small kernel file says, without white space at its end; nothing when it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);

// The number that such a file holds, or `otherwise`.
int read_number(const std::string& path, int otherwise);

// The names in a folder, sorted; none when it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

// The kernel's way to write sets of cores and memory nodes: "0-3,8,10-11". What is no number is
// passed over when read; numbers come out ascending and once.
std::vector<int> parse_id_list(std::string_view text);
std::string id_list_text(const std::vector<int>& ascending);

// What is in both of two ascending lists.
std::vector<int> in_both(const std::vector<int>& a, const std::vector<int>& b);

}  // namespace mgpu::launcher
