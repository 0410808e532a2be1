#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::text {

// GPT-2's way of writing any byte as a printable character: what byte-level vocabularies are in.
const std::array<std::string, 256>& byte_letters();

// The byte that a letter stands for.
std::optional<std::uint8_t> byte_of_letter(char32_t letter);

std::string to_byte_letters(std::string_view bytes);

}  // namespace mgpu::text
