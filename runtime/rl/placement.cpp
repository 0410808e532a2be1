#include "runtime/rl/placement.hpp"

#include <ATen/ops/empty.h>

#include <cstring>

namespace mgpu::rl {
namespace {

at::Device device_of(const train::Role& role, at::Device own) {
  if (!role.has_own_gpu() || !own.is_cuda()) return own;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(*role.gpu)};
}

}  // namespace

Placement::Placement(const train::Role& role, at::Device own, comm::Comm& comm)
    : resident_(role.has_own_gpu()),
      local_(!resident_ || comm.rank() == role.holder),
      resident_rank_(role.holder),
      device_(device_of(role, own)),
      alone_(resident_ ? comm::join({}, {}) : nullptr),
      comm_(resident_ ? alone_.get() : &comm) {}

std::unique_ptr<parallel::Shards> Placement::make_shards(const model::ModelConfig& config,
                                                         model::ModelLayout layout,
                                                         at::ScalarType dtype) const {
  if (!local_) return nullptr;
  parallel::ShardOptions options;
  options.zero_stage = comm_->world() > 1 ? 3 : 0;
  options.device = device_;
  options.dtype = dtype;
  options.trains = false;
  return std::make_unique<parallel::Shards>(config, std::move(layout), options, *comm_);
}

void broadcast_floats(std::vector<float>& numbers, int from, comm::Comm& comm, at::Device device,
                      const char* what) {
  if (comm.world() == 1 || numbers.empty()) return;
  auto values = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kFloat);
  std::memcpy(values.data_ptr(), numbers.data(), numbers.size() * sizeof(float));
  values = values.to(device);
  comm.broadcast(values, from, what).wait();
  values = values.cpu();
  std::memcpy(numbers.data(), values.const_data_ptr(), numbers.size() * sizeof(float));
}

}  // namespace mgpu::rl
