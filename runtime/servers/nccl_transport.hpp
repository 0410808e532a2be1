#pragma once

#include <c10/core/Device.h>

#include <array>
#include <memory>
#include <string>

#include "runtime/servers/weight_transfer.hpp"

namespace mgpu::servers {

// The way over NCCL, as vLLM's workers look for it: rank 0 of a group of its own serves a store at
// the meeting's port, and in it NCCL's id.
std::unique_ptr<Transport> make_nccl_transport(const Meeting& meeting, c10::Device device);

// Where the id lies in the store, and how: a pickle of the type that vLLM's workers know.
inline constexpr const char* kIdKey = "broadcast_from/0/0";
std::string pickled_id(const std::array<char, 128>& id);

// The address of this host as a server at `host` sees it.
std::string address_towards(const std::string& host);

}  // namespace mgpu::servers
