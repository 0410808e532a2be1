#include "launcher/options/hostlist.hpp"

#include "launcher/options/options.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

TEST_CASE("a host list is expanded in order", "[hostlist]") {
  struct Case {
    std::string list;
    Names names;
  };
  const auto c = GENERATE(values<Case>({
      {"n1", {"n1"}},
      {"b,a", {"b", "a"}},
      {"a[01-03,7],b[1-2]x3", {"a01", "a02", "a03", "a7", "b1x3", "b2x3"}},
      {"r[1-2]n[08-10]", {"r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"}},
      {"[3-4]", {"3", "4"}},
      {"gpu-[099-101].example", {"gpu-099.example", "gpu-100.example", "gpu-101.example"}},
      {"a[0]", {"a0"}},
  }));
  CAPTURE(c.list);
  CHECK(expand_hostlist(c.list) == c.names);
}

TEST_CASE("an invalid host list is a one-line error", "[hostlist]") {
  const std::string bad =
      GENERATE("", ",", "a,", "a[", "a]", "a[1", "a[]", "a[1-]", "a[-1]", "a[2-1]", "a[1,,2]",
               "a[b]", "a[[1]]", "a[1-2-3]", "a[1-9999999999]", "a[1 - 2]");
  CAPTURE(bad);
  try {
    expand_hostlist(bad);
    FAIL("it was taken");
  } catch (const UsageError& e) {
    CHECK_THAT(e.what(), Contains("is not a valid host list: "));
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
  }
}

TEST_CASE("a short list cannot expand to more names than a job can have", "[hostlist]") {
  const std::string bad =
      GENERATE("a[0-999999998]", "a[0-65535],b", "a[1-999]b[1-999]c[1-999]", "a[0-60000,0-60000]");
  CAPTURE(bad);
  CHECK_THROWS_WITH(expand_hostlist(bad), Contains("more than 65536 hosts"));
  CHECK(expand_hostlist("a[0-65535]").size() == 65536);
  CHECK_THROWS_WITH(expand_hostlist(std::string(300, 'a')), Contains("too long"));
  CHECK_THROWS_WITH(expand_hostlist(std::string(10'000'000, '[')), Contains("nested brackets"));
}

TEST_CASE("many brackets no longer copy all names once per bracket", "[hostlist]") {
  std::string list = "a[0-65535]";
  for (int i = 0; i < 200; ++i) list += "[1]";
  const auto names = expand_hostlist(list);
  REQUIRE(names.size() == 65536);
  CHECK(names.back() == "a65535" + std::string(200, '1'));
  for (int i = 0; i < 100; ++i) list += "[1]";
  CHECK_THROWS_WITH(expand_hostlist(list), Contains("host name too long"));
}
