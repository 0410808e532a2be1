#include "launcher/nodes/job_registry.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string>
#include <utility>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

// The folder for the notes; empty if there is none that only this user can access.
std::string folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string path = runtime && *runtime == '/'
                               ? fmt::format("{}/mgpu-run", runtime)
                               : fmt::format("/tmp/mgpu-run-{}", ::geteuid());
  ::mkdir(path.c_str(), 0700);
  struct stat st{};
  const bool ours = ::lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) &&
                    st.st_uid == ::geteuid() && (st.st_mode & 077) == 0;
  return ours ? path : std::string();
}

// A file name for any job id: characters other than letters, digits and '-' become %xx.
std::string path_of(const std::string& job, const std::string& ending = ".job") {
  const std::string in = folder();
  if (in.empty() || job.size() > 80) return {};
  std::string name;
  for (const char c : job)
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-'
                ? std::string(1, c)
                : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  return fmt::format("{}/{}{}", in, name, ending);
}

std::string trace_path(const std::string& job, int port) {
  return path_of(job, fmt::format(".{}.leader", port));
}

// Writes the file atomically, readable by this user only.
void write_note(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  const std::string temporary = fmt::format("{}.{}", path, ::getpid());
  const rendezvous::UniqueFd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written =
      fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
}

// A note of write_note; empty if there is none.
std::istringstream read_note(const std::string& path) {
  constexpr std::size_t kMostBytes = 64 << 10;
  return std::istringstream(path.empty() ? "" : rendezvous::read_small_file(path, kMostBytes).text);
}

struct Note {
  JobAddress address;
  pid_t pid = 0;
};

std::optional<Note> read_job_note(const std::string& path) {
  auto in = read_note(path);
  Note note;
  if (!std::getline(in, note.address.host) || !(in >> note.address.port >> note.pid))
    return std::nullopt;
  in.ignore();
  std::string secret;
  if (std::getline(in, secret) && secret.starts_with('=')) note.address.secret = secret.substr(1);
  return note;
}

}  // namespace

void note_job(const std::string& job, const JobAddress& address) {
  write_note(path_of(job), fmt::format("{}\n{}\n{}\n{}\n", address.host, address.port, ::getpid(),
                                       address.secret ? '=' + *address.secret : "?"));
}

std::optional<JobAddress> find_job(const std::string& job) {
  auto note = read_job_note(path_of(job));
  return note ? std::optional(std::move(note->address)) : std::nullopt;
}

void forget_job(const std::string& job) {
  const std::string path = path_of(job);
  // Another agent on this machine may have replaced the note.
  if (const auto note = read_job_note(path); note && note->pid == ::getpid())
    ::unlink(path.c_str());
}

void trace_leader(const std::string& job, int port, int nodes,
                  std::chrono::nanoseconds lease_and_grace) {
  write_note(trace_path(job, port), fmt::format("{} {}\n", nodes, lease_and_grace.count()));
}

void erase_leader(const std::string& job, int port) {
  if (const std::string path = trace_path(job, port); !path.empty()) ::unlink(path.c_str());
}

std::optional<LeaderTrace> find_leader(const std::string& job, int port) {
  const std::string path = trace_path(job, port);
  struct stat st{};
  auto in = read_note(path);
  LeaderTrace trace;
  std::int64_t lease_and_grace = 0;
  timespec now{};
  if (path.empty() || ::stat(path.c_str(), &st) != 0 || !(in >> trace.nodes >> lease_and_grace) ||
      trace.nodes < 1 || lease_and_grace < 0 || ::clock_gettime(CLOCK_REALTIME, &now) != 0)
    return std::nullopt;
  trace.lease_and_grace = std::chrono::nanoseconds(lease_and_grace);
  trace.age = std::chrono::seconds(now.tv_sec - st.st_mtim.tv_sec) +
              std::chrono::nanoseconds(now.tv_nsec - st.st_mtim.tv_nsec);
  return trace;
}

}  // namespace mgpu::launcher
