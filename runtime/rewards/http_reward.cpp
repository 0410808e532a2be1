#include <fmt/format.h>

#include <stdexcept>

#include "rendezvous/base/spelling.hpp"
#include "runtime/http/client.hpp"
#include "runtime/rewards/external_reward.hpp"

namespace mgpu::rewards {
namespace {

http::Address address_of(const std::string& url) {
  try {
    auto address = http::address_of(url);
    if (address.path.empty()) address.path.push_back('/');
    http::check_tls(address);  // now, and not after the first completions
    return address;
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(fmt::format("reward {}: {}", rendezvous::shown(url), e.what()));
  }
}

class Http : public ScoringEndpoint {
 public:
  explicit Http(const std::string& url) : address_(address_of(url)) {}

  std::string request(const std::string& line, Deadline deadline) override {
    try {
      return post(line, deadline);
    } catch (const http::Unreachable&) {
      if (std::chrono::steady_clock::now() >= deadline) throw;
      return post(line, deadline);
    }
  }

 private:
  std::string post(const std::string& line, Deadline deadline) const {
    http::Response answer;
    try {
      answer = http::send_request(address_, {.path = address_.path, .body = line}, deadline);
    } catch (const http::TimedOut& e) {
      throw std::runtime_error(fmt::format("{} (reward_timeout)", e.what()));
    }
    if (answer.status == 200) return std::move(answer.body);
    const auto text = fmt::format("it answered with status {}: {}", answer.status,
                                  rendezvous::shown(answer.body));
    if (answer.status == 429 || answer.status >= 500) throw http::Unreachable(text);
    throw std::runtime_error(text);
  }

  http::Address address_;
};

}  // namespace

std::unique_ptr<ScoringEndpoint> make_http_endpoint(const std::string& url) {
  return std::make_unique<Http>(url);
}

}  // namespace mgpu::rewards
