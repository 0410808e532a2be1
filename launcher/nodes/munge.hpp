#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace mgpu::launcher {

// MUNGE proves to other machines of a cluster as which user a process runs. A credential that
// munged encodes here can be decoded by a munged with the same key, once, within minutes, and only
// for the user that it is meant for; it yields the user that had it encoded. The constructor loads
// the library. Every call sends a request to munged over a local socket and waits for the answer,
// normally less than a millisecond and at most a few seconds.
class Munge {
 public:
  struct Decoded {
    std::string payload;
    uid_t uid = 0;
    gid_t gid = 0;
  };

  // An empty `socket` means the library's default. Throws if the library is missing.
  explicit Munge(const std::string& socket = {});
  Munge(const Munge&) = delete;
  Munge& operator=(const Munge&) = delete;
  ~Munge();

  // Both throw std::runtime_error with a one-line message that contains munged's or the library's
  // error. A credential is one line of text. Limits: 64 KiB of payload, 128 KiB of credential.
  std::string encode(const std::string& payload, uid_t reader) const;
  Decoded decode(const std::string& credential) const;

  // Throws unless munged keeps other users from decoding a credential that is meant for one user.
  // It can be built so that root may decode all.
  void check_readers() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

// Sets a socket other than the library's default; Slurm's setting is AuthInfo=socket=PATH.
inline constexpr const char* kMungeSocketVariable = "MGPU_MUNGE_SOCKET";

}  // namespace mgpu::launcher
