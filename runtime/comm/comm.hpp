#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "rendezvous/contract.hpp"

namespace mgpu::comm {

using at::Tensor;

// Thrown by a collective that cannot end because a rank was lost whose place another process takes:
// see RejoinableComm.
class PeerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A running collective. After wait() the result may be used: on a GPU by work queued on the current
// stream, on a CPU at once. Destroying or overwriting it waits too, because the memory of its
// tensors may be freed or reused afterwards. Only while an exception unwinds the stack it does not
// wait: the other ranks may never take part.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::function<void()> wait) : wait_(std::move(wait)) {}
  Pending(Pending&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
  Pending& operator=(Pending&& other) noexcept {
    if (this == &other) return *this;
    finish();
    wait_ = std::exchange(other.wait_, nullptr);
    return *this;
  }
  ~Pending() { finish(); }

  void wait() {
    if (auto wait = std::exchange(wait_, nullptr)) wait();
  }
  bool under_way() const { return wait_ != nullptr; }
  // Never waits for the result. Its tensors must outlive the communicator's connections.
  void abandon() { wait_ = nullptr; }

 private:
  void finish() noexcept {
    if (std::uncaught_exceptions() == 0) wait();
  }

  std::function<void()> wait_;
};

// Collectives between the ranks of a job. Every rank must make the same calls in the same order,
// from one thread. Reductions are sums only; the rest of the program scales once. `what` names the
// operation in the message if it fails, for example "all-reduce of gradients".
class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual const char* backend() const = 0;  // "nccl", "gloo" or "none"
  // False before a process takes a lost rank's place: each rank counts as if it were this one.
  virtual bool connected() const { return true; }

  virtual Pending all_reduce(Tensor tensor, const char* what) = 0;
  // Writes this rank's part of the sum to `out`, which may be this part of `in` itself.
  virtual Pending reduce_scatter(Tensor out, Tensor in, const char* what) = 0;
  // Writes the parts of all ranks to `out`; `in` may be this rank's part of `out`.
  virtual Pending all_gather(Tensor out, Tensor in, const char* what) = 0;
  // In equal parts: part r of `in` goes to rank r, and part r of `out` comes from rank r.
  virtual Pending all_to_all(Tensor out, Tensor in, const char* what) = 0;
  virtual Pending broadcast(Tensor tensor, int from, const char* what) = 0;

  // Returns when all ranks have called it. The host waits.
  virtual void barrier(const char* what) = 0;

  // Closes the connections in order; no collective may be running. Destroying the object without it
  // aborts the connections.
  virtual void close() = 0;

  // Ends the running collectives, and lets later ones throw PeerLost. May be called from any
  // thread. The results of collectives that run on a GPU are then undefined.
  virtual void interrupt() {}
};

enum class Backend { automatic, nccl, gloo };

struct CommOptions {
  Backend backend = Backend::automatic;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // Called with a one-line message when a collective has failed or exceeded the timeout, so that
  // the program cannot continue. It may be called from any thread and must not return.
  std::function<void(const std::string&)> fatal;
  // Called, from any thread, when a collective has failed. Returns whether that is because another
  // process takes the place of a lost rank; it may wait for this news. If so, `fatal` is not called
  // and the collective throws PeerLost. Unset: every failure is fatal.
  std::function<bool()> peer_replaced = {};
};

// Sets the variables with which join() uses NCCL. Call it before threads start that may read the
// environment; otherwise join() does it.
void prepare_environment();

// Connects to the other ranks of the job that the contract describes; a job of one rank needs no
// connection. Throws std::runtime_error if they cannot be reached; the message names the checks.
std::unique_ptr<Comm> join(const rendezvous::Contract& contract, const CommOptions& options);

// Resolves `automatic`: NCCL if there are GPUs, else gloo. Throws if NCCL is requested without
// GPUs.
Backend choose(Backend wanted, int gpus);

// The NCCL_HOSTID of a rank that shares its GPU with one before it: NCCL refuses two ranks on one
// GPU of a host, and takes ranks with different ids as ranks on different hosts, which talk through
// sockets. Empty: the rank is the first one on its GPU.
std::string nccl_host(const rendezvous::Contract& contract, int gpus);

}  // namespace mgpu::comm
