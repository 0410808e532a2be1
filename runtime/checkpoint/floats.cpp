#include "runtime/checkpoint/floats.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::checkpoint {

namespace {

float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t bf16_of_float(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float float_of_f16(std::uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

std::uint16_t f16_of_float(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

[[noreturn]] void refuse(DType dtype) {
  throw rendezvous::InputError(fmt::format("{} is not F32, BF16 or F16", name_of(dtype)));
}

template <class Convert>
std::vector<float> widened(std::span<const std::byte> bytes, Convert convert) {
  std::vector<float> values(bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
    values[i] = convert(bits);
  }
  return values;
}

template <class Convert>
std::vector<std::byte> narrowed(std::span<const float> values, Convert convert) {
  std::vector<std::byte> bytes(values.size() * 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = convert(values[i]);
    std::memcpy(bytes.data() + 2 * i, &bits, sizeof bits);
  }
  return bytes;
}

}  // namespace

std::vector<float> to_floats(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::bf16) return widened(bytes, float_of_bf16);
  if (dtype == DType::f16) return widened(bytes, float_of_f16);
  if (dtype != DType::f32) refuse(dtype);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::vector<std::byte> from_floats(DType dtype, std::span<const float> values) {
  if (dtype == DType::bf16) return narrowed(values, bf16_of_float);
  if (dtype == DType::f16) return narrowed(values, f16_of_float);
  if (dtype != DType::f32) refuse(dtype);
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

}  // namespace mgpu::checkpoint
