#include "launcher/nodes/master_address.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

TEST_CASE("ranks use the given master address and port", "[meeting_address]") {
  Options options;
  CHECK(master_address(options) == MasterAddress{"127.0.0.1", 0});

  SECTION("with the static backend the endpoint is the master address, as in torchrun") {
    options.rdzv_endpoint = "10.0.0.4:29501";
    CHECK(master_address(options) == MasterAddress{"10.0.0.4", 29501});
    options.rdzv_endpoint = "[fd00::1]:29501";
    CHECK(master_address(options) == MasterAddress{"fd00::1", 29501});
    options.rdzv_endpoint = "localhost";
    CHECK(master_address(options) == MasterAddress{"localhost", 0});
  }
  SECTION("with --standalone or another backend the endpoint is not the master address") {
    options.rdzv_endpoint = "10.0.0.4:29501";
    options.standalone = GENERATE(true, false);
    if (!options.standalone) options.rdzv_backend = "c10d";
    CHECK(master_address(options) == MasterAddress{"127.0.0.1", 0});
  }
  SECTION("--master-addr and --master-port take precedence") {
    options.rdzv_endpoint = "10.0.0.4:29501";
    options.master_port = 4;
    options.master_addr = "h";
    CHECK(master_address(options) == MasterAddress{"h", 4});
  }
}
