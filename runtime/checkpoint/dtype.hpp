#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mgpu::checkpoint {

// The element types of safetensors; the names are those of its files, in lower case.
enum class DType {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f4,
  f6_e2m3,
  f6_e3m2,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64,
  c64,
};

int bits_of(DType dtype);
std::size_t size_of(DType dtype);  // bytes of one element; throws for types smaller than a byte

std::string_view name_of(DType dtype);                    // "BF16"
std::optional<DType> dtype_named(std::string_view name);  // from a safetensors header

// The name in config.json and torch: "bfloat16". Empty for types without a plain torch name.
std::string_view torch_name_of(DType dtype);
std::optional<DType> dtype_of_torch(std::string_view name);  // also "torch.bfloat16"

// The size of a tensor in bytes; nothing if it overflows, has a negative dimension or is not a
// whole number of bytes.
std::optional<std::uint64_t> bytes_needed(DType dtype, std::span<const std::int64_t> shape);

std::string shape_text(std::span<const std::int64_t> shape);  // "[32000, 128]", for messages

}  // namespace mgpu::checkpoint
