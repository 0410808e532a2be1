#pragma once

#include <memory>
#include <mutex>

#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"

namespace mgpu::comm {

// Connections that are made again, with a new process in the place of a lost rank, while everything
// that uses them keeps its reference to this object.
//
// A process that takes a lost rank's place starts without connections. Until rejoin() its
// collectives act as if every rank contributed what this one does.
class RejoinableComm : public Comm {
 public:
  // Connects to the other ranks, unless contract.replacement is above 0.
  RejoinableComm(rendezvous::Contract contract, CommOptions options);

  // Aborts the connections, if any, and connects all ranks of the replacement with this number.
  // Throws std::runtime_error if they cannot be reached. The caller must not use any earlier
  // Pending again.
  void rejoin(int replacement);

  int rank() const override { return contract_.rank; }
  int world() const override { return contract_.world_size; }
  const char* backend() const override { return comm_->backend(); }
  bool connected() const override { return comm_->connected(); }
  Pending all_reduce(Tensor tensor, const char* what) override;
  Pending reduce_scatter(Tensor out, Tensor in, const char* what) override;
  Pending all_gather(Tensor out, Tensor in, const char* what) override;
  Pending all_to_all(Tensor out, Tensor in, const char* what) override;
  Pending broadcast(Tensor tensor, int from, const char* what) override;
  void barrier(const char* what) override { comm_->barrier(what); }
  void close() override { comm_->close(); }
  void interrupt() override;

 private:
  rendezvous::Contract contract_;
  CommOptions options_;
  std::mutex changes_;  // of comm_, which interrupt() uses from another thread
  std::unique_ptr<Comm> comm_;
};

}  // namespace mgpu::comm
