#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/contract.hpp"

namespace mgpu::comm {

using at::Tensor;

// A collective under way. wait() makes its result good for what follows: on a GPU for what is
// queued on the current stream, on a CPU at once. Destroying one that was not waited for waits.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::function<void()> wait) : wait_(std::move(wait)) {}
  Pending(Pending&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
  Pending& operator=(Pending&& other) noexcept {
    wait_ = std::exchange(other.wait_, nullptr);
    return *this;
  }

  void wait() {
    if (auto wait = std::exchange(wait_, nullptr)) wait();
  }
  bool under_way() const { return wait_ != nullptr; }

 private:
  std::function<void()> wait_;
};

// The ranks of a job talking to each other. Every rank makes the same calls in the same order; only
// sums, because the rest of the program scales once. `what` names the operation for the message if
// it fails, for example "all-reduce of gradients". One thread.
class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual const char* backend() const = 0;  // "nccl", "gloo" or "none"

  virtual Pending all_reduce(Tensor tensor, const char* what) = 0;
  // out = this rank's part of the sum; it may be that part of `in` itself.
  virtual Pending reduce_scatter(Tensor out, Tensor in, const char* what) = 0;
  // out = the parts of all ranks; `in` may be this rank's part of it.
  virtual Pending all_gather(Tensor out, Tensor in, const char* what) = 0;
  // Equal parts: part r of `in` goes to rank r, part r of `out` comes from it.
  virtual Pending all_to_all(Tensor out, Tensor in, const char* what) = 0;
  virtual Pending broadcast(Tensor tensor, int from, const char* what) = 0;

  // Returns when all ranks have called it, with the host waiting.
  virtual void barrier(const char* what) = 0;

  // The normal end; nothing may be under way. Without it, connections are torn.
  virtual void close() = 0;
};

enum class Backend { automatic, nccl, gloo };

struct CommOptions {
  Backend backend = Backend::automatic;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // Called, from any thread, with one line when a collective has failed or is overdue and nothing
  // can go on; it does not return.
  std::function<void(const std::string&)> fatal;
};

// Joins the job that the contract describes; with one rank, nobody. Throws std::runtime_error with
// what to look at when the others cannot be reached.
std::unique_ptr<Comm> join(const rendezvous::Contract& contract, const CommOptions& options);

// NCCL where there is a GPU for every rank, gloo elsewhere.
Backend choose(Backend wanted, const rendezvous::Contract& contract, int gpus);

}  // namespace mgpu::comm
