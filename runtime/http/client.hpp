#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

// An HTTP/1.1 client. Each request has its own connection, so a server restart between requests
// does not matter. Safe to use from several threads.
namespace mgpu::http {

using Deadline = std::chrono::steady_clock::time_point;

// The address of a server.
struct Address {
  std::string host;  // a host name or an IP address, IPv6 without brackets
  std::string port = "80";
  std::string path;  // as in the URL, with the leading slash; empty: not given

  std::string url() const;
  friend bool operator==(const Address&, const Address&) = default;
};

// Parses http://HOST[:PORT][/PATH]; no other scheme is supported. Throws std::runtime_error with
// the expected form.
Address address_of(const std::string& url);

struct Request {
  std::string path = "/";
  std::string body{};  // JSON
  bool post = true;    // false: GET, without a body
};

struct Response {
  unsigned status = 0;
  std::string body{};
};

// The server did not answer or the connection broke; a retry may succeed.
class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The deadline passed before the response.
class TimedOut : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sends a request to the server at `address`, whose own path is ignored. Throws Unreachable or
// TimedOut; the caller adds the server's name to the message.
Response send(const Address& address, const Request& request, Deadline deadline);

}  // namespace mgpu::http
