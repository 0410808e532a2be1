#pragma once

#include <stdexcept>
#include <string>

namespace mgpu::rendezvous {

// Throws "what: description of errno". All failed system calls are reported this way.
[[noreturn]] void throw_errno(const std::string& what);
[[noreturn]] void throw_errno(const std::string& what, int error);

// The system's description of an error number, in any locale and from any thread.
std::string error_text(int error);

}  // namespace mgpu::rendezvous
