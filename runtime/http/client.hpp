#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

// A client of HTTP/1.1 servers. A connection serves one question, so a server that was restarted is
// not noticed. Safe to use from several threads.
namespace mgpu::http {

using Deadline = std::chrono::steady_clock::time_point;

// Where a server is.
struct Address {
  std::string host;  // a name or an address, IPv6 without its brackets
  std::string port = "80";
  std::string path;  // as it stands in the URL, with its slash; empty: none was said

  std::string url() const;
  friend bool operator==(const Address&, const Address&) = default;
};

// Of http://HOST[:PORT][/PATH]; nothing else is spoken. Throws std::runtime_error whose text says
// what the address is to look like.
Address address_of(const std::string& url);

struct Question {
  std::string path = "/";
  std::string body{};  // JSON
  bool post = true;    // else GET, without a body
};

struct Answer {
  unsigned status = 0;
  std::string body{};
};

// Nobody answered, or the connection broke: another try may help.
class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The deadline came before the answer.
class Late : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the server at `address` says to the question; the address's own path is not looked at.
// Throws Unreachable or Late, whose text needs the server's name before it.
Answer ask(const Address& address, const Question& question, Deadline deadline);

}  // namespace mgpu::http
