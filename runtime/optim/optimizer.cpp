#include "runtime/optim/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace mgpu::optim {

const Moment& FragmentState::at(std::string_view name) const {
  const auto found = std::ranges::find(vectors, name, &StateVector::name);
  if (found == vectors.end())
    throw std::out_of_range(fmt::format("the optimizer has no state named {}", name));
  return found->stored;
}

}  // namespace mgpu::optim
