#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/contract.hpp"

namespace mgpu::launcher {

// The variable that marks every process a job creates. Nested jobs append theirs after a colon,
// so that the outer job still knows them as its own.
inline constexpr const char* kCookieVariable = rendezvous::variable::kJobCookie;

// A fresh cookie, never the same twice.
std::string make_cookie();

// What a worker's variable holds: `inherited` (empty: none) and then our own.
std::string join_cookies(std::string_view inherited, std::string_view own);

// True when the environment block (NAME=value, each ended by NUL) carries the cookie.
bool carries_cookie(std::string_view environment, std::string_view cookie);

// Living processes (zombies do not count) whose environment carries the cookie.
std::vector<pid_t> processes_with_cookie(std::string_view cookie);

// Our own children, zombies included, as the kernel lists them.
std::vector<pid_t> children_of_self();

// Sends the signal to the process if it still carries the cookie: the pid cannot have become
// somebody else's in between. Returns whether it was sent.
bool signal_carrier(pid_t pid, std::string_view cookie, int signo);

}  // namespace mgpu::launcher
