#include "rendezvous/etcd/tls.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/ip/address.hpp>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/etcd/openssl.hpp"

namespace mgpu::rendezvous::etcd {
namespace {

// Constants of OpenSSL's headers, part of its binary interface.
// Only the names that a certificate lists as such count, not its common name.
constexpr unsigned kNoPartialWildcards = 0x4, kNeverCheckSubject = 0x20;
constexpr int kVerifyPeer = 1;
constexpr int kPem = 1;
constexpr int kErrorWantRead = 2, kErrorZeroReturn = 6;
constexpr int kSetServerName = 55, kSetMinVersion = 123;
constexpr long kTls12 = 0x0303;
constexpr long kVerifyOk = 0, kNotYetValid = 9, kExpired = 10;
constexpr long kSelfSigned = 18, kSelfSignedInChain = 19, kNoIssuer = 20, kNoFirst = 21;
constexpr long kOtherName = 62, kOtherAddress = 64;

const openssl::Library& lib() {
  return openssl::library();
}

// OpenSSL's text for the first error since the errors were cleared.
std::string openssl_error() {
  const unsigned long code = lib().ERR_get_error();
  const char* text = code ? lib().ERR_reason_error_string(code) : nullptr;
  lib().ERR_clear_error();
  return text ? text : "no reason given";
}

// `key` is the setting of --rdzv-conf that names the file.
[[noreturn]] void throw_file_error(const char* key, const char* what, const std::string& path) {
  const auto setting = fmt::format("{}={}", key, shown(path, 300));
  if (::access(path.c_str(), R_OK) != 0)
    throw TlsFileError(fmt::format("{}: cannot read the {}: {}", setting, what, error_text(errno)));
  throw TlsFileError(fmt::format("{}: cannot use the {}: {}; need a file in PEM format", setting,
                                 what, openssl_error()));
}

// Otherwise OpenSSL would ask for a key's passphrase on the terminal.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

std::string verify_problem(long code, const TlsFiles& files, const std::string& host) {
  switch (code) {
    case kExpired:
      return "its certificate, or one in its chain, has expired";
    case kNotYetValid:
      return "its certificate is not valid yet; are the clocks right?";
    case kSelfSigned:
    case kSelfSignedInChain:
    case kNoIssuer:
    case kNoFirst:
      return files.ca.empty()
                 ? "its certificate is from an authority that this system does not trust; set "
                   "cacert=FILE to the authority's certificate"
                 : fmt::format("its certificate is not from the authority in {}", files.ca);
    case kOtherName:
    case kOtherAddress:
      return fmt::format("its certificate is not for {}", host);
    default:
      return fmt::format("its certificate cannot be trusted: {}",
                         lib().X509_verify_cert_error_string(code));
  }
}

}  // namespace

TlsContext::TlsContext(TlsFiles files) : files_(std::move(files)) {
  lib().ERR_clear_error();
  context_ = lib().SSL_CTX_new(lib().TLS_client_method());
  if (!context_) throw std::runtime_error("cannot start OpenSSL: " + openssl_error());
  try {
    lib().SSL_CTX_ctrl(context_, kSetMinVersion, kTls12, nullptr);
    lib().SSL_CTX_set_verify(context_, kVerifyPeer, nullptr);
    lib().SSL_CTX_set_default_passwd_cb(context_, no_passphrase);
    if (files_.ca.empty())
      lib().SSL_CTX_set_default_verify_paths(context_);
    else if (lib().SSL_CTX_load_verify_locations(context_, files_.ca.c_str(), nullptr) != 1)
      throw_file_error("cacert", "CA certificate", files_.ca);
    if (files_.certificate.empty()) return;
    const auto& key = files_.key.empty() ? files_.certificate : files_.key;
    if (lib().SSL_CTX_use_certificate_chain_file(context_, files_.certificate.c_str()) != 1)
      throw_file_error("cert", "certificate", files_.certificate);
    if (lib().SSL_CTX_use_PrivateKey_file(context_, key.c_str(), kPem) != 1)
      throw_file_error(files_.key.empty() ? "cert" : "key", "private key", key);
  } catch (...) {
    lib().SSL_CTX_free(context_);
    throw;
  }
}

TlsContext::~TlsContext() {
  lib().SSL_CTX_free(context_);
}

TlsSession::TlsSession(const TlsContext& context, const std::string& host)
    : context_(context), host_(host) {
  lib().ERR_clear_error();
  session_ = lib().SSL_new(context.handle());
  incoming_ = lib().BIO_new(lib().BIO_s_mem());
  outgoing_ = lib().BIO_new(lib().BIO_s_mem());
  if (!session_ || !incoming_ || !outgoing_) {
    lib().BIO_free(incoming_);
    lib().BIO_free(outgoing_);
    lib().SSL_free(session_);
    throw std::runtime_error("cannot start TLS: " + openssl_error());
  }
  lib().SSL_set_bio(session_, incoming_, outgoing_);
  lib().SSL_set_connect_state(session_);
  auto* wanted = lib().SSL_get0_param(session_);
  lib().X509_VERIFY_PARAM_set_hostflags(wanted, kNoPartialWildcards | kNeverCheckSubject);
  boost::system::error_code is_name;
  boost::asio::ip::make_address(host, is_name);
  // Without this check a failed call would disable the verification of the name.
  const bool taken = is_name ? lib().X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), 0) == 1
                             : lib().X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1;
  if (!taken) {
    lib().SSL_free(session_);
    throw std::runtime_error("no certificate can match this host");
  }
  if (is_name) lib().SSL_ctrl(session_, kSetServerName, 0, host_.data());
  lib().SSL_do_handshake(session_);  // the client starts the handshake
  lib().ERR_clear_error();
}

