#pragma once

#include <stdexcept>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::train {

// Reads from a checkpoint that rank 0 has verified. What this rank misses in it, such as behind the
// cache of a network disk, it may see in the next attempt, so its error is not one of the input.
template <class Read>
void read_verified(const Read& read) {
  try {
    read();
  } catch (const rendezvous::InputError& error) {
    throw std::runtime_error(error.what());
  }
}

}  // namespace mgpu::train
