#include "launcher/devices/system_tree.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>

#include "rendezvous/base/small_file.hpp"

namespace mgpu::launcher {
namespace {

constexpr int kMostIds = 65536;  // more than any kernel supports; limits invalid input

// Reads a number off the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

void append_range(std::string& out, int first, int last) {
  if (!out.empty()) out += ',';
  out += std::to_string(first);
  if (last != first) out += '-' + std::to_string(last);
}

}  // namespace

std::optional<std::string> read_trimmed(const std::string& path) {
  auto text = rendezvous::read_kernel_file(path);
  if (text) text->erase(text->find_last_not_of(" \t\n") + 1);
  return text;
}

int read_number(const std::string& path, int otherwise) {
  const auto text = read_trimmed(path);
  std::string_view rest = text ? *text : std::string_view();
  return take_number(rest).value_or(otherwise);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error))
    names.push_back(at->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<int> parse_id_list(std::string_view text) {
  std::vector<int> ids;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    auto part = text.substr(begin, end - begin);
    begin = end + 1;
    part.remove_prefix(std::min(part.find_first_not_of(" \t\n"), part.size()));
    const auto first = take_number(part);
    if (!first || *first < 0) continue;
    int last = *first;
    if (part.starts_with('-')) {
      part.remove_prefix(1);
      last = take_number(part).value_or(last);
    }
    for (int id = *first; id <= std::min(last, kMostIds); ++id) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string id_list_text(const std::vector<int>& ascending) {
  std::string out;
  for (size_t first = 0; first < ascending.size();) {
    size_t last = first;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    append_range(out, ascending[first], ascending[last]);
    first = last + 1;
  }
  return out;
}

std::vector<int> in_both(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace mgpu::launcher
