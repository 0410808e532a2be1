#include "launcher/event_loop/event_pump.hpp"

#include <stdexcept>
#include <utility>

namespace mgpu::launcher {
namespace {

// True until the end of a scope, also if that is left by an exception.
class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;
  ~Raised() { flag_ = false; }

 private:
  bool& flag_;
};

}  // namespace

void EventPump::start() {
  run(supervisor_.start());
}

void EventPump::feed(Event event) {
  events_.push_back(std::move(event));
  if (!running_) run({});
}

void EventPump::resume(const Action& action, const std::function<void()>& rest) {
  {
    const Raised raised(running_);
    act(action, rest);
  }
  run({});
}

void EventPump::run(const std::vector<Action>& first) {
  {
    const Raised raised(running_);
    act_on(first);
    while (!events_.empty()) {
      const Event next = std::move(events_.front());
      events_.pop_front();
      act_on(supervisor_.handle(next));
    }
  }
  callbacks_.settled();
}

void EventPump::act_on(const std::vector<Action>& actions) {
  for (const Action& action : actions) act(action, [&] { callbacks_.carry_out(action); });
}

void EventPump::act(const Action& action, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& problem) {
    callbacks_.failed(action, problem);
  } catch (...) {
    callbacks_.failed(action, std::runtime_error("an exception without a description"));
  }
}

}  // namespace mgpu::launcher
