#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::launcher {

// The roots of the kernel's files; tests use a fake machine.
struct Roots {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
};

// The content of a small kernel file without trailing white space; nullopt: it cannot be read.
std::optional<std::string> read_trimmed(const std::string& path);

// The number in such a file, or `otherwise`.
int read_number(const std::string& path, int otherwise);

// The names in a folder, sorted; empty when it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

// The kernel's notation for sets of cores and memory nodes: "0-3,8,10-11". Parsing skips entries
// that are not numbers and returns each number once, ascending.
std::vector<int> parse_id_list(std::string_view text);
std::string id_list_text(const std::vector<int>& ascending);

// The intersection of two ascending lists.
std::vector<int> in_both(const std::vector<int>& a, const std::vector<int>& b);

}  // namespace mgpu::launcher
