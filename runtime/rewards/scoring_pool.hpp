#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/rewards/external_reward.hpp"

namespace mgpu::rewards {

// Sends requests to the endpoints of one reward, several at a time: one thread per endpoint,
// started when it gets its first request. One thread at a time calls the members. Destroying the
// pool cancels what is under way and ends the threads and endpoints.
class ScoringPool {
 public:
  // The deadline has passed before the answer came.
  class NotInTime : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };

  ScoringPool(OpenEndpoint open, int endpoints, Distribution distribution);
  ~ScoringPool();
  ScoringPool(const ScoringPool&) = delete;
  ScoringPool& operator=(const ScoringPool&) = delete;

  // Queues a request and returns its number. `limit` counts from the moment it is sent.
  std::size_t submit(std::string line, std::chrono::milliseconds limit);

  // Waits for the answer to a request; call it once for each. Throws what the endpoint has thrown,
  // or NotInTime.
  std::string wait(std::size_t number, Deadline deadline);

  // Requests that have no answer yet.
  std::size_t unanswered();

  // Drops all requests and ends all endpoints; the next submit() starts new ones.
  void cancel();

 private:
  struct Job {
    std::size_t number = 0;
    std::string line;
    std::chrono::milliseconds limit{};
  };
  struct Outcome {
    std::string answer;
    std::exception_ptr failure;
  };

  void work(const std::stop_token& stop, std::size_t queue);

  const OpenEndpoint open_;
  const std::size_t endpoints_;
  std::size_t submitted_ = 0;  // since the last cancel()

  std::mutex mutex_;
  std::condition_variable_any arrived_, answered_;
  std::vector<std::deque<Job>> queues_;  // one for all endpoints, or one for each
  std::size_t unanswered_ = 0;
  std::map<std::size_t, Outcome> outcomes_;
  std::vector<std::jthread> threads_;  // the last member: they use all others
};

}  // namespace mgpu::rewards
