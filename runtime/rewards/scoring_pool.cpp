#include "runtime/rewards/scoring_pool.hpp"

#include <utility>

namespace mgpu::rewards {

ScoringPool::ScoringPool(OpenEndpoint open, int endpoints, Distribution distribution)
    : open_(std::move(open)),
      endpoints_(static_cast<std::size_t>(endpoints)),
      queues_(distribution == Distribution::any_free ? 1 : endpoints_) {}

ScoringPool::~ScoringPool() {
  cancel();
}

std::size_t ScoringPool::submit(std::string line, std::chrono::milliseconds limit) {
  const auto number = submitted_++;
  const auto queue = number % queues_.size();
  {
    const std::scoped_lock lock(mutex_);
    queues_[queue].push_back({number, std::move(line), limit});
    ++unanswered_;
  }
  if (threads_.size() < endpoints_)
    threads_.emplace_back([this, queue](const std::stop_token& stop) { work(stop, queue); });
  arrived_.notify_all();
  return number;
}

void ScoringPool::work(const std::stop_token& stop, std::size_t queue) {
  std::unique_ptr<ScoringEndpoint> endpoint;
  std::unique_lock lock(mutex_);
  auto& jobs = queues_[queue];
  while (arrived_.wait(lock, stop, [&] { return !jobs.empty(); })) {
    const Job job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    Outcome outcome;
    try {
      if (!endpoint) endpoint = open_();
      outcome.answer =
          endpoint->request(job.line, std::chrono::steady_clock::now() + job.limit, stop);
    } catch (...) {
      outcome.failure = std::current_exception();
    }
    lock.lock();
    outcomes_.emplace(job.number, std::move(outcome));
    --unanswered_;
    answered_.notify_all();
  }
}

std::string ScoringPool::wait(std::size_t number, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto answered = [&] { return outcomes_.contains(number); };
  if (deadline == Deadline::max())
    answered_.wait(lock, answered);
  else if (!answered_.wait_until(lock, deadline, answered))
    throw NotInTime("it has not answered in time");
  auto outcome = std::move(outcomes_.extract(number).mapped());
  lock.unlock();
  if (outcome.failure) std::rethrow_exception(std::move(outcome.failure));
  return std::move(outcome.answer);
}

std::size_t ScoringPool::unanswered() {
  const std::scoped_lock lock(mutex_);
  return unanswered_;
}

void ScoringPool::cancel() {
  for (auto& thread : threads_) thread.request_stop();
  threads_.clear();  // waits for them
  for (auto& queue : queues_) queue.clear();
  outcomes_.clear();
  submitted_ = unanswered_ = 0;
}

}  // namespace mgpu::rewards
