#pragma once

#include <c10/core/Device.h>

#include <array>
#include <memory>
#include <string>

#include "runtime/servers/weight_transfer.hpp"

namespace mgpu::servers {

// Sends over NCCL in the way vLLM's workers expect: this process is rank 0 of a separate NCCL group
// and serves a TCPStore with the NCCL id at the group's port.
std::unique_ptr<Transport> make_nccl_transport(const TransferGroup& group, c10::Device device);

// The key of the id in the store, and its value: a pickle of the type that vLLM's workers load.
inline constexpr const char* kIdKey = "broadcast_from/0/0";
std::string pickled_id(const std::array<char, 128>& id);

// The address of this host under which a server at `host` can reach it.
std::string local_address_for(const std::string& host);

}  // namespace mgpu::servers
