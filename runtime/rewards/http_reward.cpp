#include <fmt/format.h>

#include <condition_variable>
#include <ctime>
#include <mutex>
#include <random>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/spelling.hpp"
#include "runtime/http/client.hpp"
#include "runtime/rewards/backoff.hpp"
#include "runtime/rewards/external_reward.hpp"

namespace mgpu::rewards {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

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

// In bytes. A parsed answer takes many times its size in memory, and time. A request has much more
// text for a completion than its score has, so that scores never reach the limit.
std::size_t longest_answer(const std::string& request) {
  constexpr std::size_t kBase = 1 << 20;
  return kBase + 4 * request.size();
}

std::string status_text(const http::Response& answer) {
  return fmt::format("it answered with status {}: {}", answer.status,
                     rendezvous::shown(answer.body));
}

// The server works, but not for us now.
bool is_busy(const http::Response& answer) {
  return answer.status == 429 || (answer.status == 503 && !answer.retry_after.empty());
}

class Http : public ScoringEndpoint {
 public:
  Http(http::Address address, milliseconds patience)
      : address_(std::move(address)), patience_(patience), random_(std::random_device()()) {}

  std::string request(const std::string& line, Deadline deadline, std::stop_token stop) override {
    const auto begin = steady_clock::now();
    const auto limit = deadline - begin;  // of each answer: waiting for a busy server is no fault
    for (int busy = 0;; ++busy) {
      auto answer = post_twice(line, limit, stop);
      if (answer.status == 200) return std::move(answer.body);
      if (!is_busy(answer)) throw std::runtime_error(status_text(answer));
      wait(answer, busy, begin + patience_, stop);
    }
  }

 private:
  // Asks a second time if the server is unreachable or failed.
  http::Response post_twice(const std::string& line, steady_clock::duration limit,
                            const std::stop_token& stop) const {
    const auto deadline = steady_clock::now() + limit;
    try {
      auto answer = post(line, deadline, stop);
      if (answer.status < 500 || is_busy(answer) || steady_clock::now() >= deadline) return answer;
    } catch (const http::Unreachable&) {
      if (steady_clock::now() >= deadline) throw;
    }
    return post(line, deadline, stop);
  }

  http::Response post(const std::string& line, Deadline deadline,
                      const std::stop_token& stop) const {
    try {
      return http::send_request(
          address_, {.path = address_.path, .body = line, .max_response = longest_answer(line)},
          deadline, stop);
    } catch (const http::TimedOut& e) {
      throw std::runtime_error(fmt::format("{} (reward_timeout)", e.what()));
    }
  }

  void wait(const http::Response& answer, int busy, Deadline last, const std::stop_token& stop) {
    const auto requested = requested_wait(answer.retry_after, std::time(nullptr));
    milliseconds time = usual_wait(busy);
    // Requests that were refused together must not all come back at the same time.
    time -= milliseconds(std::uniform_int_distribution<long>(0, time.count() / 2)(random_));
    if (requested) time = *requested;
    if (steady_clock::now() + time > last)
      throw std::runtime_error(fmt::format(
          "{}; after another {:.3g} s it would be later than the limit of {:.0f} s (nine tenths of "
          "ddp_timeout); lower reward_concurrency or raise the limits of the server",
          status_text(answer), std::chrono::duration<double>(time).count(),
          std::chrono::duration<double>(patience_).count()));
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    never.wait_for(lock, stop, time, [] { return false; });
    if (stop.stop_requested()) throw http::Cancelled("the request was cancelled");
  }

  http::Address address_;
  milliseconds patience_;
  std::minstd_rand random_;  // decides only when requests are sent
};

}  // namespace

OpenEndpoint http_endpoints(const std::string& url, milliseconds patience) {
  return
      [address = address_of(url), patience] { return std::make_unique<Http>(address, patience); };
}

}  // namespace mgpu::rewards
