#include "launcher/nodes/credentials.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "launcher/nodes/munge.hpp"
#include "launcher/nodes/token.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {
namespace {

// The leader creates a secret and sends it sealed, as a munge credential. munged reports the user
// of a credential, so that only programs of the same user accept it.
rendezvous::Credentials munge_credentials() {
  const char* socket = std::getenv(kMungeSocketVariable);
  const auto munge = std::make_shared<Munge>(socket ? socket : "");
  munge->decode(munge->encode("is munged there?"));
  const auto seal = [munge](const std::string& secret) { return munge->encode(secret); };
  const auto unseal = [munge](const std::string& sealed) {
    auto opened = munge->decode(sealed);
    if (opened.uid != ::geteuid())
      throw std::runtime_error(
          fmt::format("the leader runs as uid {}, this agent as uid {}", opened.uid, ::geteuid()));
    return opened.payload;
  };
  return {.secret = make_secret(), .seal = seal, .unseal = unseal};
}

}  // namespace

rendezvous::Credentials find_credentials(const Options& options, const Variables& variables) {
  auto secret = find_secret(options, options.scheduler, variables, STDIN_FILENO);
  ::unsetenv(kTokenVariable);
  if (secret) return {.secret = std::move(secret->bytes)};
  if (options.insecure) return {};
  std::string munge_problem;
  if (options.scheduler.kind == SchedulerJob::Kind::slurm) {
    try {
      return munge_credentials();
    } catch (const std::exception& problem) {
      munge_problem = fmt::format(" ({})", problem.what());
    }
  }
  if (options.command == Command::status)
    throw UsageError(
        fmt::format("status {}: no shared secret; give the one of the job with --rdzv-token-file "
                    "FILE or MGPU_RDZV_TOKEN, or --insecure if the job has none",
                    rendezvous::shown(options.status_job)));
  const auto nodes =
      options.was_given("nnodes")
          ? options.origin("nnodes").text()
          : fmt::format("{} nodes (from {})", options.max_nodes, name_of(options.scheduler.kind));
  throw UsageError(
      fmt::format("{}: no shared secret{}; give all nodes the same one with --rdzv-token-file FILE "
                  "or MGPU_RDZV_TOKEN, or accept every node with --insecure",
                  nodes, munge_problem));
}

}  // namespace mgpu::launcher
