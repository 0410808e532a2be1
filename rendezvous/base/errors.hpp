#pragma once

#include <stdexcept>
#include <string>

namespace mgpu::rendezvous {

// "what: the system's word for errno"; the form every failed system call is reported in.
[[noreturn]] void throw_errno(const std::string& what);
[[noreturn]] void throw_errno(const std::string& what, int error);

// The system's word for an error number, in any locale and from any thread.
std::string error_text(int error);

}  // namespace mgpu::rendezvous
