#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace mgpu::launcher {

// MUNGE, by which processes of one cluster prove to each other which user they run as: what munged
// encodes here, any munged with the same key decodes, once and within minutes, and says whose it
// was. The library is loaded when one is made. Every call asks munged over a local socket and waits
// for the answer, normally for less than a millisecond; it gives up after a few seconds.
class Munge {
 public:
  struct Decoded {
    std::string payload;
    uid_t uid = 0;
    gid_t gid = 0;
  };

  // `socket` empty: that of the library. Throws when the library is not there.
  explicit Munge(const std::string& socket = {});
  Munge(const Munge&) = delete;
  Munge& operator=(const Munge&) = delete;
  ~Munge();

  // Both throw std::runtime_error with one line that says what munged or the library says.
  // A credential is text of a line; at most 64 KiB of payload or credential are taken.
  std::string encode(const std::string& payload) const;
  Decoded decode(const std::string& credential) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

// Names a socket other than the library's: what Slurm has as AuthInfo=socket=PATH.
inline constexpr const char* kMungeSocketVariable = "MGPU_MUNGE_SOCKET";

}  // namespace mgpu::launcher
