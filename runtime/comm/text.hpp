#pragma once

#include <c10/core/Device.h>

#include <string>

#include "runtime/comm/comm.hpp"

namespace mgpu::comm {

// Rank 0's text on every rank; what the others give is not looked at. `device` is where
// collectives' tensors are.
std::string share_text(Comm& comm, const std::string& text, c10::Device device, const char* what);

}  // namespace mgpu::comm
