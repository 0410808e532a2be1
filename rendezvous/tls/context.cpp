#include "rendezvous/tls/context.hpp"

#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/tls/openssl.hpp"

namespace mgpu::rendezvous::tls {
namespace {

using openssl::first_error;
using openssl::library;

// Constants of OpenSSL's headers, part of its binary interface.
constexpr int kVerifyPeer = 1;
constexpr int kPem = 1;
constexpr int kSetMinVersion = 123;
constexpr long kTls12 = 0x0303;

// `key` is the setting that names the file.
[[noreturn]] void throw_file_error(const std::string& key, const char* what,
                                   const std::string& path) {
  const auto setting = fmt::format("{}={}", key, shown(path, 300));
  if (::access(path.c_str(), R_OK) != 0)
    throw FileError(fmt::format("{}: cannot read the {}: {}", setting, what, error_text(errno)));
  throw FileError(fmt::format("{}: cannot use the {}: {}; need a file in PEM format", setting, what,
                              first_error()));
}

// Otherwise OpenSSL would ask for a key's passphrase on the terminal.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

}  // namespace

Context::Context(Files files) : files_(std::move(files)) {
  library().ERR_clear_error();
  context_ = library().SSL_CTX_new(library().TLS_client_method());
  if (!context_) throw std::runtime_error("cannot start OpenSSL: " + first_error());
  try {
    library().SSL_CTX_ctrl(context_, kSetMinVersion, kTls12, nullptr);
    library().SSL_CTX_set_verify(context_, kVerifyPeer, nullptr);
    library().SSL_CTX_set_default_passwd_cb(context_, no_passphrase);
    if (files_.ca.empty())
      library().SSL_CTX_set_default_verify_paths(context_);
    else if (library().SSL_CTX_load_verify_locations(context_, files_.ca.c_str(), nullptr) != 1)
      throw_file_error(files_.ca_setting, "CA certificate", files_.ca);
    if (files_.certificate.empty()) return;
    const auto& key = files_.key.empty() ? files_.certificate : files_.key;
    if (library().SSL_CTX_use_certificate_chain_file(context_, files_.certificate.c_str()) != 1)
      throw_file_error("cert", "certificate", files_.certificate);
    if (library().SSL_CTX_use_PrivateKey_file(context_, key.c_str(), kPem) != 1)
      throw_file_error(files_.key.empty() ? "cert" : "key", "private key", key);
  } catch (...) {
    library().SSL_CTX_free(context_);
    throw;
  }
}

Context::~Context() {
  library().SSL_CTX_free(context_);
}

}  // namespace mgpu::rendezvous::tls
