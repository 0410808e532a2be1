#include "runtime/servers/server_client.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::servers {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShown = 400;

bool is_transient(unsigned status) {
  return status == 500 || status == 502 || status == 503;
}

http::Deadline after(milliseconds limit) {
  return std::chrono::steady_clock::now() + limit;
}

// Ends early if a stop is requested.
void pause_for(milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any nothing;
  std::unique_lock lock(mutex);
  nothing.wait_for(lock, stop, time, [] { return false; });
}

}  // namespace

std::string error_message(const std::string& body) {
  const auto parsed = rendezvous::parse_untrusted_json(body);
  if (parsed.is_object()) {
    const auto error = parsed.value("error", json());
    for (const auto& where : {error, parsed})
      for (const char* key : {"message", "detail", "error"})
        if (where.is_object() && where.contains(key) && where[key].is_string())
          return rendezvous::shown(where[key].get_ref<const std::string&>(), kMaxShown);
  }
  return rendezvous::shown(body, kMaxShown);
}

ServerClient::ServerClient(http::Address server, RetryPolicy retry)
    : server_(std::move(server)), prefix_(server_.path), retry_(retry) {
  while (prefix_.ends_with('/')) prefix_.pop_back();
  server_.path = prefix_;
  url_ = server_.url();
}

http::Response ServerClient::get_once(const std::string& path, milliseconds limit) const {
  return http::send_request(server_, {.path = prefix_ + path, .post = false}, after(limit));
}

http::Response ServerClient::get(const std::string& path, milliseconds limit) const {
  return send({.path = prefix_ + path, .post = false}, path, limit, {});
}

http::Response ServerClient::post(const std::string& path, const json& body, milliseconds limit,
                                  const std::stop_token& stop) const {
  return send({.path = prefix_ + path, .body = body.dump()}, path, limit, stop);
}

http::Response ServerClient::send(const http::Request& request, const std::string& path,
                                  milliseconds limit, const std::stop_token& stop) const {
  auto pause = retry_.pause;
  const auto end = after(limit);  // of all tries together
  for (int left = retry_.tries - 1;; --left) {
    try {
      auto answer = http::send_request(server_, request, end, stop);
      if (left == 0 || !is_transient(answer.status)) return answer;
    } catch (const http::TimedOut&) {
      throw std::runtime_error(
          fmt::format("{}{} did not answer within {} s; check the server's log", url_, path,
                      limit.count() / 1000));
    } catch (const http::Unreachable& e) {
      if (left == 0)
        throw std::runtime_error(fmt::format("{}{}: {}, tried {} times; check the server's log",
                                             url_, path, e.what(), retry_.tries));
    } catch (const http::TlsRefusal& e) {
      throw std::runtime_error(fmt::format("{}{}: {}", url_, path, e.what()));
    }
    pause_for(pause, stop);
    pause *= 2;
  }
}

std::string ServerClient::error_text(const std::string& path, const http::Response& answer) const {
  return fmt::format("{}{} answered with status {}: {}", url_, path, answer.status,
                     error_message(answer.body));
}

json ServerClient::json_of(const std::string& path, const http::Response& answer) const {
  if (answer.status != 200) throw std::runtime_error(error_text(path, answer));
  auto parsed = rendezvous::parse_untrusted_json(answer.body);
  if (parsed.is_discarded())
    throw std::runtime_error(fmt::format("{}{} answered with something that is not JSON: {}", url_,
                                         path, rendezvous::shown(answer.body)));
  return parsed;
}

}  // namespace mgpu::servers
