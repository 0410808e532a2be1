#include "runtime/hub/download_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "rendezvous/base/host_name.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::hub {
namespace {

using namespace std::chrono_literals;
using rendezvous::UniqueFd;

constexpr auto kQuietWait = 1s;
constexpr auto kRetry = 100ms;

std::string owner_in(const std::string& path) {
  auto text = rendezvous::read_small_file(path, 200, rendezvous::FileKind::regular).text;
  if (const auto end = text.find('\n'); end != text.npos) text.resize(end);
  return text.empty() ? "another process" : rendezvous::shown(text);
}

std::string this_process() {
  return fmt::format("process {} on {}\n", ::getpid(), rendezvous::host_name());
}

}  // namespace

DownloadLock::DownloadLock(const std::string& path, std::optional<Clock::time_point> deadline,
                           const std::function<void(const std::string& owner)>& on_wait) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd) return;
  const auto begin = Clock::now();
  bool told = false;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // this file system has no locks
    const auto now = Clock::now();
    if (deadline && now > *deadline)
      throw std::runtime_error(fmt::format("{} is downloading it", owner_in(path)));
    if (!told && now - begin > kQuietWait) {
      told = true;
      on_wait(owner_in(path));
    }
    std::this_thread::sleep_for(kRetry);
  }
  fd_ = std::move(fd);
}

void DownloadLock::begin() {
  if (!fd_) return;
  const auto text = this_process();
  if (::ftruncate(fd_.get(), 0) == 0)
    static_cast<void>(::pwrite(fd_.get(), text.data(), text.size(), 0) == 0);
}

void DownloadLock::complete() {
  if (fd_) static_cast<void>(::ftruncate(fd_.get(), 0) == 0);
}

bool is_incomplete(const std::string& lock_path) {
  struct stat status{};
  return ::stat(lock_path.c_str(), &status) == 0 && status.st_size > 0;
}

}  // namespace mgpu::hub
