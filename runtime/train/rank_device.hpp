#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/config/config.hpp"

namespace mgpu::train {

// How a rank gets its device and its connections to the other ranks. Values only, so that another
// thread can do it while this one reads files.
struct JoinRequest {
  rendezvous::Contract contract;
  comm::CommOptions options;  // the backend may be automatic
  std::optional<int> device_index;
};
JoinRequest join_request(const TrainConfig& config, const rendezvous::Contract& contract,
                         std::optional<int> device_index);

// Settings of this process that the libraries read later. Call it before any other thread starts.
void prepare_libraries(const TrainConfig& config);

// Creates the context on the GPU, which takes a second, and makes it the current device of this
// thread. Another thread may call it too, to make it its current device.
at::Device open_device(const JoinRequest& request);

// Connects to the other ranks, which have to call it too; the device is open in this thread.
std::unique_ptr<comm::Comm> connect(const JoinRequest& request);

// Whether connect() may run while other threads read the environment.
bool can_connect_in_background(const JoinRequest& request);

}  // namespace mgpu::train
