#pragma once

#include <stdexcept>
#include <string>

#include "runtime/hub/repository.hpp"

namespace mgpu::hub {

// A repository cannot be had. The message is one line that states what to do.
class HubError : public std::runtime_error {
 public:
  // passing: it may succeed later without a change.
  HubError(const std::string& message, bool passing)
      : std::runtime_error(message), passing_(passing) {}
  bool passing() const { return passing_; }

 private:
  bool passing_;
};

// The line of a program's output that names the error, without characters that do not print.
std::string error_line_of(const std::string& output);

// Why a download failed, from what the hub's program has printed.
HubError failure_of(const Repository& repository, const std::string& output);

}  // namespace mgpu::hub
