#include "launcher/options/hostfile.hpp"

#include <fstream>

#include "launcher/options/options.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

std::vector<Host> hosts_in(const std::string& text) {
  return parse_hostfile(text, "hosts");
}

}  // namespace

TEST_CASE("a hostfile lists hosts in the order of node ranks", "[hostfile]") {
  const auto hosts = hosts_in(
      "# the cluster\n"
      "\n"
      "worker-1 slots=8   # DeepSpeed\r\n"
      "\tme@10.0.0.2  slots=4 max_slots=8\n"
      "fd00::3\n"
      "node4 max-slots=2");
  CHECK(hosts == std::vector<Host>{{"", "worker-1", 8, 3},
                                   {"me", "10.0.0.2", 4, 4},
                                   {"", "fd00::3", std::nullopt, 5},
                                   {"", "node4", std::nullopt, 6}});
  CHECK(hosts[1].address() == "me@10.0.0.2");
}

TEST_CASE("a repeated host is one more slot if no line has slots=", "[hostfile]") {
  CHECK(hosts_in("a\nb\na\na\n") == std::vector<Host>{{"", "a", 3, 1}, {"", "b", std::nullopt, 2}});
  const auto* bad = GENERATE("a slots=2\nb\na slots=2\n", "a slots=2\nb\na\n", "a\nb\na slots=1\n");
  CHECK_THROWS_WITH(hosts_in(bad),
                    "hosts:3: a is already listed on line 1; list it once with all its slots");
}

TEST_CASE("an error in a hostfile names its line", "[hostfile]") {
  struct Case {
    std::string line, message;
  };
  const auto c = GENERATE(values<Case>({
      {"a slots=0", "slots=0: need a whole number from 1 to 4096"},
      {"a slots=x", "slots=x: need a whole number from 1 to 4096"},
      {"a slots", "slots: need a whole number from 1 to 4096"},
      {"a slots=4 max_slots=2", "slots=4 is more than max_slots=2; lower slots"},
      {"a gpus=4", "gpus=4 is not a known field; need slots=N"},
      {"a b", "b is not a known field; need slots=N"},
      {"a:22",
       "a:22: set a port in ~/.ssh/config or --ssh-command, and the number of ranks with slots=N"},
      {"-oProxyCommand=x", "-oProxyCommand=x is not a valid host name"},
      {"me@-l", "-l is not a valid host name"},
      {"-v@a", "-v is not a valid user name"},
      {"@a", "'' is not a valid user name"},
      {"a;reboot", "a;reboot is not a valid host name"},
      {"a\x1b[2J", "a?[2J is not a valid host name"},
      {std::string(1025, 'a'), "the line is longer than 1024 bytes, the limit"},
  }));
  CHECK_THROWS_WITH(hosts_in("ok\n" + c.line + "\n"), "hosts:2: " + c.message);
}

TEST_CASE("a hostfile has at least one host and at most 4096", "[hostfile]") {
  CHECK_THROWS_WITH(hosts_in("# nobody\n"), "hosts: lists no host; write one host name per line");
  CHECK_THROWS_WITH(hosts_in(""), "hosts: lists no host; write one host name per line");
  std::string many;
  for (int i = 0; i < 4096; ++i) many += "n" + std::to_string(i) + "\n";
  CHECK(hosts_in(many).size() == 4096);
  CHECK_THROWS_WITH(hosts_in(many + "x\n"), "hosts:4097: more than 4096 hosts, the limit");

  TempDir dir;
  std::ofstream(dir.path("hosts")) << "a\nb slots=2\n";
  const auto read = [](const std::string& path) {
    Options options;
    options.hostfile = path;
    return read_hostfile(options);
  };
  CHECK(read(dir.path("hosts")).size() == 2);
  CHECK_THROWS_WITH(read(dir.path("none")), Contains("none: cannot read the file: No such file"));
  CHECK_THROWS_WITH(read(dir.path(".")), Contains("Is a directory"));
  CHECK_THROWS_WITH(read("/dev/zero"),
                    "--hostfile /dev/zero: the file is larger than 1 MiB, the limit");
}
