#include "runtime/servers/caller.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <thread>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::servers {
namespace {

using nlohmann::json;

constexpr std::size_t kMostShown = 400;

bool may_pass(unsigned status) {
  return status == 500 || status == 502 || status == 503;
}

http::Deadline after(milliseconds limit) {
  return std::chrono::steady_clock::now() + limit;
}

}  // namespace

std::string message_in(const std::string& body) {
  const auto said = json::parse(body, nullptr, false);
  if (said.is_object()) {
    const auto error = said.value("error", json());
    for (const auto& where : {error, said})
      for (const char* key : {"message", "detail", "error"})
        if (where.is_object() && where.contains(key) && where[key].is_string())
          return rendezvous::shown(where[key].get_ref<const std::string&>(), kMostShown);
  }
  return rendezvous::shown(body, kMostShown);
}

Caller::Caller(http::Address server, Patience patience)
    : server_(std::move(server)), prefix_(server_.path), patience_(patience) {
  while (prefix_.ends_with('/')) prefix_.pop_back();
  server_.path = prefix_;
  url_ = server_.url();
}

http::Response Caller::get_once(const std::string& path, milliseconds limit) const {
  return http::send_request(server_, {.path = prefix_ + path, .post = false}, after(limit));
}

http::Response Caller::get(const std::string& path, milliseconds limit) const {
  return ask({.path = prefix_ + path, .post = false}, path, limit);
}

http::Response Caller::post(const std::string& path, const json& body, milliseconds limit) const {
  return ask({.path = prefix_ + path, .body = body.dump()}, path, limit);
}

http::Response Caller::ask(const http::Request& question, const std::string& path,
                           milliseconds limit) const {
  auto pause = patience_.pause;
  const auto end = after(limit);  // of all tries
  for (int left = patience_.tries - 1;; --left) {
    try {
      auto answer = http::send_request(server_, question, end);
      if (left == 0 || !may_pass(answer.status)) return answer;
    } catch (const http::TimedOut&) {
      throw std::runtime_error(fmt::format("{}{} did not answer within {} s; look at its log", url_,
                                           path, limit.count() / 1000));
    } catch (const http::Unreachable& e) {
      if (left == 0)
        throw std::runtime_error(fmt::format("{}{}: {}, tried {} times; look at the server's log",
                                             url_, path, e.what(), patience_.tries));
    }
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

std::string Caller::complaint(const std::string& path, const http::Response& answer) const {
  return fmt::format("{}{} answered with status {}: {}", url_, path, answer.status,
                     message_in(answer.body));
}

json Caller::json_of(const std::string& path, const http::Response& answer) const {
  if (answer.status != 200) throw std::runtime_error(complaint(path, answer));
  auto said = json::parse(answer.body, nullptr, false);
  if (said.is_discarded())
    throw std::runtime_error(fmt::format("{}{} answered with what is no JSON: {}", url_, path,
                                         rendezvous::shown(answer.body)));
  return said;
}

}  // namespace mgpu::servers
