#include "launcher/nodes/munge_sealer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "launcher/nodes/munge.hpp"
#include "rendezvous/base/background_thread.hpp"

namespace mgpu::launcher {
namespace {

// More than the nodes that join at the same moment; a call takes less than a millisecond.
constexpr std::size_t kMaxWaiting = 4096;

std::string unseal_own(const Munge& munge, const std::string& sealed) {
  auto opened = munge.decode(sealed);
  if (opened.uid != ::geteuid())
    throw std::runtime_error(
        fmt::format("the other side runs as uid {}, this node as uid {}", opened.uid, ::geteuid()));
  return std::move(opened.payload);
}

}  // namespace

struct MungeSealer::Queue {
  explicit Queue(const std::string& socket) : munge(socket) {}

  struct Request {
    std::function<std::string(const Munge&)> call;
    Done done;
  };

  void serve();
  void add(std::function<std::string(const Munge&)> call, Done done);

  Munge munge;
  Post post;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Request> waiting;
  bool ended = false;
};

void MungeSealer::Queue::serve() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return ended || !waiting.empty(); });
    if (ended) return;
    Request request = std::move(waiting.front());
    waiting.pop_front();
    lock.unlock();
    std::string text, problem;
    try {
      text = request.call(munge);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    lock.lock();
    if (!post) continue;  // there is no event loop any more
    post([done = std::move(request.done), text = std::move(text), problem = std::move(problem)] {
      done(text, problem);
    });
  }
}

MungeSealer::MungeSealer(const std::string& socket) : queue_(std::make_shared<Queue>(socket)) {
  queue_->munge.check_readers();
  unseal_own(queue_->munge, queue_->munge.encode("is munged there?", ::geteuid()));
}

MungeSealer::~MungeSealer() {
  const std::lock_guard lock(queue_->mutex);
  queue_->ended = true;
  queue_->changed.notify_all();
}

void MungeSealer::deliver_through(Post post) {
  const std::lock_guard lock(queue_->mutex);
  queue_->post = std::move(post);
}

void MungeSealer::start() {
  if (std::exchange(started_, true)) return;
  rendezvous::run_in_background([queue = queue_] { queue->serve(); });
}

void MungeSealer::seal(std::string text, Done done) {
  start();
  queue_->add(
      [text = std::move(text)](const Munge& munge) { return munge.encode(text, ::geteuid()); },
      std::move(done));
}

void MungeSealer::unseal(std::string sealed, Done done) {
  start();
  queue_->add(
      [sealed = std::move(sealed)](const Munge& munge) { return unseal_own(munge, sealed); },
      std::move(done));
}

void MungeSealer::Queue::add(std::function<std::string(const Munge&)> call, Done done) {
  const std::lock_guard lock(mutex);
  if (waiting.size() >= kMaxWaiting) {
    post([done = std::move(done)] { done({}, "munged does not keep up with the connections"); });
    return;
  }
  waiting.push_back({std::move(call), std::move(done)});
  changed.notify_one();
}

}  // namespace mgpu::launcher
