#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"

namespace mgpu::tests {

// Lists the collectives of one of two ranks, and carries out none.
class ListedComm : public comm::Comm {
 public:
  explicit ListedComm(int rank) : rank_(rank) {}

  std::vector<std::string> names;
  std::optional<std::size_t>
      fails_at;                // how many collectives are listed before one that fails, once
  std::function<void()> fail;  // throws

  int rank() const override { return rank_; }
  int world() const override { return 2; }
  const char* backend() const override { return "none"; }
  comm::Pending all_reduce(comm::Tensor, const char* what) override { return list(what); }
  comm::Pending reduce_scatter(comm::Tensor, comm::Tensor, const char* what) override {
    return list(what);
  }
  comm::Pending all_gather(comm::Tensor, comm::Tensor, const char* what) override {
    return list(what);
  }
  comm::Pending all_to_all(comm::Tensor, comm::Tensor, const char* what) override {
    return list(what);
  }
  comm::Pending broadcast(comm::Tensor, int, const char* what) override { return list(what); }
  void barrier(const char* what) override { list(what); }
  void close() override { list("close"); }

 private:
  comm::Pending list(const char* what) {
    if (fails_at == names.size()) {
      fails_at.reset();
      fail();
    }
    names.emplace_back(what);
    return comm::Pending([] {});
  }

  int rank_;
};

}  // namespace mgpu::tests
