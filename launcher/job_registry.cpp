#include "launcher/job_registry.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

// Empty when there is none that is ours alone.
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

// A file name for any job id: what is neither letter nor digit becomes its code.
std::string path_of(const std::string& job) {
  const std::string in = folder();
  if (in.empty() || job.size() > 80) return {};
  std::string name;
  for (const char c : job)
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-'
                ? std::string(1, c)
                : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  return fmt::format("{}/{}.job", in, name);
}

}  // namespace

void note_job(const std::string& job, const JobAddress& address) {
  const std::string path = path_of(job);
  if (path.empty()) return;
  const std::string text = fmt::format("{}\n{}\n{}\n{}\n", address.host, address.port, ::getpid(),
                                       address.secret ? '=' + *address.secret : "?");
  const std::string beside = fmt::format("{}.{}", path, ::getpid());
  const rendezvous::UniqueFd fd(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written =
      fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written || ::rename(beside.c_str(), path.c_str()) != 0) ::unlink(beside.c_str());
}

std::optional<JobAddress> find_job(const std::string& job) {
  const std::string path = path_of(job);
  std::ifstream in(path);
  JobAddress found;
  pid_t pid = 0;
  if (path.empty() || !std::getline(in, found.host) || !(in >> found.port >> pid))
    return std::nullopt;
  in.ignore();
  std::string secret;
  if (std::getline(in, secret) && secret.starts_with('=')) found.secret = secret.substr(1);
  return found;
}

void forget_job(const std::string& job) {
  const std::string path = path_of(job);
  std::ifstream in(path);
  std::string host;
  int port = 0;
  pid_t pid = 0;
  // Another agent on this machine may have taken its place.
  if (!path.empty() && std::getline(in, host) && in >> port >> pid && pid == ::getpid())
    ::unlink(path.c_str());
}

}  // namespace mgpu::launcher
