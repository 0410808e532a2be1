#include "rendezvous/tls/openssl.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace mgpu::rendezvous::tls::openssl {
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

std::string first_error() {
  const unsigned long code = library().ERR_get_error();
  const char* text = code ? library().ERR_reason_error_string(code) : nullptr;
  library().ERR_clear_error();
  return text ? text : "no reason given";
}

}  // namespace mgpu::rendezvous::tls::openssl
