#include "runtime/train/rank_device.hpp"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <stdlib.h>

#include <chrono>

#include "rendezvous/base/exit_status.hpp"
#include "runtime/comm/rejoinable_comm.hpp"
#include "runtime/train/determinism.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/failure_report.hpp"

namespace mgpu::train {
namespace {

comm::Backend backend_of(const std::string& name) {
  if (name == "nccl") return comm::Backend::nccl;
  if (name == "gloo") return comm::Backend::gloo;
  return comm::Backend::automatic;
}

[[noreturn]] void die(const std::string& text) {
  write_failure_report(text);
  _Exit(exit_status::kFailure);
}

// NCCL opens the connections for a kind and size of all-reduce when the first one comes.
void warm_up(comm::Comm& comm) {
  for (const std::int64_t elements : {1, 16 << 20}) {
    const auto zeros = at::zeros({elements}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
    comm.all_reduce(zeros, "first all-reduce").wait();
  }
  comm.barrier("first barrier");  // nothing is left on the GPU
}

}  // namespace

JoinRequest join_request(const TrainConfig& config, const rendezvous::Contract& contract,
                         std::optional<int> device_index) {
  JoinRequest request{.contract = contract, .options = {}, .device_index = device_index};
  request.options.backend = backend_of(config.backend);
  request.options.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(config.ddp_timeout * 1e3));
  request.options.fatal = die;
  return request;
}

void prepare_libraries(const TrainConfig& config) {
  if (config.full_determinism) require_determinism();
  at::globalContext().setAllowTF32CuBLAS(false);
  comm::prepare_environment();
}

at::Device open_device(const JoinRequest& request) {
  const bool gpu = comm::choose(request.options.backend, visible_gpus()) == comm::Backend::nccl;
  return take_device(request.device_index.value_or(gpu_of(request.contract.local_rank)), gpu);
}

std::unique_ptr<comm::Comm> connect(const JoinRequest& request) {
  auto options = request.options;
  options.backend = comm::choose(options.backend, visible_gpus());
  auto comm = options.peer_replaced
                  ? std::make_unique<comm::RejoinableComm>(request.contract, options)
                  : comm::join(request.contract, options);
  if (options.backend == comm::Backend::nccl && comm->world() > 1) warm_up(*comm);
  return comm;
}

bool can_connect_in_background(const JoinRequest& request) {
  const int gpus = visible_gpus();
  return comm::choose(request.options.backend, gpus) != comm::Backend::nccl ||
         comm::nccl_host(request.contract, gpus).empty();
}

}  // namespace mgpu::train
