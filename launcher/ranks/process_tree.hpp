#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/signal.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {

// The variable that marks every process of a job. Nested jobs append their cookie after a colon, so
// that the outer job still recognizes their processes.
inline constexpr const char* kCookieVariable = rendezvous::variable::kJobCookie;

// A new unique cookie.
std::string make_cookie();

// The value of the variable in a worker: `inherited` (empty: none), then our own.
std::string join_cookies(std::string_view inherited, std::string_view own);

// Whether the environment block (NAME=value, each terminated by NUL) contains the cookie.
bool carries_cookie(std::string_view environment, std::string_view cookie);

// Running processes (without zombies) whose environment contains the cookie.
std::vector<pid_t> processes_with_cookie(std::string_view cookie);

// The children of this process, including zombies, in the order of the kernel.
std::vector<pid_t> children_of_self();

// Sends the signal to the process if its environment still contains the cookie, so that a reused
// pid is never signalled. Returns whether it was sent.
bool signal_carrier(pid_t pid, std::string_view cookie, Signal signal);

}  // namespace mgpu::launcher
