#include "rendezvous/base/serial_thread.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/background_thread.hpp"

namespace mgpu::rendezvous {

struct SerialThread::Queue {
  mutable std::mutex mutex;
  std::condition_variable more, changed;
  std::deque<std::function<void()>> waiting;
  bool started = false;
  bool busy = false;
  bool ended = false;

  bool idle() const { return waiting.empty() && !busy; }
  void serve();
  void make_next_call(std::unique_lock<std::mutex>& lock);
};

void SerialThread::Queue::make_next_call(std::unique_lock<std::mutex>& lock) {
  {
    const auto call = std::move(waiting.front());
    waiting.pop_front();
    busy = true;
    lock.unlock();
    call();
  }
  lock.lock();
  busy = false;
  if (idle()) changed.notify_all();
}

void SerialThread::Queue::serve() {
  std::unique_lock lock(mutex);
  while (true) {
    more.wait(lock, [this] { return ended || !waiting.empty(); });
    if (ended) return;
    make_next_call(lock);
  }
}

SerialThread::SerialThread() : queue_(std::make_shared<Queue>()) {}

SerialThread::~SerialThread() {
  const std::lock_guard lock(queue_->mutex);
  queue_->ended = true;
  queue_->more.notify_all();
}

void SerialThread::run(std::function<void()> call) {
  std::unique_lock lock(queue_->mutex);
  queue_->waiting.push_back(std::move(call));
  if (queue_->started) return queue_->more.notify_one();
  if (queue_->busy) return;  // given by a call that is made without a thread
  try {
    run_in_background([queue = queue_] { queue->serve(); });
    queue_->started = true;
  } catch (const std::runtime_error&) {
    while (!queue_->waiting.empty()) queue_->make_next_call(lock);
  }
}

bool SerialThread::idle() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->idle();
}

bool SerialThread::wait_until_idle(std::chrono::milliseconds limit) const {
  std::unique_lock lock(queue_->mutex);
  return queue_->changed.wait_for(lock, limit, [this] { return queue_->idle(); });
}

}  // namespace mgpu::rendezvous
