#include "runtime/comm/rewindable.hpp"

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

using mgpu::comm::Comm;
using mgpu::comm::Pending;
using mgpu::comm::Rewindable;
using mgpu::comm::Tensor;

// Lists the collectives that reach it.
class Listed : public Comm {
 public:
  std::vector<std::string> names;
  std::size_t fails_at = SIZE_MAX;  // the collective that finds no memory, once

  int rank() const override { return 1; }
  int world() const override { return 2; }
  const char* backend() const override { return "none"; }
  Pending all_reduce(Tensor, const char* what) override { return list(what); }
  Pending reduce_scatter(Tensor, Tensor, const char* what) override { return list(what); }
  Pending all_gather(Tensor, Tensor, const char* what) override { return list(what); }
  Pending all_to_all(Tensor, Tensor, const char* what) override { return list(what); }
  Pending broadcast(Tensor, int, const char* what) override { return list(what); }
  void barrier(const char* what) override { list(what); }
  void close() override { list("close"); }

 private:
  Pending list(const char* what) {
    if (names.size() == fails_at) {
      fails_at = SIZE_MAX;
      throw std::bad_alloc();
    }
    names.emplace_back(what);
    return Pending([] {});
  }
};

// A sequence of collectives that fails after `count` of them.
void run(Comm& comm, int count) {
  const std::vector<std::function<Pending()>> calls{
      [&] { return comm.all_gather({}, {}, "gather"); },
      [&] { return comm.all_to_all({}, {}, "exchange"); },
      [&] { return comm.reduce_scatter({}, {}, "scatter"); },
      [&] { return comm.all_reduce({}, "reduce"); },
      [&] { return comm.broadcast({}, 0, "broadcast"); },
  };
  for (int i = 0; i < count; ++i) calls[static_cast<std::size_t>(i)]();
}

const std::vector<std::string> kWhole{"gather", "exchange", "scatter", "reduce", "broadcast"};

}  // namespace

TEST_CASE("a sequence of collectives that is repeated starts each of them once", "[comm]") {
  const int failed_after = GENERATE(0, 1, 2, 3, 4, 5);
  CAPTURE(failed_after);
  Listed listed;
  Rewindable comm(listed);
  comm.mark();
  run(comm, failed_after);
  comm.rewind();
  run(comm, 5);
  CHECK(listed.names == kWhole);

  SECTION("and the next sequence is complete again") {
    listed.names.clear();
    comm.mark();
    run(comm, 5);
    CHECK(listed.names == kWhole);
  }
}

TEST_CASE("a sequence that fails twice goes on where it was", "[comm]") {
  Listed listed;
  Rewindable comm(listed);
  comm.mark();
  run(comm, 2);
  comm.rewind();
  run(comm, 4);
  comm.rewind();
  run(comm, 5);
  CHECK(listed.names == kWhole);
}

TEST_CASE("a collective that is left out is not under way", "[comm]") {
  Listed listed;
  Rewindable comm(listed);
  comm.mark();
  CHECK(comm.all_reduce({}, "reduce").under_way());
  comm.rewind();
  CHECK_FALSE(comm.all_reduce({}, "reduce").under_way());
}

TEST_CASE("a collective that found no memory is started when the sequence is repeated", "[comm]") {
  Listed listed;
  listed.fails_at = GENERATE(0U, 1U, 4U);
  Rewindable comm(listed);
  comm.mark();
  CHECK_THROWS_AS(run(comm, 5), std::bad_alloc);
  comm.rewind();
  run(comm, 5);
  CHECK(listed.names == kWhole);
}
