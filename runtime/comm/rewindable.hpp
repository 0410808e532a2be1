#pragma once

#include <cstddef>

#include "runtime/comm/comm.hpp"

namespace mgpu::comm {

// Passes collectives on to `comm` and counts them, so that a rank that fails within a sequence of
// collectives can go through the sequence again from its beginning: those that it has already
// started are left out, and the others are started. The other ranks notice nothing.
class Rewindable : public Comm {
 public:
  // `comm` must outlive this object.
  explicit Rewindable(Comm& comm) : comm_(comm) {}

  // A sequence begins here.
  void mark() { started_ = left_out_ = 0; }
  // Back to the mark. The same collectives must follow in the same order.
  void rewind() { left_out_ = started_; }

  int rank() const override { return comm_.rank(); }
  int world() const override { return comm_.world(); }
  const char* backend() const override { return comm_.backend(); }
  bool connected() const override { return comm_.connected(); }
  Pending all_reduce(Tensor tensor, const char* what) override;
  Pending reduce_scatter(Tensor out, Tensor in, const char* what) override;
  Pending all_gather(Tensor out, Tensor in, const char* what) override;
  Pending all_to_all(Tensor out, Tensor in, const char* what) override;
  Pending broadcast(Tensor tensor, int from, const char* what) override;
  void barrier(const char* what) override;
  void close() override { comm_.close(); }

 private:
  // Calls start(), unless the collective is to be left out. One that throws was not started.
  template <class Start>
  Pending pass_on(Start start);

  Comm& comm_;
  std::size_t started_ = 0;   // since the mark
  std::size_t left_out_ = 0;  // collectives that are still to be left out
};

}  // namespace mgpu::comm
