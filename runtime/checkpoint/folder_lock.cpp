#include "runtime/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::UniqueFd;

constexpr auto kRetry = std::chrono::milliseconds(50);
constexpr std::size_t kLongestOwner = 2000;
constexpr const char* kNoRunId = "none";

// The contents of the file, a line for each.
struct Owner {
  std::string process, host, cookie, run_id;

  std::string to_text() const {
    return fmt::format("{}\n{}\n{}\n{}\n", process, host, cookie, run_id);
  }
};

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

Owner owner_in(const std::string& path) {
  const auto file = rendezvous::read_small_file(path, kLongestOwner, rendezvous::FileKind::regular);
  std::istringstream lines(file.text);
  Owner owner;
  for (auto* line : {&owner.process, &owner.host, &owner.cookie, &owner.run_id})
    std::getline(lines, *line);
  return owner;
}

// Cookies are those of one launcher: an attempt on another machine, or under a launcher that was
// started again, has another one.
bool is_same_job(const Owner& owner, const LockingJob& job) {
  if (!job.is_restart) return false;
  return (!job.cookie.empty() && owner.cookie == job.cookie) ||
         (!job.run_id.empty() && job.run_id != kNoRunId && owner.run_id == job.run_id);
}

// Whether the owner ran on this machine and its process does not exist.
bool has_ended(const Owner& owner) {
  pid_t pid = 0;
  const char* const end = owner.process.data() + owner.process.size();
  const auto [stop, error] = std::from_chars(owner.process.data(), end, pid);
  return error == std::errc() && stop == end && pid > 0 && owner.host == host_name() &&
         ::kill(pid, 0) != 0 && errno == ESRCH;
}

FolderInUse in_use(const std::string& folder, const std::string& path, const Owner& owner) {
  const auto process = owner.process.empty()
                           ? std::string("another process")
                           : fmt::format("process {} on {}", rendezvous::shown(owner.process),
                                         rendezvous::shown(owner.host));
  if (has_ended(owner))
    return FolderInUse(
        fmt::format("{} is in use: its last job, {}, has ended, but another process holds the lock "
                    "{}; end that process (`fuser {}` finds it), or use another folder",
                    folder, process, path, path));
  return FolderInUse(fmt::format(
      "{} is in use by {}; wait until that job has ended, or use another folder (if its machine "
      "has failed, remove {})",
      folder, process, path));
}

// Whether the path still names this file, which its last owner may have removed.
bool is_at(const UniqueFd& fd, const std::string& path) {
  struct stat open{}, named{};
  return ::fstat(fd.get(), &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const LockingJob& job, Patience patience)
    : path_((std::filesystem::path(folder) / ".lock").string()) {
  const auto begin = Clock::now();
  while (true) {
    UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return;
    // Any user who can open the file can lock it. This changes the file of an earlier version, if
    // it is ours.
    ::fchmod(fd.get(), 0600);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      if (!is_at(fd, path_)) continue;
      fd_ = std::move(fd);
      break;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    const auto owner = owner_in(path_);
    const bool same = is_same_job(owner, job);
    if (Clock::now() - begin < (same ? patience.same_job : patience.other_job))
      std::this_thread::sleep_for(kRetry);
    else if (!same)
      throw in_use(folder, path_, owner);
    else
      ::unlink(path_.c_str());  // a process that SIGKILL cannot end keeps the lock of a lost file
  }
  const auto text =
      Owner{std::to_string(::getpid()), host_name(), job.cookie, job.run_id}.to_text();
  if (::ftruncate(fd_.get(), 0) == 0)
    static_cast<void>(::pwrite(fd_.get(), text.data(), text.size(), 0) == 0);
}

FolderLock::~FolderLock() {
  if (fd_ && is_at(fd_, path_)) ::unlink(path_.c_str());
}

}  // namespace mgpu::checkpoint
