#include "launcher/leftovers.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "launcher/process_tree.hpp"

namespace mgpu::launcher {

std::vector<pid_t> Leftovers::orphans() const {
  auto children = children_of_self();
  std::erase_if(children, is_known_);
  return children;
}

void Leftovers::reap() {
  for (const pid_t pid : orphans()) ::waitpid(pid, nullptr, WNOHANG);
}

bool Leftovers::gone() {
  reap();
  return orphans().empty();
}

void Leftovers::ask_to_end() {
  // Our children are not reaped by anybody else: their numbers are their own.
  for (const pid_t pid : orphans())
    if (asked_.insert(pid).second) {
      ::kill(pid, SIGTERM);
      ::kill(pid, SIGCONT);
    }
  for (const pid_t pid : processes_with_cookie(cookie_))
    if (!is_known_(pid) && asked_.insert(pid).second) {
      signal_carrier(pid, cookie_, SIGTERM);
      signal_carrier(pid, cookie_, SIGCONT);
    }
}

void Leftovers::kill_all() {
  for (const pid_t pid : orphans()) ::kill(pid, SIGKILL);
  for (const pid_t pid : processes_with_cookie(cookie_)) signal_carrier(pid, cookie_, SIGKILL);
}

std::vector<pid_t> Leftovers::list() const {
  auto found = processes_with_cookie(cookie_);
  for (const pid_t pid : orphans())
    if (std::find(found.begin(), found.end(), pid) == found.end()) found.push_back(pid);
  return found;
}

}  // namespace mgpu::launcher
