#include "rendezvous/tls/session.hpp"

#include <array>
#include <stdexcept>

#include <fmt/format.h>
#include <boost/asio/ip/address.hpp>

#include "rendezvous/tls/openssl.hpp"

namespace mgpu::rendezvous::tls {
namespace {

using openssl::first_error;
using openssl::library;

// Constants of OpenSSL's headers, part of its binary interface.
// Only the names that a certificate lists as such count, not its common name.
constexpr unsigned kNoPartialWildcards = 0x4, kNeverCheckSubject = 0x20;
constexpr int kErrorWantRead = 2, kErrorZeroReturn = 6;
constexpr int kSetServerName = 55;
constexpr long kVerifyOk = 0, kNotYetValid = 9, kExpired = 10;
constexpr long kSelfSigned = 18, kSelfSignedInChain = 19, kNoIssuer = 20, kNoFirst = 21;
constexpr long kOtherName = 62, kOtherAddress = 64;

std::string verify_problem(long code, const Files& files, const std::string& host) {
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
                 ? fmt::format(
                       "its certificate is from an authority that this system does not trust; set "
                       "{}=FILE to the authority's certificate",
                       files.ca_setting)
                 : fmt::format("its certificate is not from the authority in {}", files.ca);
    case kOtherName:
    case kOtherAddress:
      return fmt::format("its certificate is not for {}", host);
    default:
      return fmt::format("its certificate cannot be trusted: {}",
                         library().X509_verify_cert_error_string(code));
  }
}

}  // namespace

Session::Session(const Context& context, const std::string& host) : context_(context), host_(host) {
  library().ERR_clear_error();
  session_ = library().SSL_new(context.handle());
  incoming_ = library().BIO_new(library().BIO_s_mem());
  outgoing_ = library().BIO_new(library().BIO_s_mem());
  if (!session_ || !incoming_ || !outgoing_) {
    library().BIO_free(incoming_);
    library().BIO_free(outgoing_);
    library().SSL_free(session_);
    throw std::runtime_error("cannot start TLS: " + first_error());
  }
  library().SSL_set_bio(session_, incoming_, outgoing_);
  library().SSL_set_connect_state(session_);
  auto* wanted = library().SSL_get0_param(session_);
  library().X509_VERIFY_PARAM_set_hostflags(wanted, kNoPartialWildcards | kNeverCheckSubject);
  boost::system::error_code is_name;
  boost::asio::ip::make_address(host, is_name);
  // Without this check a failed call would disable the verification of the name.
  const bool taken = is_name ? library().X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), 0) == 1
                             : library().X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1;
  if (!taken) {
    library().SSL_free(session_);
    throw Error("no certificate can match this host");
  }
  if (is_name) library().SSL_ctrl(session_, kSetServerName, 0, host_.data());
  library().SSL_do_handshake(session_);  // the client starts the handshake
  library().ERR_clear_error();
}

Session::~Session() {
  library().SSL_free(session_);
}

void Session::fail() {
  const long verdict = library().SSL_get_verify_result(session_);
  if (!established_ && verdict != kVerifyOk) {
    library().ERR_clear_error();
    throw Error(verify_problem(verdict, context_.files(), host_));
  }
  const auto text = first_error();
  if (text == "wrong version number" || text == "packet length too long")
    throw Error("it does not speak TLS; did you mean http://?");
  throw Error("TLS failed: " + text);
}

void Session::send(std::string_view plain) {
  pending_.append(plain);
  if (established_) write_pending();
}

void Session::write_pending() {
  if (pending_.empty()) return;
  library().ERR_clear_error();
  // A memory BIO accepts everything.
  const int size = static_cast<int>(pending_.size());
  if (library().SSL_write(session_, pending_.data(), size) != size) fail();
  pending_.clear();
}

std::string Session::receive(std::string_view bytes) {
  if (bytes.size() > kMaxPending) throw Error("too many bytes at once");
  library().ERR_clear_error();
  library().BIO_write(incoming_, bytes.data(), static_cast<int>(bytes.size()));
  if (!established_) continue_handshake();
  std::string plain;
  std::array<char, 16 << 10> buffer;
  while (established_ && !closed_) {
    const int size = library().SSL_read(session_, buffer.data(), static_cast<int>(buffer.size()));
    if (size > 0) {
      plain.append(buffer.data(), static_cast<std::size_t>(size));
      continue;
    }
    const int error = library().SSL_get_error(session_, size);
    if (error == kErrorWantRead) break;
    if (error != kErrorZeroReturn) fail();
    closed_ = true;
  }
  return plain;
}

void Session::continue_handshake() {
  const int result = library().SSL_do_handshake(session_);
  if (result == 1) {
    established_ = true;
    write_pending();
  } else if (library().SSL_get_error(session_, result) != kErrorWantRead) {
    fail();
  }
}

std::string Session::take_outgoing() {
  std::string bytes;
  std::array<char, 16 << 10> buffer;
  int size = 0;
  while ((size = library().BIO_read(outgoing_, buffer.data(), static_cast<int>(buffer.size()))) > 0)
    bytes.append(buffer.data(), static_cast<std::size_t>(size));
  return bytes;
}

}  // namespace mgpu::rendezvous::tls
