#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "runtime/http/client.hpp"

namespace mgpu::servers {

using std::chrono::milliseconds;

// Retries of requests that failed for a transient reason: the server is unreachable or answers 500,
// 502 or 503. The pause doubles each time.
struct RetryPolicy {
  int tries = 6;
  milliseconds pause{250};
};

// An HTTP client for the server of a job. Safe to use from several threads.
class ServerClient {
 public:
  explicit ServerClient(http::Address server, RetryPolicy retry = {});

  const std::string& url() const { return url_; }
  const http::Address& address() const { return server_; }

  // Return the answer, whatever its status. Throw std::runtime_error with server and path if there
  // is none within the limit, or if TLS fails.
  http::Response get(const std::string& path, milliseconds limit) const;
  // A stop request ends post() with http::Cancelled.
  http::Response post(const std::string& path, const nlohmann::json& body, milliseconds limit,
                      const std::stop_token& stop = {}) const;

  // The same without retries; throws as http::send_request().
  http::Response get_once(const std::string& path, milliseconds limit) const;

  // The JSON of an answer with status 200. For any other status, and for a body that is not JSON,
  // throws with server, path, status and the server's message.
  nlohmann::json json_of(const std::string& path, const http::Response& answer) const;

  // "http://HOST:PORT/PATH answered with status 404: no such model".
  std::string error_text(const std::string& path, const http::Response& answer) const;

 private:
  http::Response send(const http::Request& request, const std::string& path, milliseconds limit,
                      const std::stop_token& stop) const;

  http::Address server_;
  std::string url_, prefix_;
  RetryPolicy retry_;
};

// The server's error message in an answer's body, on one line.
std::string error_message(const std::string& body);

}  // namespace mgpu::servers
