#pragma once

#include <optional>
#include <string>

#include "launcher/options/options.hpp"
#include "launcher/options/variables.hpp"

namespace mgpu::launcher {

// What all agents of a job know and nobody else does.
struct Secret {
  std::string bytes;
  std::string from;  // for people: the file, the variable, stdin
};

// Where a pod finds the secret that is mounted for it when nothing else names one.
inline constexpr const char* kMountedToken = "/run/secrets/mgpu/token";
inline constexpr const char* kTokenVariable = "MGPU_RDZV_TOKEN";

// The first of: stdin's first line with --rdzv-token-stdin (`stdin_fd` is read up to the end of
// that line and no further; it waits for it), --rdzv-token-file, MGPU_RDZV_TOKEN, and in Kubernetes
// the file `mounted` if it is there. Nothing: nobody gave one. Throws UsageError with the one line
// to print when one was given that cannot be used. Ranks do not inherit the variable
// (environment_of in rank_group).
std::optional<Secret> find_secret(const Options& options, const Cluster& cluster,
                                  const Variables& variables, int stdin_fd,
                                  const std::string& mounted = kMountedToken);

// Reads a secret from a file: without the newline at its end, not empty, at most 4 KiB. Refuses one
// that is not ours (or root's), or that others may read or write. Throws UsageError.
std::string read_secret_file(const std::string& path);

// A new secret: 256 random bits as 64 hexadecimal digits.
std::string make_secret();

}  // namespace mgpu::launcher
