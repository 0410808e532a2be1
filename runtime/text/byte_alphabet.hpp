#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::text {

// GPT-2's mapping from each byte to a printable character, which byte-level vocabularies use.
const std::array<std::string, 256>& byte_letters();

// The byte that a letter represents.
std::optional<std::uint8_t> byte_of_letter(char32_t letter);

std::string to_byte_letters(std::string_view bytes);

}  // namespace mgpu::text
