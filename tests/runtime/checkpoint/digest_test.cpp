#include "runtime/checkpoint/digest.hpp"

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

}  // namespace

TEST_CASE("the checksum is XXH64 with seed 0", "[digest]") {
  CHECK(digest_of({}) == "ef46db3751d8e999");
  CHECK(digest_of(bytes_of("a")) == "d24ec4f1a98c6e5b");
  CHECK(digest_of(bytes_of("abc")) == "44bc2cf5ad770999");
  CHECK(digest_of(bytes_of("Nobody inspects the spammish repetition")) == "fbcea83c8a378bf1");
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

TEST_CASE("one flipped bit changes the checksum wherever it is", "[digest]") {
  auto bytes = counted(GENERATE(1, 7, 12, 31, 32, 77));
  const std::string before = digest_of(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK(digest_of(bytes) != before);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}
