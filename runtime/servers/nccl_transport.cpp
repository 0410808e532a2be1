#include "runtime/servers/nccl_transport.hpp"

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "runtime/servers/id_store.hpp"

namespace mgpu::servers {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(1);
constexpr auto kJoinLimit = std::chrono::minutes(5);

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess && result != ncclInProgress)
    throw std::runtime_error(fmt::format("cannot {} over NCCL: {}; set NCCL_DEBUG=INFO for details",
                                         what, ncclGetErrorString(result)));
}

// Owns the communicator. It is non-blocking, so that no NCCL call waits for the workers.
class NcclTransport : public Transport {
 public:
  NcclTransport(TransferGroup group, http::Address server, c10::Device device)
      : group_(std::move(group)), server_(std::move(server)), device_(device) {}
  // Aborts, because destroying would wait for workers that may be gone.
  ~NcclTransport() override {
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }

  void join(const CheckServer& check_server) override {
    const c10::cuda::CUDAGuard guard(device_);
    form_group(check_server);
    // vLLM's workers begin with an all-reduce of one float.
    const auto first = at::zeros({1}, at::TensorOptions(device_).dtype(at::kFloat));
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    check(ncclAllReduce(first.data_ptr(), first.data_ptr(), 1, ncclFloat, ncclSum, comm_, stream),
          "start the transfer");
    finish("start the transfer", check_server);
  }

  void broadcast(const at::Tensor& bytes, const CheckServer& check_server) override {
    const c10::cuda::CUDAGuard guard(device_);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    check(ncclBroadcast(bytes.data_ptr(), bytes.data_ptr(), static_cast<std::size_t>(bytes.numel()),
                        ncclUint8, 0, comm_, stream),
          "send weights");
    finish("send weights", check_server);
  }

 private:
  // The workers need the store with the id only until NCCL has connected all of them.
  void form_group(const CheckServer& check_server) {
    constexpr const char* kConnect = "connect to the server's workers";
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "create an id");
    NcclId bytes{};
    static_assert(sizeof(id) == sizeof(bytes));
    std::copy_n(id.internal, bytes.size(), bytes.begin());
    IdStore store({.address = group_.address,
                   .port = group_.port,
                   .workers = group_.workers,
                   .peers = worker_peers(server_, group_.address)},
                  bytes);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto world = static_cast<int>(group_.workers) + 1;
    check(ncclCommInitRankConfig(&comm_, world, id, 0, &config), kConnect);
    store.serve_until(
        [&] {
          if (!in_progress(kConnect)) return true;
          check_server();
          return false;
        },
        kJoinLimit);
  }

  // Whether NCCL has not finished the last call on the host yet.
  bool in_progress(const char* what) const {
    auto state = ncclInProgress;
    check(ncclCommGetAsyncError(comm_, &state), what);
    check(state, what);
    return state == ncclInProgress;
  }

  void wait_for_nccl(const char* what, const CheckServer& check_server) const {
    while (in_progress(what)) {
      check_server();
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  // Waits until the device has finished it too.
  void finish(const char* what, const CheckServer& check_server) {
    wait_for_nccl(what, check_server);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    while (!stream.query()) {
      auto state = ncclSuccess;
      check(ncclCommGetAsyncError(comm_, &state), what);
      check(state, what);
      check_server();
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  TransferGroup group_;
  http::Address server_;
  c10::Device device_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const TransferGroup& group,
                                               const http::Address& server, c10::Device device) {
  return std::make_unique<NcclTransport>(group, server, device);
}

}  // namespace mgpu::servers
