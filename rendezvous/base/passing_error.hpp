#pragma once

#include <exception>

namespace mgpu::rendezvous {

// Whether the next attempt may not meet the error again: it is that of a system call, such as of a
// network disk's, and its number does not show that a path is wrong.
bool is_passing(const std::exception& error);

}  // namespace mgpu::rendezvous
