#include "rendezvous/auth.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;

namespace {

std::string code(std::string_view key, std::string_view text) {
  return auth::to_hex(auth::view(auth::hmac_of(key, text)));
}

}  // namespace

TEST_CASE("HMAC matches the test vectors of RFC 4231", "[auth]") {
  CHECK(code(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(code("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(code(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(code(auth::from_hex("0102030405060708090a0b0c0d0e0f10111213141516171819"),
             std::string(50, '\xcd')) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(code(std::string(20, '\x0c'), "Test With Truncation")
            .starts_with("a3b6167473100ee06e0c796c2955552b"));
  CHECK(code(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(code(std::string(131, '\xaa'),
             "This is a test using a larger than block-size key and a larger than block-size data. "
             "The key needs to be hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("lists that concatenate to the same text have different HMACs", "[auth]") {
  const auto of = [](std::initializer_list<std::string_view> parts) {
    return auth::hmac("key", parts);
  };
  CHECK(of({"ab", "c"}) == of({"ab", "c"}));
  CHECK(of({"ab", "c"}) != of({"a", "bc"}));
  CHECK(of({"abc"}) != of({"abc", ""}));
  CHECK(of({"abc"}) != auth::hmac("other key", {"abc"}));
  CHECK(of({"abc"}) != auth::hmac_of("key", "abc"));
}

TEST_CASE("texts are equal if every byte is", "[auth]") {
  CHECK(auth::equal("", ""));
  CHECK(auth::equal(std::string_view("a\0b", 3), std::string_view("a\0b", 3)));
  CHECK_FALSE(auth::equal(std::string_view("a\0b", 3), std::string_view("a\0c", 3)));
  CHECK_FALSE(auth::equal("abc", "abd"));
  CHECK_FALSE(auth::equal("abc", "bbc"));
  CHECK_FALSE(auth::equal("abc", "ab"));
  CHECK_FALSE(auth::equal("", "a"));
}

TEST_CASE("hex is encoded and decoded, and other text is rejected", "[auth]") {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  CHECK(auth::to_hex(std::string_view("\0\x0f\xa0\xff", 4)) == "000fa0ff");
  CHECK(auth::from_hex(auth::to_hex(every)) == every);
  for (const char* bad : {"a", "0g", "g0", "AA", " 0", "0x", "00 ", "0000a", "-1"}) {
    CAPTURE(bad);
    CHECK(auth::from_hex(bad).empty());
  }
}

TEST_CASE("random_bytes returns the requested number of bytes, always different ones", "[auth]") {
  CHECK(auth::random_bytes(0).empty());
  CHECK(auth::random_bytes(32).size() == 32);
  CHECK(auth::random_bytes(1000).size() == 1000);  // more than one getrandom() call returns
  CHECK(auth::random_bytes(32) != auth::random_bytes(32));
}
