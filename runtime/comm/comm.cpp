#include "runtime/comm/comm.hpp"

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runtime/comm/collective_log.hpp"
#include "runtime/comm/watchdog.hpp"
#include "runtime/profiling/range.hpp"

namespace mgpu::comm {
namespace {

using rendezvous::Contract;
using std::chrono::milliseconds;

// A job of one rank: the result of every collective is its input.
class SingleRank : public Comm {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  const char* backend() const override { return "none"; }
  Pending all_reduce(Tensor, const char*) override { return {}; }
  Pending reduce_scatter(Tensor out, Tensor in, const char*) override { return copy(out, in); }
  Pending all_gather(Tensor out, Tensor in, const char*) override { return copy(out, in); }
  Pending all_to_all(Tensor out, Tensor in, const char*) override { return copy(out, in); }
  Pending broadcast(Tensor, int, const char*) override { return {}; }
  void barrier(const char*) override {}
  void close() override {}

 private:
  static Pending copy(const Tensor& out, const Tensor& in) {
    if (out.data_ptr() != in.data_ptr()) out.copy_(in);
    return {};
  }
};

constexpr auto kLetOthersExitFirst = std::chrono::seconds(1);

const char* hint(bool nccl) {
  return nccl ? "set NCCL_DEBUG=INFO to see what NCCL does; if it hangs at the start, try "
                "NCCL_IB_DISABLE=1 or NCCL_SOCKET_IFNAME=<interface>"
              : "if gloo uses the wrong address, set GLOO_SOCKET_IFNAME to the network interface";
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

class C10dComm : public Comm {
 public:
  C10dComm(int rank, int world, const CommOptions& options, bool nccl,
           c10::intrusive_ptr<c10d::Store> store, c10::intrusive_ptr<c10d::Backend> backend)
      : rank_(rank),
        world_(world),
        nccl_(nccl),
        timeout_(options.timeout),
        store_(std::move(store)),
        backend_(std::move(backend)) {
    fatal_ = [this, rank, nccl, fatal = options.fatal,
              peer_replaced = options.peer_replaced](const std::string& text) {
      if (interrupted_ || (peer_replaced && peer_replaced())) return;
      // Usually another rank has failed first and reported the cause. Its connections break before
      // the launcher can see it exit, so a rank that exited here at once would be taken for the
      // cause.
      std::this_thread::sleep_for(kLetOthersExitFirst);
      fatal(fmt::format("rank {}: {}; {}", rank, text, hint(nccl)));
    };
    if (nccl_) watchdog_.emplace(options.timeout, fatal_);
  }

  ~C10dComm() override {
    watchdog_.reset();
    if (backend_) backend_->abort();
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  const char* backend() const override { return nccl_ ? "nccl" : "gloo"; }

  Pending all_reduce(Tensor tensor, const char* what) override {
    return start(what, tensor, [&] {
      std::vector<Tensor> list{tensor};
      return backend_->allreduce(list);
    });
  }

  Pending reduce_scatter(Tensor out, Tensor in, const char* what) override {
    return start(what, in, [&] { return backend_->_reduce_scatter_base(out, in); });
  }

  Pending all_gather(Tensor out, Tensor in, const char* what) override {
    return start(what, out, [&] { return backend_->_allgather_base(out, in); });
  }

  Pending all_to_all(Tensor out, Tensor in, const char* what) override {
    return start(what, in, [&] {
      std::vector<int64_t> equal;
      return backend_->alltoall_base(out, in, equal, equal);
    });
  }

  Pending broadcast(Tensor tensor, int from, const char* what) override {
    return start(what, tensor, [&] {
      std::vector<Tensor> list{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = from;
      return backend_->broadcast(list, options);
    });
  }

  void barrier(const char* what) override {
    const auto device = nccl_ ? at::Device(at::kCUDA) : at::Device(at::kCPU);
    Tensor one = at::zeros({1}, at::TensorOptions(device).dtype(at::kFloat));
    all_reduce(one, what).wait();
    one.item<float>();  // waits for the device
  }

  // gloo's collectives end when the ranks that they wait for close their connections, as all do
  // whose collectives throw.
  void interrupt() override {
    interrupted_ = true;
    if (nccl_) backend_->abort();
  }

  void close() override {
    barrier("barrier at the end of the job");
    watchdog_.reset();
    backend_->shutdown();
    backend_.reset();
    store_.reset();
  }

 private:
  // `whole` has the elements of all ranks together.
  template <class Call>
  Pending start(const char* what, const Tensor& whole, const Call& call) {
    const profiling::Range range(what);
    throw_if_interrupted(what);
    const auto sequence = collectives().started(what, whole.numel());
    c10::intrusive_ptr<c10d::Work> work;
    try {
      work = call();
    } catch (const std::exception& e) {
      failed(what, fmt::format("{} failed: {}", what, first_line(e.what())));
    }
    if (nccl_) watch_work(what, work, sequence);
    const auto begun = std::chrono::steady_clock::now();
    return Pending([this, what = std::string(what), work, begun, sequence] {
      const profiling::Range waiting(what.c_str());
      try {
        work->wait();
      } catch (const std::exception& e) {
        // gloo's own message about a timeout depends on which of its parts timed out.
        failed(what.c_str(), std::chrono::steady_clock::now() - begun >= timeout_
                                 ? timeout_message(what, timeout_)
                                 : fmt::format("{} failed: {}", what, first_line(e.what())));
      }
      if (!nccl_) collectives().finished(sequence);  // NCCL's wait() only makes the stream wait
    });
  }

  // Returns only by an exception: fatal_ returns only if a peer is being replaced.
  [[noreturn]] void failed(const char* what, const std::string& text) {
    fatal_(text);
    throw PeerLost(fmt::format("{}: a peer is being replaced", what));
  }

  void throw_if_interrupted(const char* what) const {
    if (interrupted_) throw PeerLost(fmt::format("{}: a peer is being replaced", what));
  }

  // The watchdog gets a copy of the Work, which has its state but does not own its tensors.
  // Otherwise tensors would stay allocated until the watchdog wakes up, which can be many layers'
  // weights.
  void watch_work(const char* what, const c10::intrusive_ptr<c10d::Work>& work,
                  std::int64_t sequence) {
    using Work = c10d::ProcessGroupNCCL::WorkNCCL;
    const auto state = c10::make_intrusive<Work>(dynamic_cast<const Work&>(*work));
    watchdog_->add({what, [state] { return state->isCompleted(); },
                    [state]() -> std::string {
                      const auto failure = state->exception();
                      if (!failure) return {};
                      try {
                        std::rethrow_exception(failure);
                      } catch (const std::exception& e) {
                        return first_line(e.what());
                      }
                    },
                    sequence});
  }

  int rank_, world_;
  bool nccl_;
  milliseconds timeout_;
  std::atomic<bool> interrupted_ = false;
  std::function<void(const std::string&)> fatal_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::optional<Watchdog> watchdog_;
};

// Connects to the launcher's store. If the launcher runs none, rank 0 serves one.
c10::intrusive_ptr<c10d::Store> connect(const Contract& c, const CommOptions& options) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<std::uint16_t>(c.master_port);
  store.isServer = !c.agent_store && c.rank == 0;
  store.waitWorkers = false;
  store.timeout = options.timeout;
  auto tcp = c10::make_intrusive<c10d::TCPStore>(c.master_addr, store);
  // The prefix keeps keys of earlier attempts, and of earlier replacements of ranks, apart.
  const auto attempt = c.replacement.value_or(0) == 0
                           ? std::to_string(c.restart_count)
                           : fmt::format("{}.{}", c.restart_count, *c.replacement);
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("mgpu-train/{}/{}", c.run_id, attempt),
                                                std::move(tcp));
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const Contract& c, const CommOptions& options,
                                            const c10::intrusive_ptr<c10d::Store>& store) {
  prepare_environment();
  const auto host = nccl_host(c, c10::cuda::device_count());
  if (!host.empty()) setenv("NCCL_HOSTID", host.c_str(), 0);
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  nccl_options->timeout = options.timeout + std::chrono::minutes(5);
  nccl_options->group_name = "mgpu";
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::make_intrusive<c10d::PrefixStore>("nccl", store), c.rank, c.world_size, nccl_options);
  const at::Device device(at::kCUDA, c10::cuda::current_device());
  nccl->setBoundDeviceId(device);
  nccl->eagerConnectSingleDevice(device);
  return nccl;
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const Contract& c, const CommOptions& options,
                                            const c10::intrusive_ptr<c10d::Store>& store) {
  auto gloo_options = c10d::ProcessGroupGloo::Options::create();
  gloo_options->timeout = options.timeout;
  using Group = c10d::ProcessGroupGloo;
  const char* interface = getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr) {
    gloo_options->devices.push_back(Group::createDeviceForInterface(interface));
  } else if (c.local_world_size == c.world_size) {
    gloo_options->devices.push_back(Group::createDeviceForHostname("127.0.0.1"));
  } else {
    gloo_options->devices.push_back(Group::createDefaultDevice());
  }
  return c10::make_intrusive<Group>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), c.rank,
                                    c.world_size, gloo_options);
}

}  // namespace

