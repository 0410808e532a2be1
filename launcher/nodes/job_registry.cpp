#include "launcher/nodes/job_registry.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "rendezvous/base/host_name.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

// Creates the folder. Returns why it is not a folder that only this user can access; empty: it is.
std::string problem_with(const std::string& path) {
  ::mkdir(path.c_str(), 0700);
  struct stat st{};
  if (::lstat(path.c_str(), &st) != 0) return std::generic_category().message(errno);
  if (!S_ISDIR(st.st_mode)) return "it is not a folder";
  if (st.st_uid != ::geteuid()) return "it belongs to another user";
  return (st.st_mode & 077) == 0 ? "" : "other users have permissions for it";
}

// Whether only this user can create files in the folder.
bool only_we_write_to(const std::string& path) {
  struct stat st{};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == ::geteuid() &&
         (st.st_mode & 022) == 0;
}

// For when another user occupies the folder in /tmp; empty: there is none. The home may be shared
// by several machines, and notes are of one.
std::string folder_at_home() {
  const char* const home = std::getenv("HOME");
  const std::string host = rendezvous::host_name();
  if (!home || *home != '/' || !only_we_write_to(home) || host.empty() ||
      host.find('/') != std::string::npos)
    return {};
  const std::string cache = fmt::format("{}/.cache", home);
  ::mkdir(cache.c_str(), 0700);
  const std::string path = fmt::format("{}/mgpu-run-{}", cache, host);
  return only_we_write_to(cache) && problem_with(path).empty() ? path : std::string();
}

// The folder for the notes; empty if there is none that only this user can access.
std::string folder() {
  return registry_folder().path;
}

constexpr const char* kJobEnding = ".job";
constexpr const char* kStatusEnding = ".status";

// A file name for any job id: characters other than letters, digits and '-' become %xx.
std::string name_of(const std::string& job) {
  std::string name;
  for (const char c : job)
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-'
                ? std::string(1, c)
                : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  return name;
}

// The job id of a file name; empty if it is none.
std::string job_named(std::string_view name) {
  std::string job;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%') {
      job += name[i];
      continue;
    }
    unsigned char c = 0;
    if (i + 2 >= name.size() ||
        std::from_chars(name.data() + i + 1, name.data() + i + 3, c, 16).ptr != name.data() + i + 3)
      return {};
    job += static_cast<char>(c);
    i += 2;
  }
  return job;
}

std::string path_of(const std::string& job, const std::string& ending = kJobEnding) {
  const std::string in = folder();
  if (in.empty() || job.size() > 80) return {};
  return fmt::format("{}/{}{}", in, name_of(job), ending);
}

std::string status_path(const std::string& job) {
  return path_of(job, fmt::format(".{}{}", ::getpid(), kStatusEnding));
}

// When a process started, as the kernel counts it; empty if there is no such process. The pid and
// this time identify it.
std::string start_of(std::string_view pid) {
  if (pid.empty() || pid.find_first_not_of("0123456789") != std::string_view::npos) return {};
  constexpr int kFieldsBefore = 19;  // from the state, which follows the name
  const auto stat = rendezvous::read_kernel_file(fmt::format("/proc/{}/stat", pid)).value_or("");
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int i = 0; i <= kFieldsBefore; ++i) fields >> field;
  return fields ? field : std::string();
}

// The names of the notes with this ending, without it, in alphabetical order.
std::vector<std::string> notes_with(std::string_view ending) {
  std::vector<std::string> names;
  std::error_code ignored;
  const std::string in = folder();
  if (in.empty()) return names;
  for (const auto& entry : std::filesystem::directory_iterator(in, ignored)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(ending)) names.push_back(name.substr(0, name.size() - ending.size()));
  }
  std::ranges::sort(names);
  return names;
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

RegistryFolder registry_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string path = runtime && *runtime == '/'
                               ? fmt::format("{}/mgpu-run", runtime)
                               : fmt::format("/tmp/mgpu-run-{}", ::geteuid());
  const std::string why = problem_with(path);
  if (why.empty()) return {path, ""};
  return {folder_at_home(), fmt::format("cannot use {}: {}", rendezvous::shown(path, 300), why)};
}

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

std::vector<std::string> noted_jobs() {
  std::vector<std::string> jobs;
  for (const auto& name : notes_with(kJobEnding))
    if (auto job = job_named(name); !job.empty()) jobs.push_back(std::move(job));
  return jobs;
}

void note_status(const std::string& job, const std::string& status) {
  write_note(status_path(job),
             fmt::format("{}\n{}\n", start_of(std::to_string(::getpid())), status));
}

void forget_status(const std::string& job) {
  if (const std::string path = status_path(job); !path.empty()) ::unlink(path.c_str());
}

std::vector<std::string> find_statuses(const std::string& job) {
  std::vector<std::string> statuses;
  for (const auto& name : notes_with(kStatusEnding)) {
    const auto dot = name.rfind('.');
    if (dot == std::string::npos || (!job.empty() && name.substr(0, dot) != name_of(job))) continue;
    auto in = read_note(fmt::format("{}/{}{}", folder(), name, kStatusEnding));
    std::string started;
    std::string status;
    std::getline(in, started);
    std::getline(in, status);
    if (!started.empty() && started == start_of(name.substr(dot + 1)))
      statuses.push_back(std::move(status));
  }
  return statuses;
}

void NoteThread::settle() const {
  constexpr std::chrono::milliseconds kMoment{200};
  thread_.wait_until_idle(kMoment);
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
