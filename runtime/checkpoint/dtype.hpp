#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mgpu::checkpoint {

// The types of elements that safetensors knows, under the names its files use in lower case.
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
std::size_t size_of(DType dtype);  // bytes of one element; throws for types of less than a byte

std::string_view name_of(DType dtype);                    // "BF16"
std::optional<DType> dtype_named(std::string_view name);  // of a safetensors header

// As config.json and torch call them: "bfloat16". Empty for types that torch has no plain name for.
std::string_view torch_name_of(DType dtype);
std::optional<DType> dtype_of_torch(std::string_view name);  // also "torch.bfloat16"

// Bytes of a tensor, or nothing where that overflows, has a negative side or ends within a byte.
std::optional<std::uint64_t> bytes_needed(DType dtype, std::span<const std::int64_t> shape);

std::string shape_text(std::span<const std::int64_t> shape);  // "[32000, 128]", for messages

}  // namespace mgpu::checkpoint
