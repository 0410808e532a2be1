#include "runtime/hub/failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/spelling.hpp"
#include "runtime/hub/program.hpp"

namespace mgpu::hub {
namespace {

constexpr std::size_t kShownOutput = 300;

enum class Reason {
  disk_full,
  read_only,
  gated,
  bad_token,
  bad_revision,
  not_found,
  rate_limited,
  partial_file,
  unreachable,
  server,
  unknown,
};

struct Sign {
  Reason reason;
  std::string_view text;  // in lower case
};

// What hf, the older huggingface-cli and modelscope print. The first match decides.
constexpr std::array kSigns{
    Sign{Reason::disk_full, "no space left on device"},
    Sign{Reason::disk_full, "disk quota exceeded"},
    Sign{Reason::gated, "verify your access rights"},  // after "permission denied"
    Sign{Reason::read_only, "read-only file system"},
    Sign{Reason::read_only, "permission denied"},
    Sign{Reason::read_only, "permissionerror"},
    Sign{Reason::gated, "requires approval"},
    Sign{Reason::gated, "gatedrepoerror"},
    Sign{Reason::gated, "gated repo"},
    Sign{Reason::gated, "in the authorized list"},
    Sign{Reason::bad_token, "invalid user token"},
    Sign{Reason::bad_token, "invalid credentials in authorization header"},
    Sign{Reason::bad_token, "token is invalid"},
    Sign{Reason::bad_token, "verify your token is valid"},
    Sign{Reason::bad_revision, "revision not found"},
    Sign{Reason::bad_revision, "revisionnotfounderror"},
    Sign{Reason::bad_revision, "invalid rev id"},
    Sign{Reason::rate_limited, "error 429"},
    Sign{Reason::rate_limited, "too many requests"},
    Sign{Reason::rate_limited, "ratelimiterror"},
    Sign{Reason::rate_limited, "rate limit exceeded"},
    Sign{Reason::partial_file, "consistency check failed"},
    Sign{Reason::partial_file, "without sending complete message body"},
    Sign{Reason::partial_file, "incompleteread"},
    Sign{Reason::partial_file, "filesizemismatch"},
    Sign{Reason::partial_file, "the remote object is empty, truncated"},
    Sign{Reason::partial_file, "fileintegrityerror"},
    Sign{Reason::not_found, "repositorynotfounderror"},
    Sign{Reason::not_found, "repository not found"},
    Sign{Reason::not_found, "' not found."},
    Sign{Reason::not_found, "401 unauthorized"},
    Sign{Reason::not_found, "401 client error"},
    Sign{Reason::not_found, "403 forbidden"},
    Sign{Reason::not_found, "403 client error"},
    Sign{Reason::not_found, "404 not found"},
    Sign{Reason::not_found, "404 client error"},
    Sign{Reason::not_found, "notexisterror"},
    Sign{Reason::not_found, "does not exist"},
    Sign{Reason::server, "server error"},
    Sign{Reason::server, "server is currently unavailable"},
    Sign{Reason::server, "bad gateway"},
    Sign{Reason::server, "service unavailable"},
    Sign{Reason::server, "gateway time-out"},
    Sign{Reason::server, "gateway timeout"},
    Sign{Reason::unreachable, "connection refused"},
    Sign{Reason::unreachable, "connection reset"},
    Sign{Reason::unreachable, "connecterror"},
    Sign{Reason::unreachable, "connectionerror"},
    Sign{Reason::unreachable, "timed out"},
    Sign{Reason::unreachable, "timeout"},
    Sign{Reason::unreachable, "name or service not known"},
    Sign{Reason::unreachable, "temporary failure in name resolution"},
    Sign{Reason::unreachable, "network is unreachable"},
    Sign{Reason::unreachable, "no route to host"},
    Sign{Reason::unreachable, "ssl"},
    Sign{Reason::unreachable, "proxyerror"},
    Sign{Reason::unreachable, "cannot reach"},
};

Reason reason_of(std::string output) {
  std::ranges::transform(output, output.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const auto& sign : kSigns)
    if (output.find(sign.text) != output.npos) return sign.reason;
  return Reason::unknown;
}

// The line that names the error: the last one that begins with a word and a colon, else the last.
std::string error_line(const std::string& output) {
  std::string last, error;
  for (std::size_t begin = 0; begin < output.size();) {
    const auto end = std::min(output.find('\n', begin), output.size());
    auto line = output.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(' ') == line.npos || line.starts_with("Hint:") ||
        line.starts_with("Suggestion:"))
      continue;
    const auto colon = line.find(": ");
    if (colon != line.npos && line.find(' ') > colon && !line.starts_with("Warning:")) error = line;
    last = std::move(line);
  }
  return error.empty() ? last : error;
}

std::string login(const Repository& repository) {
  return repository.site == Site::modelscope ? "run modelscope login"
                                             : "run hf auth login, or set HF_TOKEN";
}

std::string cause(const Repository& repository, Reason reason, const std::string& output) {
  const auto site = endpoint(repository.site);
  const auto what = noun(repository);
  const auto page =
      fmt::format("{}/{}{}", site, repository.is_dataset() ? "datasets/" : "", repository.name);
  switch (reason) {
    case Reason::disk_full:
      return fmt::format(
          "No space left on device: make space on the disk of {}, or set {} to a folder on another "
          "one",
          repository_folder(repository), cache_variable(repository.site));
    case Reason::read_only:
      return fmt::format(
          "{} cannot be written ({}); set {} to a folder that can", repository_folder(repository),
          rendezvous::shown(error_line(output), kShownOutput), cache_variable(repository.site));
    case Reason::gated:
      return fmt::format("its owner decides who may use it: request access at {}, then {}", page,
                         login(repository));
    case Reason::bad_token:
      return fmt::format("{} does not accept the token; {}", site, login(repository));
    case Reason::bad_revision:
      return fmt::format("it has no revision {}; see {}", repository.revision, page);
    case Reason::not_found:
      return fmt::format(
          "there is no such path here, and {} has no {} of this name that you may read; check the "
          "name, or for a private one {}",
          site, what, login(repository));
    case Reason::rate_limited:
      return fmt::format("{} limits the number of requests (429); wait a few minutes, or {}", site,
                         login(repository));
    case Reason::partial_file:
      return fmt::format(
          "{} has sent only a part of a file; start again to continue, or check "
          "the proxies on the way",
          site);
    case Reason::server:
      return fmt::format("{} has a fault ({}); start again later", site,
                         rendezvous::shown(error_line(output), kShownOutput));
    case Reason::unreachable:
      return fmt::format(
          "{} cannot be reached ({}); check the network, {} and proxies, or copy the cache from "
          "another machine",
          site, rendezvous::shown(error_line(output), kShownOutput),
          repository.site == Site::modelscope ? "MODELSCOPE_ENDPOINT" : "HF_ENDPOINT");
    case Reason::unknown:
      break;
  }
  const auto line = error_line(output);
  return fmt::format("{} failed{}; to see more: {}", program_name(repository.site),
                     line.empty() ? "" : ": " + rendezvous::shown(line, kShownOutput),
                     download_command(repository));
}

}  // namespace

std::string error_line_of(const std::string& output) {
  return rendezvous::shown(error_line(rendezvous::printable_output(output)), kShownOutput);
}

HubError failure_of(const Repository& repository, const std::string& output) {
  const auto text = rendezvous::printable_output(output);
  const auto reason = reason_of(text);
  const bool passing = reason == Reason::rate_limited || reason == Reason::partial_file ||
                       reason == Reason::server || reason == Reason::unreachable;
  return {fmt::format("cannot download {} {}: {}", noun(repository), repository.name,
                      cause(repository, reason, text)),
          passing};
}

}  // namespace mgpu::hub
