#include "runtime/checkpoint/dtype.hpp"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::checkpoint {

namespace {

struct Row {
  DType dtype;
  int bits;
  std::string_view name, torch_name;
};

using enum DType;
constexpr Row kRows[] = {
    {boolean, 8, "BOOL", "bool"},
    {u8, 8, "U8", "uint8"},
    {i8, 8, "I8", "int8"},
    {f8_e4m3, 8, "F8_E4M3", "float8_e4m3fn"},
    {f8_e5m2, 8, "F8_E5M2", "float8_e5m2"},
    {f8_e8m0, 8, "F8_E8M0", "float8_e8m0fnu"},
    {f4, 4, "F4", ""},
    {f6_e2m3, 6, "F6_E2M3", ""},
    {f6_e3m2, 6, "F6_E3M2", ""},
    {i16, 16, "I16", "int16"},
    {u16, 16, "U16", "uint16"},
    {f16, 16, "F16", "float16"},
    {bf16, 16, "BF16", "bfloat16"},
    {i32, 32, "I32", "int32"},
    {u32, 32, "U32", "uint32"},
    {f32, 32, "F32", "float32"},
    {i64, 64, "I64", "int64"},
    {u64, 64, "U64", "uint64"},
    {f64, 64, "F64", "float64"},
    {c64, 64, "C64", "complex64"},
};

const Row& row_of(DType dtype) {
  return kRows[static_cast<std::size_t>(dtype)];
}

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < std::size(kRows); ++i)
    if (static_cast<std::size_t>(kRows[i].dtype) != i) return false;
  return true;
}
static_assert(rows_are_in_order());

}  // namespace

int bits_of(DType dtype) {
  return row_of(dtype).bits;
}

std::size_t size_of(DType dtype) {
  const int bits = bits_of(dtype);
  if (bits % 8 != 0)
    throw rendezvous::InputError(fmt::format("elements of {} are not whole bytes", name_of(dtype)));
  return static_cast<std::size_t>(bits) / 8;
}

std::string_view name_of(DType dtype) {
  return row_of(dtype).name;
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

std::string_view torch_name_of(DType dtype) {
  return row_of(dtype).torch_name;
}

std::optional<DType> dtype_of_torch(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name.empty()) return std::nullopt;
  for (const Row& row : kRows)
    if (row.torch_name == name) return row.dtype;
  return std::nullopt;
}

std::optional<std::uint64_t> bytes_needed(DType dtype, std::span<const std::int64_t> shape) {
  std::uint64_t bits = static_cast<std::uint64_t>(bits_of(dtype));
  bool overflow = false;
  for (const std::int64_t side : shape) {
    if (side < 0) return std::nullopt;
    // Continues after an overflow: a later 0 would make the tensor empty, but such a shape is
    // invalid too.
    overflow |= __builtin_mul_overflow(bits, static_cast<std::uint64_t>(side), &bits);
  }
  if (overflow || bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  constexpr std::size_t kMostSides = 8;  // more dimensions than any tensor of a model
  if (shape.size() <= kMostSides) return fmt::format("[{}]", fmt::join(shape, ", "));
  return fmt::format("[{}, ... {} dimensions]", fmt::join(shape.first(kMostSides), ", "),
                     shape.size());
}

}  // namespace mgpu::checkpoint