Backend choose(Backend wanted, int gpus) {
  if (wanted == Backend::nccl && gpus == 0) {
    throw std::runtime_error("backend: nccl needs GPUs and none is visible; use backend: gloo");
  }
  if (wanted != Backend::automatic) return wanted;
  return gpus > 0 ? Backend::nccl : Backend::gloo;
}

void prepare_environment() {
  const auto set = [](const char* name, const char* value) {
    const char* now = getenv(name);
    if (now == nullptr || std::string_view(now) != value) setenv(name, value, 1);
  };
  // Our own watchdog reports which operation hung; torch's would abort earlier, with a stack trace.
  set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0");
  // After an error torch's watchdog sleeps for a minute so that records can be written, and ending
  // the communicator waits for it. There is no such record: we report the collectives ourselves.
  set("TORCH_NCCL_DUMP_ON_TIMEOUT", "0");
  set("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0");
}

std::string nccl_host(const Contract& contract, int gpus) {
  if (contract.local_rank < gpus) return {};
  return fmt::format("node {}, share {}", contract.group_rank, contract.local_rank / gpus);
}

std::unique_ptr<Comm> join(const Contract& contract, const CommOptions& options) {
  if (contract.world_size == 1) return std::make_unique<SingleRank>();
  const bool nccl = options.backend == Backend::nccl;
  try {
    auto store = connect(contract, options);
    auto backend = nccl ? make_nccl(contract, options, store) : make_gloo(contract, options, store);
    return std::make_unique<C10dComm>(contract.rank, contract.world_size, options, nccl,
                                      std::move(store), std::move(backend));
  } catch (const std::exception& e) {
    throw std::runtime_error(
        fmt::format("rank {} cannot join the {} other ranks through {}:{}: {}; {}", contract.rank,
                    contract.world_size - 1, contract.master_addr, contract.master_port,
                    first_line(e.what()), hint(nccl)));
  }
}

}  // namespace mgpu::comm
