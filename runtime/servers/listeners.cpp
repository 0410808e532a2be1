#include "runtime/servers/listeners.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/small_file.hpp"

namespace mgpu::servers {
namespace {

namespace fs = std::filesystem;

struct ListeningSocket {
  std::string inode, user;
};

// A file of /proc, empty if it cannot be read.
std::istringstream kernel_file(const fs::path& file) {
  return std::istringstream(rendezvous::read_kernel_file(file.string()).value_or(""));
}

// Collects the sockets that listen at the port from one of the kernel's tables.
void sockets_in(const fs::path& table, std::uint16_t port, std::vector<ListeningSocket>& sockets) {
  constexpr const char* kListens = "0A";
  auto lines = kernel_file(table);
  std::string line;
  std::getline(lines, line);  // the header
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    const std::vector<std::string> column{std::istream_iterator<std::string>(words), {}};
    if (column.size() < 10 || column[3] != kListens) continue;
    const auto colon = column[1].rfind(':');
    if (colon == std::string::npos) continue;
    unsigned number = 0;
    const auto* end = column[1].data() + column[1].size();
    if (std::from_chars(column[1].data() + colon + 1, end, number, 16).ptr == end && number == port)
      sockets.push_back({.inode = column[9], .user = column[7]});
  }
}

std::vector<ListeningSocket> sockets_at(const fs::path& proc, std::uint16_t port) {
  std::vector<ListeningSocket> sockets;
  for (const char* table : {"net/tcp", "net/tcp6"}) sockets_in(proc / table, port, sockets);
  return sockets;
}

bool has_socket(const fs::path& process, const std::set<std::string>& inodes) {
  std::error_code gone;
  for (const auto& fd : fs::directory_iterator(process / "fd", gone)) {
    const auto target = fs::read_symlink(fd.path(), gone).string();
    if (!gone && inodes.contains(target)) return true;
  }
  return false;
}

// The parts of a file that are separated by zero bytes.
std::vector<std::string> parts_of(const fs::path& file) {
  auto bytes = kernel_file(file);
  std::vector<std::string> parts;
  for (std::string part; std::getline(bytes, part, '\0');) parts.push_back(part);
  return parts;
}

// The product of vLLM's parallelism options.
std::int64_t workers_in(const std::vector<std::string>& arguments) {
  std::int64_t workers = 1;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto equals = arguments[i].find('=');
    auto option = arguments[i].substr(0, equals);
    std::replace(option.begin(), option.end(), '_', '-');
    if (option != "--tensor-parallel-size" && option != "-tp" && option != "--data-parallel-size" &&
        option != "-dp" && option != "--pipeline-parallel-size" && option != "-pp")
      continue;
    const auto value = equals != std::string::npos ? arguments[i].substr(equals + 1)
                       : i + 1 < arguments.size()  ? arguments[i + 1]
                                                   : "";
    std::int64_t number = 1;
    std::from_chars(value.data(), value.data() + value.size(), number);
    workers *= std::max<std::int64_t>(number, 1);
  }
  return workers;
}

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> list;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    std::erase(item, ' ');
    if (!item.empty()) list.push_back(item);
  }
  return list;
}

}  // namespace

std::vector<Listener> listeners(const std::string& proc, std::uint16_t port) {
  const fs::path root(proc);
  std::set<std::string> inodes;
  for (const auto& socket : sockets_at(root, port)) inodes.insert("socket:[" + socket.inode + "]");
  std::vector<Listener> found;
  std::error_code gone;
  if (inodes.empty()) return found;
  for (const auto& entry : fs::directory_iterator(root, gone)) {
    const auto number = entry.path().filename().string();
    if (number.find_first_not_of("0123456789") != number.npos || !has_socket(entry.path(), inodes))
      continue;
    Listener listener{.pid = std::stoi(number)};
    auto comm = kernel_file(entry.path() / "comm");
    std::getline(comm, listener.name);
    constexpr std::string_view kVariable = "CUDA_VISIBLE_DEVICES=";
    for (const auto& variable : parts_of(entry.path() / "environ"))
      if (variable.starts_with(kVariable)) listener.visible = variable.substr(kVariable.size());
    listener.workers = workers_in(parts_of(entry.path() / "cmdline"));
    found.push_back(std::move(listener));
  }
  std::ranges::sort(found, {}, &Listener::pid);
  return found;
}

std::set<uid_t> listening_users(const std::string& proc, std::uint16_t port) {
  std::set<uid_t> users;
  for (const auto& socket : sockets_at(proc, port)) {
    uid_t user = 0;
    const auto* end = socket.user.data() + socket.user.size();
    if (std::from_chars(socket.user.data(), end, user).ptr == end) users.insert(user);
  }
  return users;
}

std::vector<std::string> first_gpus(const std::optional<std::string>& visible, std::int64_t count) {
  std::vector<std::string> gpus;
  if (visible) {
    gpus = list_of(*visible);
    if (std::cmp_greater(gpus.size(), count)) gpus.resize(static_cast<std::size_t>(count));
  } else {
    for (std::int64_t gpu = 0; gpu < count; ++gpu) gpus.push_back(std::to_string(gpu));
  }
  return gpus;
}

std::string gpu_of_rank(const std::optional<std::string>& visible, int local_rank) {
  const auto gpus = first_gpus(visible, local_rank + 1);
  return std::cmp_less(local_rank, gpus.size()) ? gpus[static_cast<std::size_t>(local_rank)] : "";
}

const Listener* listener_on(const std::vector<Listener>& listeners, std::int64_t workers,
                            const std::string& gpu) {
  for (const auto& listener : listeners) {
    const auto gpus = first_gpus(listener.visible, workers > 0 ? workers : listener.workers);
    if (std::ranges::find(gpus, gpu) != gpus.end()) return &listener;
  }
  return nullptr;
}

std::optional<std::string> shared_gpu_error(const std::vector<Listener>& listeners,
                                            std::int64_t workers, const std::string& gpu, int rank,
                                            const std::string& url) {
  const auto* user = listener_on(listeners, workers, gpu);
  if (!user) return std::nullopt;
  return fmt::format(
      "GPU {} is used by rank {} and by the server at {} ({}, pid {}); assign them different "
      "GPUs with CUDA_VISIBLE_DEVICES, or use vllm_mode: colocate, where the built-in engine "
      "generates on the training GPUs",
      gpu, rank, url, user->name, user->pid);
}

}  // namespace mgpu::servers
