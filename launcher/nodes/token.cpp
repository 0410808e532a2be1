#include "launcher/nodes/token.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

using rendezvous::error_text;
using rendezvous::UniqueFd;

// The leader proves that it has the secret to anybody who connects, who can then guess offline.
constexpr std::size_t kMinTokenBytes = 16;
constexpr std::size_t kMaxTokenBytes = 4096;
// Read of a token and the end of its line; more is too long with any end.
constexpr std::size_t kMostBytes = kMaxTokenBytes + 3;

std::string checked(std::string bytes, const std::string& from) {
  if (bytes.ends_with('\n')) bytes.pop_back();
  if (bytes.ends_with('\r')) bytes.pop_back();
  if (bytes.empty())
    throw UsageError(
        fmt::format("{}: the token is empty; make one with: openssl rand -hex 32", from));
  if (bytes.size() < kMinTokenBytes)
    throw UsageError(fmt::format(
        "{}: the token has {} bytes; it needs at least {}. Make one with: openssl rand -hex 32",
        from, bytes.size(), kMinTokenBytes));
  if (bytes.size() > kMaxTokenBytes)
    throw UsageError(fmt::format("{}: the token is too long; it may have at most {} bytes", from,
                                 kMaxTokenBytes));
  return bytes;
}

// Checks the open file: the path may refer to another file by now.
void check_owner_and_mode(int fd, const std::string& path) {
  struct stat st{};
  if (::fstat(fd, &st) != 0)
    throw UsageError(fmt::format("cannot read the token file {}: {}", path, error_text(errno)));
  if (!S_ISREG(st.st_mode))
    throw UsageError(fmt::format(
        "token file {}: not a regular file; name a file that contains the token", path));
  if (st.st_uid != ::geteuid() && st.st_uid != 0)
    throw UsageError(
        fmt::format("token file {}: it belongs to uid {}, but mgpu-run runs as uid {}; use a copy "
                    "that belongs to this user",
                    path, st.st_uid, ::geteuid()));
  if (st.st_mode & (S_IRWXG | S_IRWXO))
    throw UsageError(fmt::format(
        "token file {}: other users can access it (mode {:04o}); run chmod 600 on it, or set "
        "defaultMode: 0400 for a Kubernetes Secret",
        path, st.st_mode & 07777));
}

[[noreturn]] void throw_unreadable(const std::string& from, int error) {
  throw UsageError(fmt::format("{}: cannot read the token: {}", from, error_text(error)));
}

// Reads to the end of the line and no further, and not more than is needed to detect that it is too
// long.
std::string read_line(int fd, const std::string& from) {
  std::string bytes;
  while (bytes.size() < kMostBytes && !bytes.ends_with('\n')) {
    char byte = 0;
    const ssize_t n = ::read(fd, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_unreadable(from, errno);
    if (n == 0) break;
    bytes += byte;
  }
  return bytes;
}

}  // namespace

std::string read_secret_file(const std::string& path) {
  const auto name = shown(path, 300);
  // Non-blocking: opening a pipe would wait for its writer.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd)
    throw UsageError(fmt::format("cannot read the token file {}: {}", name, error_text(errno)));
  check_owner_and_mode(fd.get(), name);
  const auto from = fmt::format("token file {}", name);
  const auto file = rendezvous::read_small_file(fd.get(), kMostBytes);
  if (file.state == rendezvous::SmallFile::State::unreadable) throw_unreadable(from, file.error);
  return checked(file.text, from);
}

std::optional<Secret> find_secret(const Options& options, const SchedulerJob& scheduler,
                                  const Variables& variables, int stdin_fd,
                                  const std::string& mounted) {
  if (options.rdzv_token_stdin) {
    const std::string from = "stdin";
    return Secret{checked(read_line(stdin_fd, from), from), from};
  }
  if (!options.rdzv_token_file.empty())
    return Secret{read_secret_file(options.rdzv_token_file), options.rdzv_token_file};
  if (const auto text = variables(kTokenVariable); text && !text->empty())
    return Secret{checked(*text, kTokenVariable), kTokenVariable};
  if (scheduler.kind == SchedulerJob::Kind::kubernetes && ::access(mounted.c_str(), F_OK) == 0)
    return Secret{read_secret_file(mounted), mounted};
  return std::nullopt;
}

std::string make_secret() {
  std::array<unsigned char, 32> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    rendezvous::throw_errno("cannot get random bytes for a token");
  std::string digits;
  for (const unsigned char byte : random) digits += fmt::format("{:02x}", byte);
  return digits;
}

}  // namespace mgpu::launcher
