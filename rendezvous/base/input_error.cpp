#include "rendezvous/base/input_error.hpp"

#include <system_error>

namespace mgpu::rendezvous {
namespace {

// The constructors of std::system_error append the description of the number to their text.
class WrappedSystemError : public std::system_error {
 public:
  WrappedSystemError(const std::error_code& code, const std::string& text)
      : std::system_error(code), text_(text) {}

  const char* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // can be copied without an exception
};

}  // namespace

void throw_like(const std::runtime_error& cause, const std::string& text) {
  if (dynamic_cast<const InputError*>(&cause) != nullptr) throw InputError(text);
  if (const auto* const failure = dynamic_cast<const std::system_error*>(&cause))
    throw WrappedSystemError(failure->code(), text);
  throw std::runtime_error(text);
}

}  // namespace mgpu::rendezvous
