#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "runtime/http/client.hpp"
#include "runtime/servers/weight_transfer.hpp"

namespace mgpu::servers {

// Sends over NCCL in the way vLLM's workers expect: this process is rank 0 of a separate NCCL
// group. While the group forms, it serves the group's NCCL id at the group's address and port to
// the workers of `server` (IdStore).
std::unique_ptr<Transport> make_nccl_transport(const TransferGroup& group,
                                               const http::Address& server, c10::Device device);

}  // namespace mgpu::servers
