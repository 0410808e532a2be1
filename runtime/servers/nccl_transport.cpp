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

constexpr auto kLook = std::chrono::milliseconds(1);
constexpr auto kMeetingLimit = std::chrono::minutes(5);

void need(ncclResult_t result, const char* what) {
  if (result != ncclSuccess && result != ncclInProgress)
    throw std::runtime_error(fmt::format("cannot {} over NCCL: {}; NCCL_DEBUG=INFO tells more",
                                         what, ncclGetErrorString(result)));
}

// Owns the communicator; with it in non-blocking mode no call of NCCL waits for the other side.
class Nccl : public Transport {
 public:
  Nccl(Meeting meeting, c10::Device device) : meeting_(std::move(meeting)), device_(device) {}
  // Workers that are gone must not be waited for.
  ~Nccl() override {
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }

  void join(const StillWanted& still_wanted) override {
    const c10::cuda::CUDAGuard guard(device_);
    ncclUniqueId id;
    need(ncclGetUniqueId(&id), "make an id");
    std::array<char, 128> bytes{};
    static_assert(sizeof(id) == sizeof(bytes));
    std::copy_n(id.internal, bytes.size(), bytes.begin());
    serve(pickled_id(bytes));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto world = static_cast<int>(meeting_.workers) + 1;
    need(ncclCommInitRankConfig(&comm_, world, id, 0, &config), "meet the server's workers");
    const auto end = std::chrono::steady_clock::now() + kMeetingLimit;
    settle("meet the server's workers", [&] {
      still_wanted();
      if (std::chrono::steady_clock::now() > end)
        throw std::runtime_error(fmt::format(
            "the server's workers did not come to {}:{} within 5 min; they have to reach that "
            "port (vllm_group_port)",
            meeting_.address, meeting_.port));
    });
    // vLLM's side begins with a sum of one float.
    const auto first = at::zeros({1}, at::TensorOptions(device_).dtype(at::kFloat));
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    need(ncclAllReduce(first.data_ptr(), first.data_ptr(), 1, ncclFloat, ncclSum, comm_, stream),
         "begin");
    finish("begin", still_wanted);
  }

  void broadcast(const at::Tensor& bytes, const StillWanted& still_wanted) override {
    const c10::cuda::CUDAGuard guard(device_);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    need(ncclBroadcast(bytes.data_ptr(), bytes.data_ptr(), static_cast<std::size_t>(bytes.numel()),
                       ncclUint8, 0, comm_, stream),
         "send weights");
    finish("send weights", still_wanted);
  }

 private:
  void serve(const std::string& id) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(meeting_.port);
    options.isServer = true;
    options.numWorkers = static_cast<std::size_t>(meeting_.workers + 1);
    options.waitWorkers = false;  // NCCL waits for them, and looks after the server meanwhile
    try {
      store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    } catch (const std::exception& e) {
      const std::string text = e.what();
      throw std::runtime_error(fmt::format("cannot serve at port {} (vllm_group_port): {}",
                                           meeting_.port, text.substr(0, text.find('\n'))));
    }
    store_->set(kIdKey, std::vector<std::uint8_t>(id.begin(), id.end()));
  }

  // Until NCCL has done what it was asked, on the host.
  void settle(const char* what, const StillWanted& still_wanted) {
    auto state = ncclInProgress;
    while (true) {
      need(ncclCommGetAsyncError(comm_, &state), what);
      need(state, what);
      if (state != ncclInProgress) return;
      still_wanted();
      std::this_thread::sleep_for(kLook);
    }
  }

  // Until the device has done it.
  void finish(const char* what, const StillWanted& still_wanted) {
    settle(what, still_wanted);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    while (!stream.query()) {
      auto state = ncclSuccess;
      need(ncclCommGetAsyncError(comm_, &state), what);
      need(state, what);
      still_wanted();
      std::this_thread::sleep_for(kLook);
    }
  }

  Meeting meeting_;
  c10::Device device_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const Meeting& meeting, c10::Device device) {
  return std::make_unique<Nccl>(meeting, device);
}

std::string pickled_id(const std::array<char, 128>& id) {
  // Protocol 3: _ctypes._unpickle(ncclUniqueId, ({}, bytes)), as ctypes' structures are pickled.
  std::string pickle = "\x80\x03";
  pickle += "c_ctypes\n_unpickle\n";
  pickle += "cvllm.distributed.device_communicators.pynccl_wrapper\nncclUniqueId\n";
  pickle += "}C";
  pickle += static_cast<char>(id.size());
  pickle.append(id.begin(), id.end());
  pickle += "\x86\x86R.";
  return pickle;
}

std::string address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &wanted, &first) != 0) return "127.0.0.1";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(first, &::freeaddrinfo);
  const rendezvous::UniqueFd fd(::socket(first->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  char text[INET6_ADDRSTRLEN] = "127.0.0.1";
  // A connected datagram socket has the address that the way to the host begins with.
  if (::connect(fd.get(), first->ai_addr, first->ai_addrlen) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return text;
  ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text), nullptr, 0,
                NI_NUMERICHOST);
  return text;
}

}  // namespace mgpu::servers
