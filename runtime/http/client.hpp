#pragma once

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <stop_token>
#include <string>

// An HTTP/1.1 client, with TLS for https. Every request opens its own connection, so restarts of
// the server do no harm. Thread-safe.
namespace mgpu::http {

using Deadline = std::chrono::steady_clock::time_point;

// The address of a server.
struct Address {
  std::string host;  // a name or an IP address, IPv6 without brackets
  std::string port = "80";
  std::string path;  // from the URL, with its leading slash; empty: none given
  bool tls = false;  // https

  std::string url() const;
  friend bool operator==(const Address&, const Address&) = default;
};

// Parses http://HOST[:PORT][/PATH] and https://...; other schemes are not supported. Throws
// std::runtime_error that shows the required form.
Address address_of(const std::string& url);

// For an https address, loads OpenSSL and the trusted authorities: the system's, or those in the
// PEM file that SSL_CERT_FILE names. Throws std::runtime_error if one of them is missing.
// send_request() does the same; call this to notice it earlier.
void check_tls(const Address& address);

struct Request {
  std::string path = "/";
  std::string body{};                    // JSON
  bool post = true;                      // false: GET, without a body
  std::size_t max_response = 256 << 20;  // bytes
};

struct Response {
  unsigned status = 0;
  std::string body{};
  std::string retry_after{};  // the header Retry-After
};

// The server could not be reached, or the connection broke. A retry may succeed.
class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The deadline passed before the response arrived.
class TimedOut : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A stop was requested before the response arrived.
class Cancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The server's certificate is not trusted, or it does not speak TLS. A retry would fail too.
class TlsRefusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sends the request to the server at `address` and returns its response. The path in `address` is
// ignored. Throws Unreachable, TimedOut or TlsRefusal, or as check_tls() does; the caller puts the
// server's name in front of the message. A stop request closes the connection; it throws Cancelled.
Response send_request(const Address& address, const Request& request, Deadline deadline,
                      const std::stop_token& stop = {});

}  // namespace mgpu::http
