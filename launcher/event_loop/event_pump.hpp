#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "launcher/lifecycle/supervisor.hpp"

namespace mgpu::launcher {

// Passes events to the supervisor, one after another, and has the actions carried out that the
// supervisor returns. Carrying out an action may cause further events; they are queued.
//
// An action that throws is reported to `failed`, which usually causes an event. The other actions
// are carried out all the same.
class EventPump {
 public:
  struct Callbacks {
    std::function<void(const Action&)> carry_out;
    std::function<void(const Action&, const std::exception& problem)> failed;
    std::function<void()> settled;  // all events have been handled
  };

  EventPump(Supervisor& supervisor, Callbacks callbacks)
      : supervisor_(supervisor), callbacks_(std::move(callbacks)) {}
  EventPump(const EventPump&) = delete;
  EventPump& operator=(const EventPump&) = delete;

  // Carries out the first actions of the job.
  void start();
  void feed(Event event);
  // Carries out the rest of an action that had to wait for something.
  void resume(const Action& action, const std::function<void()>& rest);

 private:
  void run(const std::vector<Action>& first);
  void act(const Action& action, const std::function<void()>& work);
  void act_on(const std::vector<Action>& actions);

  Supervisor& supervisor_;
  Callbacks callbacks_;
  std::deque<Event> events_;
  bool running_ = false;
};

}  // namespace mgpu::launcher
