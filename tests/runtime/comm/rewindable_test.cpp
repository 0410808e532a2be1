#include "runtime/comm/rewindable.hpp"

#include <functional>
#include <new>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/listed_comm.hpp"

namespace {

using mgpu::comm::Comm;
using mgpu::comm::Pending;
using mgpu::comm::Rewindable;
using mgpu::tests::ListedComm;

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
  ListedComm listed(1);
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
  ListedComm listed(1);
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
  ListedComm listed(1);
  Rewindable comm(listed);
  comm.mark();
  CHECK(comm.all_reduce({}, "reduce").under_way());
  comm.rewind();
  CHECK_FALSE(comm.all_reduce({}, "reduce").under_way());
}

TEST_CASE("a collective that found no memory is started when the sequence is repeated", "[comm]") {
  ListedComm listed(1);
  listed.fails_at = GENERATE(0U, 1U, 4U);
  listed.fail = [] { throw std::bad_alloc(); };
  Rewindable comm(listed);
  comm.mark();
  CHECK_THROWS_AS(run(comm, 5), std::bad_alloc);
  comm.rewind();
  run(comm, 5);
  CHECK(listed.names == kWhole);
}
