#include "rendezvous/base/input_error.hpp"

namespace mgpu::rendezvous {

void throw_like(const std::runtime_error& cause, const std::string& text) {
  if (dynamic_cast<const InputError*>(&cause) != nullptr) throw InputError(text);
  throw std::runtime_error(text);
}

}  // namespace mgpu::rendezvous
