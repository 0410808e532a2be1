#include "runtime/comm/rejoinable_comm.hpp"

#include <stdexcept>
#include <utility>

#include "runtime/comm/collective_log.hpp"

namespace mgpu::comm {
namespace {

// What a rank has before it takes a lost one's place.
class Unconnected : public Comm {
 public:
  Unconnected(int rank, int world, bool nccl) : rank_(rank), world_(world), nccl_(nccl) {}

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  const char* backend() const override { return nccl_ ? "nccl" : "gloo"; }
  bool connected() const override { return false; }
  Pending all_reduce(Tensor tensor, const char*) override {
    tensor.mul_(world_);
    return {};
  }
  Pending all_gather(Tensor out, Tensor in, const char*) override {
    out.view({world_, -1}).copy_(in.clone().view({1, -1}));
    return {};
  }
  Pending broadcast(Tensor, int, const char*) override { return {}; }
  Pending reduce_scatter(Tensor, Tensor, const char* what) override { unsupported(what); }
  Pending all_to_all(Tensor, Tensor, const char* what) override { unsupported(what); }
  void barrier(const char*) override {}
  void close() override {}

 private:
  [[noreturn]] static void unsupported(const char* what) {
    throw std::logic_error(std::string(what) + " before a lost rank's place is taken");
  }

  int rank_, world_;
  bool nccl_;
};

}  // namespace

RejoinableComm::RejoinableComm(rendezvous::Contract contract, CommOptions options)
    : contract_(std::move(contract)), options_(std::move(options)) {
  if (contract_.replacement.value_or(0) > 0)
    comm_ = std::make_unique<Unconnected>(contract_.rank, contract_.world_size,
                                          options_.backend == Backend::nccl);
  else
    comm_ = join(contract_, options_);
}

void RejoinableComm::rejoin(int replacement) {
  contract_.replacement = replacement;
  std::unique_ptr<Comm> old;
  {
    const std::lock_guard lock(changes_);
    old = std::move(comm_);
  }
  old.reset();  // before the new connections: the peers' collectives end with ours
  collectives().restart();
  auto made = join(contract_, options_);
  const std::lock_guard lock(changes_);
  comm_ = std::move(made);
}

void RejoinableComm::interrupt() {
  const std::lock_guard lock(changes_);
  if (comm_) comm_->interrupt();
}

Pending RejoinableComm::all_reduce(Tensor tensor, const char* what) {
  return comm_->all_reduce(std::move(tensor), what);
}

Pending RejoinableComm::reduce_scatter(Tensor out, Tensor in, const char* what) {
  return comm_->reduce_scatter(std::move(out), std::move(in), what);
}

Pending RejoinableComm::all_gather(Tensor out, Tensor in, const char* what) {
  return comm_->all_gather(std::move(out), std::move(in), what);
}

Pending RejoinableComm::all_to_all(Tensor out, Tensor in, const char* what) {
  return comm_->all_to_all(std::move(out), std::move(in), what);
}

Pending RejoinableComm::broadcast(Tensor tensor, int from, const char* what) {
  return comm_->broadcast(std::move(tensor), from, what);
}

}  // namespace mgpu::comm
