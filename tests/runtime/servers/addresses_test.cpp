#include "runtime/servers/addresses.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "tests/support/catch.hpp"

using namespace mgpu::servers;

namespace {

using Addresses = std::set<std::string>;

std::string numeric_v6(const char* text) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(80);
  REQUIRE(::inet_pton(AF_INET6, text, &address.sin6_addr) == 1);
  return numeric_address(reinterpret_cast<const sockaddr&>(address));
}

}  // namespace

TEST_CASE("addresses are compared without port and without an IPv6 prefix", "[servers]") {
  CHECK(numeric_v6("2001:db8:0:0::1") == "2001:db8::1");
  CHECK(numeric_v6("::ffff:192.0.2.1") == "192.0.2.1");
  const sockaddr_storage none{};
  CHECK(numeric_address(reinterpret_cast<const sockaddr&>(none)).empty());
}

TEST_CASE("a host has all addresses of its name", "[servers]") {
  CHECK(addresses_of("192.0.2.1") == Addresses{"192.0.2.1"});
  CHECK(addresses_of("2001:db8::1") == Addresses{"2001:db8::1"});
  const auto local = addresses_of("localhost");
  CHECK((local.contains("127.0.0.1") || local.contains("::1")));
}

TEST_CASE("this host is recognised by its addresses", "[servers]") {
  CHECK(is_this_host("127.0.0.1"));
  CHECK(is_this_host("127.1.2.3"));
  CHECK(is_this_host("localhost"));
  CHECK(is_this_host("0.0.0.0"));
  CHECK_FALSE(is_this_host("192.0.2.1"));  // reserved for documentation
}

TEST_CASE("a server on this host gets an address of this host", "[servers]") {
  CHECK(local_address_for("127.0.0.1") == "127.0.0.1");
  CHECK(local_address_for("localhost").find_first_of(".:") != std::string::npos);
}
