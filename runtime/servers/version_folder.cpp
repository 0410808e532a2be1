#include "runtime/servers/version_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <vector>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::servers {
namespace {

using rendezvous::UniqueFd;

constexpr std::string_view kPrefix = "mgpu-train-", kStep = "-step-";
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr int kDeepest = 16;  // an adapter's folder has files and at most one folder

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> names_in(UniqueFd folder) {
  std::vector<std::string> names;
  const auto close = [](DIR* dir) { ::closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> dir(::fdopendir(folder.get()), close);
  if (!dir) return names;
  folder.release();
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

void remove_tree(int parent, const std::string& name, int depth) {
  UniqueFd folder(::openat(parent, name.c_str(), kFolderFlags));
  if (!folder) {
    ::unlinkat(parent, name.c_str(), 0);  // a file, or a link itself
    return;
  }
  if (depth == kDeepest) return;
  const int fd = folder.get();
  UniqueFd listed(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  for (const auto& below : names_in(std::move(listed))) remove_tree(fd, below, depth + 1);
  ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);
}

}  // namespace

std::string version_name(std::string_view mark, int number, std::int64_t step) {
  return fmt::format("{}{}-{}{}{}", kPrefix, mark, number, kStep, step);
}

bool is_version_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  const auto step = name.rfind(kStep);
  if (step == std::string_view::npos || !is_digits(name.substr(step + kStep.size()))) return false;
  name = name.substr(0, step);
  const auto number = name.rfind('-');
  if (number == std::string_view::npos || !is_digits(name.substr(number + 1))) return false;
  const auto mark = name.substr(0, number);
  return !mark.empty() && std::all_of(mark.begin(), mark.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_';
  });
}

void remove_version(const std::string& parent, std::string_view name) {
  if (!is_version_name(name)) return;
  const UniqueFd folder(::open(parent.c_str(), kFolderFlags));
  if (folder) remove_tree(folder.get(), std::string(name), 0);
}

void remove_all_versions(const std::string& parent) {
  for (const auto& name : names_in(UniqueFd(::open(parent.c_str(), kFolderFlags))))
    remove_version(parent, name);
  ::rmdir(parent.c_str());
}

}  // namespace mgpu::servers
