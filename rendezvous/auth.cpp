// OpenSSL's newer interface looks up algorithms at run time, which adds 1 MiB to the program and a
// millisecond to its start. The deprecated functions exist in all 3.x versions.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "rendezvous/auth.hpp"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#include "rendezvous/base/errors.hpp"

namespace mgpu::rendezvous::auth {
namespace {

constexpr std::size_t kBlock = SHA256_CBLOCK;

void add(SHA256_CTX& hash, std::string_view bytes) {
  SHA256_Update(&hash, bytes.data(), bytes.size());
}

Digest finish(SHA256_CTX& hash) {
  Digest digest;
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &hash);
  return digest;
}

class Hmac {
 public:
  explicit Hmac(std::string_view key) {
    Digest shortened;
    if (key.size() > kBlock) {
      SHA256_CTX hash;
      SHA256_Init(&hash);
      auth::add(hash, key);
      shortened = auth::finish(hash);
      key = view(shortened);
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
      const char byte = i < key.size() ? key[i] : '\0';
      inner_pad_[i] = static_cast<char>(byte ^ 0x36);
      outer_pad_[i] = static_cast<char>(byte ^ 0x5c);
    }
    SHA256_Init(&inner_);
    auth::add(inner_, {inner_pad_.data(), kBlock});
  }
  void add(std::string_view bytes) { auth::add(inner_, bytes); }
  Digest finish() {
    const Digest inside = auth::finish(inner_);
    SHA256_CTX outer;
    SHA256_Init(&outer);
    auth::add(outer, {outer_pad_.data(), kBlock});
    auth::add(outer, view(inside));
    return auth::finish(outer);
  }

 private:
  std::array<char, kBlock> inner_pad_, outer_pad_;
  SHA256_CTX inner_;
};

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

Digest hmac_of(std::string_view key, std::string_view text) {
  Hmac mac(key);
  mac.add(text);
  return mac.finish();
}

Digest hmac(std::string_view key, std::initializer_list<std::string_view> parts) {
  Hmac mac(key);
  for (const auto part : parts) {
    const std::uint64_t size = part.size();
    mac.add({reinterpret_cast<const char*>(&size), sizeof size});
    mac.add(part);
  }
  return mac.finish();
}

Digest derived_key(std::string_view secret, std::string_view purpose) {
  return hmac(secret, {"key for", purpose});
}

bool equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t done = 0; done < count;) {
    const auto got = ::getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno != EINTR) throw_errno("cannot get random bytes");
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::string from_hex(std::string_view text) {
  std::string bytes;
  if (text.size() % 2 != 0) return {};
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = value_of(text[i]), low = value_of(text[i + 1]);
    if (high < 0 || low < 0) return {};
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace mgpu::rendezvous::auth
