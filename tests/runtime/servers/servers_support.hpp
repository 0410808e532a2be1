#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "runtime/servers/server_client.hpp"
#include "tests/support/http_server.hpp"

namespace mgpu::tests {

using nlohmann::json;

// Answers by path; 404 for any other path.
inline HttpServer::Respond by_path(std::map<std::string, HttpResponse> known) {
  return [known = std::move(known)](const HttpRequest& request) {
    const auto found = known.find(request.path);
    return found == known.end() ? HttpResponse{404, R"({"detail":"Not Found"})"} : found->second;
  };
}

inline servers::ServerClient client_of(const HttpServer& server, const std::string& path = "") {
  return servers::ServerClient(http::address_of(server.url() + path), {.tries = 3, .pause = {}});
}

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace mgpu::tests
