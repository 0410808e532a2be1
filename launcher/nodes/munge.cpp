#include "launcher/nodes/munge.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

// The declarations of munge.h that we use, from its documented binary interface.
using Context = void*;
constexpr int kMungeSuccess = 0;
constexpr int kMungeUnauthorized = 18;
constexpr int kOptionSocket = 8;
constexpr int kOptionReader = 9;
constexpr std::size_t kMaxBytes = 64 << 10;

// Memory allocated by the library.
template <class T>
using Allocated = std::unique_ptr<T, decltype(&std::free)>;

}  // namespace

struct Munge::Library {
  void* handle = nullptr;
  // Decoding stores the options of the credential in its context, where encoding would use them.
  Context encoding = nullptr, decoding = nullptr;

  ~Library() {
    for (Context context : {encoding, decoding})
      if (context) find<void (*)(Context)>("munge_ctx_destroy")(context);
    if (handle) ::dlclose(handle);
  }

  template <class Function>
  Function find(const char* name) const {
    const auto function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (!function) throw std::runtime_error(fmt::format("libmunge.so.2 has no {}", name));
    return function;
  }

  // Returns the library's code.
  int decode(const std::string& credential, Decoded& decoded) const {
    const auto call =
        find<int (*)(const char*, Context, void**, int*, uid_t*, gid_t*)>("munge_decode");
    void* bytes = nullptr;
    int size = 0;
    const int code = call(credential.c_str(), decoding, &bytes, &size, &decoded.uid, &decoded.gid);
    // An expired or replayed credential yields its payload too, which must be freed.
    const Allocated<void> payload(bytes, &std::free);
    if (code == kMungeSuccess)
      decoded.payload.assign(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
    return code;
  }

  // The library's message for the failed call, or else for the error code.
  std::string why(Context context, int code) const {
    const char* text = find<const char* (*)(Context)>("munge_ctx_strerror")(context);
    if (!text) text = find<const char* (*)(int)>("munge_strerror")(code);
    return text ? text : fmt::format("error {}", code);
  }
};

Munge::Munge(const std::string& socket) : library_(std::make_unique<Library>()) {
  library_->handle = ::dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library_->handle)
    throw std::runtime_error(
        "libmunge.so.2 is not on this machine; install libmunge2, or use a token file");
  const auto set = library_->find<int (*)(Context, int, ...)>("munge_ctx_set");
  for (Context* context : {&library_->encoding, &library_->decoding}) {
    *context = library_->find<Context (*)()>("munge_ctx_create")();
    if (!*context) throw std::runtime_error("munge: out of memory");
    if (socket.empty()) continue;
    if (const int code = set(*context, kOptionSocket, socket.c_str()); code != kMungeSuccess)
      throw std::runtime_error(fmt::format("munge: cannot use the socket {}: {}", socket,
                                           library_->why(*context, code)));
  }
}

Munge::~Munge() = default;

std::string Munge::encode(const std::string& payload, uid_t reader) const {
  if (payload.size() > kMaxBytes) throw std::runtime_error("munge: the payload is too long");
  const auto set = library_->find<int (*)(Context, int, ...)>("munge_ctx_set");
  if (const int code = set(library_->encoding, kOptionReader, reader); code != kMungeSuccess)
    throw std::runtime_error(fmt::format("munge cannot restrict a credential to uid {}: {}", reader,
                                         library_->why(library_->encoding, code)));
  const auto call = library_->find<int (*)(char**, Context, const void*, int)>("munge_encode");
  char* text = nullptr;
  const int code =
      call(&text, library_->encoding, payload.data(), static_cast<int>(payload.size()));
  const Allocated<char> credential(text, &std::free);
  if (code != kMungeSuccess)
    throw std::runtime_error(fmt::format("munge cannot make a credential: {}; is munged running?",
                                         library_->why(library_->encoding, code)));
  return credential.get();
}

Munge::Decoded Munge::decode(const std::string& credential) const {
  if (credential.size() > 2 * kMaxBytes)
    throw std::runtime_error("munge: the credential is too long");
  Decoded decoded;
  if (const int code = library_->decode(credential, decoded); code != kMungeSuccess)
    throw std::runtime_error(
        fmt::format("munge rejected a credential: {}", library_->why(library_->decoding, code)));
  return decoded;
}

void Munge::check_readers() const {
  const uid_t other = ::geteuid() + 1;
  Decoded decoded;
  const int code = library_->decode(encode("for another user", other), decoded);
  if (code == kMungeUnauthorized) return;
  if (code != kMungeSuccess)
    throw std::runtime_error(fmt::format("munged cannot decode its own credentials: {}",
                                         library_->why(library_->decoding, code)));
  throw std::runtime_error(
      fmt::format("munged lets uid {} decode what is meant for uid {}, so it keeps nobody out",
                  ::geteuid(), other));
}

}  // namespace mgpu::launcher
