#include "rendezvous/etcd/openssl.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace mgpu::rendezvous::etcd::openssl {
namespace {

Library open_library() {
  // This also loads its dependency libcrypto.so.3, and dlsym searches both.
  void* handle = ::dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw std::runtime_error(
        "https needs OpenSSL 3, and libssl.so.3 is not on this machine; install libssl3 (Debian, "
        "Ubuntu) or openssl-libs (RHEL, Fedora)");
  Library library;
#define MGPU_OPENSSL_FIND(name, ...)                                               \
  library.name = reinterpret_cast<decltype(library.name)>(::dlsym(handle, #name)); \
  if (!library.name) throw std::runtime_error("libssl.so.3 of this machine lacks " #name);
  MGPU_OPENSSL_FUNCTIONS(MGPU_OPENSSL_FIND)
#undef MGPU_OPENSSL_FIND
  return library;
}

}  // namespace

const Library& library() {
  static const Library opened = open_library();
  return opened;
}

}  // namespace mgpu::rendezvous::etcd::openssl
