#include <stdexcept>
#include <string>

#include "rendezvous/base/base64.hpp"
#include "rendezvous/etcd/url.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous::etcd;
using mgpu::rendezvous::from_base64;
using mgpu::rendezvous::to_base64;

TEST_CASE("a list of etcd endpoints is parsed", "[etcd]") {
  CHECK(parse_endpoints("http://a:1, https://b.c-d,e:3,[::1]:4,http://[fe80::1%eth0]/,a:1") ==
        std::vector<Endpoint>{{false, "a", 1},
                              {true, "b.c-d", 2379},
                              {false, "e", 3},
                              {false, "::1", 4},
                              {false, "fe80::1%eth0", 2379}});
  CHECK(parse_endpoints("a", true) == std::vector<Endpoint>{{true, "a", 2379}});
  CHECK(parse_endpoints("https://[::1]:4")[0].url() == "https://[::1]:4");
  CHECK(parse_endpoints("a")[0].url() == "http://a:2379");
}

TEST_CASE("an invalid endpoint is named with the reason", "[etcd]") {
  struct Case {
    const char* list;
    const char* why;
  };
  const auto [list, why] = GENERATE(values<Case>({
      {"", "it has no host"},
      {"http://", "it has no host"},
      {"a,", "it has no host"},
      {"ftp://a", "it must begin with http:// or https://"},
      {"a:0", "the port must be a number from 1 to 65535"},
      {"a:65536", "the port must be a number from 1 to 65535"},
      {"a:-1", "the port must be a number from 1 to 65535"},
      {"a:", "the port must be a number from 1 to 65535"},
      {"::1", "write an IPv6 address as [ADDRESS]:PORT"},
      {"[::1", "a ] is missing"},
      {"[::1]2", "expected :PORT after ]"},
      {"[a]:2", "only IPv6 addresses are written in []"},
      {"http://a/v3", "it has a path; write only http://HOST:PORT"},
      {"a b", "invalid host name or address"},
      {"a\r\nX: y", "invalid host name or address"},
  }));
  CAPTURE(list);
  CHECK_THROWS_WITH(parse_endpoints(list), Catch::Matchers::Contains(why));
}

TEST_CASE("a password in an endpoint is rejected and not printed", "[etcd]") {
  const std::string list =
      GENERATE("http://me:secret@a:1", "http://a,ftp://me:secret@a:1", "me:secret@a:1:2");
  try {
    parse_endpoints(list);
    FAIL("it was taken");
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()).find("secret") == std::string::npos);
    CHECK_THAT(error.what(), Catch::Matchers::Contains("set user and password with --rdzv-conf"));
  }
}

TEST_CASE("the number of endpoints is limited", "[etcd]") {
  std::string list = "h0";
  for (int i = 1; i < 65; ++i) list += ",h" + std::to_string(i);
  CHECK_THROWS_WITH(parse_endpoints(list), "more than 64 etcd endpoints, the limit");
}

TEST_CASE("base64 is encoded and decoded", "[etcd]") {
  CHECK(to_base64("") == "");
  CHECK(to_base64("f") == "Zg==");
  CHECK(to_base64("fo") == "Zm8=");
  CHECK(to_base64("foo") == "Zm9v");
  std::string all;
  for (int length = 0; length < 260; ++length) {
    CHECK(from_base64(to_base64(all)) == all);
    all.push_back(static_cast<char>(length * 7));
  }
}

TEST_CASE("invalid base64 is rejected", "[etcd]") {
  for (const char* text : {"Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9\n", "Zm-_", "=m9v"}) {
    CAPTURE(text);
    CHECK_FALSE(from_base64(text).has_value());
  }
}
