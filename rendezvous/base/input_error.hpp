#pragma once

#include <stdexcept>
#include <string>

namespace mgpu::rendezvous {

// The input is wrong, such as a file or the value of a key, and another attempt would find the
// same: the job ends with exit status 2 and is not restarted. What may be gone at the next attempt
// is another std::runtime_error, such as a failed system call or a file that is being written.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws `text`, which contains the message of `cause`; an InputError stays one.
[[noreturn]] void throw_like(const std::runtime_error& cause, const std::string& text);

}  // namespace mgpu::rendezvous
