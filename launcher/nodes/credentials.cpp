#include "launcher/nodes/credentials.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "launcher/nodes/munge.hpp"
#include "launcher/nodes/munge_sealer.hpp"
#include "launcher/nodes/token.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {
namespace {

// A shell command whose file --rdzv-token-file accepts.
constexpr const char* kCreateSecret = "`(umask 077; openssl rand -hex 32 > token)`";

// The leader creates a secret and sends it sealed, as a munge credential for our own user.
rendezvous::Credentials munge_credentials() {
  const char* socket = std::getenv(kMungeSocketVariable);
  return {.secret = make_secret(), .sealer = std::make_shared<MungeSealer>(socket ? socket : "")};
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
      fmt::format("{}: no shared secret{}; create one with {}, copy it to all nodes and add "
                  "--rdzv-token-file token on each (or set MGPU_RDZV_TOKEN to its content), or "
                  "accept every node with --insecure",
                  nodes, munge_problem, kCreateSecret));
}

// With munge only the leader has a secret, so nobody else could check what it signs.
void check_signing(const Options& options, const RendezvousPlan& plan,
                   const rendezvous::Credentials& credentials) {
  if (!plan.etcd || !credentials.sealer || plan.accept_unsigned_state) return;
  throw UsageError(fmt::format(
      "{}: with munge alone the job's values in etcd cannot be signed; give all nodes the same "
      "secret with --rdzv-token-file FILE or MGPU_RDZV_TOKEN, or, if nobody else can write to this "
      "etcd, set --rdzv-conf accept_unsigned_state=true",
      options.origin("rdzv-backend", options.rdzv_backend).text()));
}

}  // namespace mgpu::launcher
