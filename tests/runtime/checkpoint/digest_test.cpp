#include "runtime/checkpoint/digest.hpp"

#include <cstdint>
#include <vector>

#include "runtime/checkpoint/file.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::checkpoint;

namespace {

std::vector<std::byte> counted(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 256);
  return bytes;
}

// The buffer of xxHash's own self-test.
std::vector<std::byte> self_test_buffer(std::size_t size) {
  std::uint64_t generator = 2654435761;
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) {
    byte = static_cast<std::byte>(generator >> 56);
    generator *= 11400714785074694797u;
  }
  return bytes;
}

}  // namespace

TEST_CASE("the checksum is XXH64 with seed 0", "[digest]") {
  CHECK(digest_of({}) == "ef46db3751d8e999");
  CHECK(digest_of(bytes_of("a")) == "d24ec4f1a98c6e5b");
  CHECK(digest_of(bytes_of("abc")) == "44bc2cf5ad770999");
  CHECK(digest_of(bytes_of("Nobody inspects the spammish repetition")) == "fbcea83c8a378bf1");
}

TEST_CASE("the checksums of xxHash's self-test are reproduced", "[digest]") {
  struct Case {
    std::size_t size;
    std::uint64_t expected;
  };
  const auto [size, expected] = GENERATE(values<Case>({{0, 0xEF46DB3751D8E999},
                                                       {1, 0xE934A84ADB052768},
                                                       {4, 0x9136A0DCA57457EE},
                                                       {14, 0x8282DCC4994E35C8},
                                                       {222, 0xB641AE8CB691C174}}));
  CAPTURE(size);
  Digest digest;
  digest.update(self_test_buffer(size));
  CHECK(digest.value() == expected);
}

TEST_CASE("the checksum does not depend on how the bytes are split", "[digest]") {
  const auto bytes = counted(1000);
  const std::string whole = digest_of(bytes);
  const auto piece = GENERATE(range<std::size_t>(1, 100));
  Digest digest;
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    digest.update(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
  CHECK(digest.hex() == whole);
}

TEST_CASE("the digest of a file has the checksum of each of its blocks", "[digest]") {
  const auto bytes = counted(GENERATE(0, 1, 99, 100, 101, 200, 250));
  const auto piece = GENERATE(range<std::size_t>(1, 260, 37));
  CAPTURE(bytes.size(), piece);
  FileDigest digest(100);
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    digest.update(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
  std::string expected;
  std::size_t at = 0;
  do {
    expected +=
        digest_of(std::span(bytes).subspan(at, std::min<std::size_t>(100, bytes.size() - at)));
    at += 100;
  } while (at < bytes.size());
  CHECK(digest.hex() == expected);
}

TEST_CASE("one flipped bit changes the checksum wherever it is", "[digest]") {
  auto bytes = counted(GENERATE(1, 7, 12, 31, 32, 77));
  const std::string before = digest_of(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK(digest_of(bytes) != before);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}
