#include "runtime/servers/nccl_transport.hpp"

#include <ATen/ops/zeros.h>
#include <arpa/inet.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nccl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "rendezvous/base/unique_fd.hpp"

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
  NcclTransport(TransferGroup group, c10::Device device)
      : group_(std::move(group)), device_(device) {}
  // Aborts, because destroying would wait for workers that may be gone.
  ~NcclTransport() override {
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }

  void join(const CheckServer& check_server) override {
    const c10::cuda::CUDAGuard guard(device_);
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "create an id");
    std::array<char, 128> bytes{};
    static_assert(sizeof(id) == sizeof(bytes));
    std::copy_n(id.internal, bytes.size(), bytes.begin());
    serve_id(pickled_id(bytes));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto world = static_cast<int>(group_.workers) + 1;
    check(ncclCommInitRankConfig(&comm_, world, id, 0, &config), "connect to the server's workers");
    const auto end = std::chrono::steady_clock::now() + kJoinLimit;
    wait_for_nccl("connect to the server's workers", [&] {
      check_server();
      if (std::chrono::steady_clock::now() > end)
        throw std::runtime_error(
            fmt::format("the server's workers did not connect to {}:{} within 5 min; check that "
                        "they can reach that port (vllm_group_port)",
                        group_.address, group_.port));
    });
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
  void serve_id(const std::string& id) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(group_.port);
    options.isServer = true;
    options.numWorkers = static_cast<std::size_t>(group_.workers + 1);
    options.waitWorkers = false;  // NCCL waits for them, while we can check the server
    try {
      store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    } catch (const std::exception& e) {
      const std::string text = e.what();
      throw std::runtime_error(fmt::format("cannot listen at port {} (vllm_group_port): {}",
                                           group_.port, text.substr(0, text.find('\n'))));
    }
    store_->set(kIdKey, std::vector<std::uint8_t>(id.begin(), id.end()));
  }

  // Waits until NCCL has finished the call on the host.
  void wait_for_nccl(const char* what, const CheckServer& check_server) {
    auto state = ncclInProgress;
    while (true) {
      check(ncclCommGetAsyncError(comm_, &state), what);
      check(state, what);
      if (state != ncclInProgress) return;
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
  c10::Device device_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const TransferGroup& group, c10::Device device) {
  return std::make_unique<NcclTransport>(group, device);
}

std::string pickled_id(const std::array<char, 128>& id) {
  // Pickle protocol 3: _ctypes._unpickle(ncclUniqueId, ({}, bytes)), the form of ctypes structures.
  std::string pickle = "\x80\x03";
  pickle += "c_ctypes\n_unpickle\n";
  pickle += "cvllm.distributed.device_communicators.pynccl_wrapper\nncclUniqueId\n";
  pickle += "}C";
  pickle += static_cast<char>(id.size());
  pickle.append(id.begin(), id.end());
  pickle += "\x86\x86R.";
  return pickle;
}

std::string local_address_for(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &wanted, &first) != 0) return "127.0.0.1";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(first, &::freeaddrinfo);
  const rendezvous::UniqueFd fd(::socket(first->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  char text[INET6_ADDRSTRLEN] = "127.0.0.1";
  // A connected UDP socket has the source address of the route to the host.
  if (::connect(fd.get(), first->ai_addr, first->ai_addrlen) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return text;
  ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text), nullptr, 0,
                NI_NUMERICHOST);
  return text;
}

}  // namespace mgpu::servers
