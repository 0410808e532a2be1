#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/options/options.hpp"
#include "launcher/options/variables.hpp"

namespace mgpu::launcher {

// The secret that all agents of a job share.
struct Secret {
  std::string bytes;
  std::string from;  // for messages: the file, the variable, or stdin
};

// Where a pod's Secret is mounted; used if no other secret is given.
inline constexpr const char* kMountedToken = "/run/secrets/mgpu/token";
inline constexpr const char* kTokenVariable = "MGPU_RDZV_TOKEN";

// Variables that can contain a secret: the job's, and the password for etcd. Ranks do not inherit
// them (environment_of in rank_group).
inline constexpr std::array<std::string_view, 3> kSecretVariables = {
    kTokenVariable, "PET_RDZV_CONF", "MGPU_RDZV_CONF"};

// Returns the first of these that is present: with --rdzv-token-stdin the first line of stdin
// (`stdin_fd` is read up to the end of that line and no further; blocks until it arrives),
// --rdzv-token-file, MGPU_RDZV_TOKEN, and in Kubernetes the file `mounted`. Nothing: no secret is
// given. Throws UsageError with a one-line message if the given secret is unusable.
std::optional<Secret> find_secret(const Options& options, const SchedulerJob& scheduler,
                                  const Variables& variables, int stdin_fd,
                                  const std::string& mounted = kMountedToken);

// Reads a secret from a file, without the trailing newline. It must not be empty and may have at
// most 4 KiB. The file must belong to this user or root and must not be accessible to others.
// Throws UsageError.
std::string read_secret_file(const std::string& path);

// A new secret: 256 random bits as 64 hexadecimal digits.
std::string make_secret();

}  // namespace mgpu::launcher
