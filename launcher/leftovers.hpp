#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace mgpu::launcher {

// What ranks leave behind: processes reparented to us (we are a subreaper) and others that carry
// the job's cookie. Nothing else is ever signalled.
class Leftovers {
 public:
  // `is_known` names children that are not leftovers: running workers and the guard.
  Leftovers(std::string cookie, std::function<bool(pid_t)> is_known)
      : cookie_(std::move(cookie)), is_known_(std::move(is_known)) {}

  // Takes the ends of orphans, so that no zombie stays.
  void reap();
  // True when nothing is left; reaps first.
  bool gone();
  // SIGTERM to each that has not had it yet, SIGCONT so that stopped ones can follow it.
  void ask_to_end();
  void kill_all();
  // Those that are there now, for a message.
  std::vector<pid_t> list() const;
  void begin_attempt() { asked_.clear(); }

 private:
  std::vector<pid_t> orphans() const;

  std::string cookie_;
  std::function<bool(pid_t)> is_known_;
  std::set<pid_t> asked_;
};

}  // namespace mgpu::launcher
