#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/http/client.hpp"

namespace mgpu::servers {

using std::chrono::milliseconds;

// How often a question is asked whose answer may be another one in a moment: the server cannot be
// reached, or says 500, 502 or 503. The pause doubles each time.
struct Patience {
  int tries = 6;
  milliseconds pause{250};
};

// The server of a job, as those see it who ask it. Safe to use from several threads.
class Caller {
 public:
  explicit Caller(http::Address server, Patience patience = {});

  const std::string& url() const { return url_; }
  const http::Address& address() const { return server_; }

  // The answer, whatever its status. Throw std::runtime_error naming server and path when there is
  // none within the limit.
  http::Response get(const std::string& path, milliseconds limit) const;
  http::Response post(const std::string& path, const nlohmann::json& body,
                      milliseconds limit) const;

  // The same once: throws http::Unreachable or http::TimedOut.
  http::Response get_once(const std::string& path, milliseconds limit) const;

  // What an answer with status 200 says. Throws naming server, path, status and what the server
  // said of it for any other, and for what is no JSON.
  nlohmann::json json_of(const std::string& path, const http::Response& answer) const;

  // "http://HOST:PORT/PATH answered with status 404: no such model".
  std::string complaint(const std::string& path, const http::Response& answer) const;

 private:
  http::Response ask(const http::Request& question, const std::string& path,
                     milliseconds limit) const;

  http::Address server_;
  std::string url_, prefix_;
  Patience patience_;
};

// The server's own words in an answer's body, on one line.
std::string message_in(const std::string& body);

}  // namespace mgpu::servers