TlsSession::~TlsSession() {
  lib().SSL_free(session_);
}

void TlsSession::fail() {
  const long verdict = lib().SSL_get_verify_result(session_);
  if (!established_ && verdict != kVerifyOk) {
    lib().ERR_clear_error();
    throw std::runtime_error(verify_problem(verdict, context_.files(), host_));
  }
  const auto text = openssl_error();
  if (text == "wrong version number" || text == "packet length too long")
    throw std::runtime_error("it does not speak TLS; did you mean http://?");
  throw std::runtime_error("TLS failed: " + text);
}

void TlsSession::send(std::string_view plain) {
  pending_.append(plain);
  if (established_) write_pending();
}

void TlsSession::write_pending() {
  if (pending_.empty()) return;
  lib().ERR_clear_error();
  // A memory BIO accepts everything.
  const int size = static_cast<int>(pending_.size());
  if (lib().SSL_write(session_, pending_.data(), size) != size) fail();
  pending_.clear();
}

std::string TlsSession::receive(std::string_view bytes) {
  if (bytes.size() > kMaxPending) throw std::runtime_error("too many bytes at once");
  lib().ERR_clear_error();
  lib().BIO_write(incoming_, bytes.data(), static_cast<int>(bytes.size()));
  if (!established_) continue_handshake();
  std::string plain;
  std::array<char, 16 << 10> buffer;
  while (established_ && !closed_) {
    const int size = lib().SSL_read(session_, buffer.data(), static_cast<int>(buffer.size()));
    if (size > 0) {
      plain.append(buffer.data(), static_cast<std::size_t>(size));
      continue;
    }
    const int error = lib().SSL_get_error(session_, size);
    if (error == kErrorWantRead) break;
    if (error != kErrorZeroReturn) fail();
    closed_ = true;
  }
  return plain;
}

void TlsSession::continue_handshake() {
  const int result = lib().SSL_do_handshake(session_);
  if (result == 1) {
    established_ = true;
    write_pending();
  } else if (lib().SSL_get_error(session_, result) != kErrorWantRead) {
    fail();
  }
}

std::string TlsSession::take_outgoing() {
  std::string bytes;
  std::array<char, 16 << 10> buffer;
  int size = 0;
  while ((size = lib().BIO_read(outgoing_, buffer.data(), static_cast<int>(buffer.size()))) > 0)
    bytes.append(buffer.data(), static_cast<std::size_t>(size));
  return bytes;
}

}  // namespace mgpu::rendezvous::etcd
