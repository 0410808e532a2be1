#include "runtime/text/byte_alphabet.hpp"

#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

constexpr char32_t kFirstSpare = 0x100;  // non-printable bytes get letters from here on

bool prints(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> letters;
  std::array<std::int16_t, 512> bytes;

  Alphabet() {
    bytes.fill(-1);
    char32_t spare = kFirstSpare;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t letter = prints(byte) ? byte : spare++;
      append_utf8(letter, letters[byte]);
      bytes[letter] = static_cast<std::int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet only;
  return only;
}

}  // namespace

const std::array<std::string, 256>& byte_letters() {
  return alphabet().letters;
}

std::optional<std::uint8_t> byte_of_letter(char32_t letter) {
  const auto& bytes = alphabet().bytes;
  if (letter >= bytes.size() || bytes[letter] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(bytes[letter]);
}

std::string to_byte_letters(std::string_view bytes) {
  std::string written;
  written.reserve(2 * bytes.size());
  for (const char byte : bytes) written += byte_letters()[static_cast<unsigned char>(byte)];
  return written;
}

}  // namespace mgpu::text
