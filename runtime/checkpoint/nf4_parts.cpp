#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/floats.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/checkpoint/nf4.hpp"

namespace mgpu::checkpoint {

namespace {

constexpr const char* kState = ".quant_state.bitsandbytes__nf4";

template <class Number>
std::vector<std::byte> copy_of(std::span<const Number> numbers) {
  const auto bytes = std::as_bytes(numbers);
  return {bytes.begin(), bytes.end()};
}

std::int64_t length(const auto& all) {
  return static_cast<std::int64_t>(all.size());
}

// The values that are not tensors, as bytes of JSON.
std::string state_text(const Nf4Tensor& tensor) {
  Json state = {{"quant_type", "nf4"},
                {"blocksize", kNf4Block},
                {"dtype", torch_name_of(tensor.dtype)},
                {"shape", tensor.shape}};
  if (tensor.nested) {
    state["nested_blocksize"] = kNestedBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(tensor.nested->offset);
  }
  return state.dump();
}

// Reads and validates the parts of one tensor.
class Parts {
 public:
  Parts(const Weights& weights, const std::string& name) : weights_(weights), name_(name) {}

  std::string name(const char* part) const { return name_ + part; }

  TensorView view(const char* part, DType dtype) const {
    TensorView found = weights_.get(name_ + part);
    if (found.dtype != dtype)
      fail(part, fmt::format("has dtype {}, not {}", name_of(found.dtype), name_of(dtype)));
    return found;
  }

  // Requires `count` elements, in any shape.
  TensorView view(const char* part, DType dtype, std::uint64_t count) const {
    TensorView found = view(part, dtype);
    const std::uint64_t there = found.bytes.size() / size_of(dtype);
    if (there != count) fail(part, fmt::format("has {} elements, not {}", there, count));
    return found;
  }

  std::vector<float> floats(const char* part, std::uint64_t count) const {
    std::vector<float> values = to_floats(DType::f32, view(part, DType::f32, count).bytes);
    for (const float value : values)
      if (!std::isfinite(value)) fail(part, fmt::format("contains {}", value));
    return values;
  }

  std::vector<std::uint8_t> bytes(const char* part, std::uint64_t count) const {
    const TensorView found = view(part, DType::u8, count);
    const auto* const first = reinterpret_cast<const std::uint8_t*>(found.bytes.data());
    return {first, first + found.bytes.size()};
  }

  [[noreturn]] void fail(const char* part, const std::string& what) const {
    throw rendezvous::InputError(
        fmt::format("tensor {} in 4 bits: it {}", in_quotes(name_ + part), what));
  }

 private:
  const Weights& weights_;
  const std::string& name_;
};

struct State {
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape;
  bool nested = false;
  float offset = 0;
};

State read_state(const Parts& parts) {
  const TensorView bytes = parts.view(kState, DType::u8);
  const std::string where = "tensor " + in_quotes(parts.name(kState));
  const Json json = parse_json(text_of(bytes.bytes), where);
  const Fields fields(json, where);
  if (fields.string("quant_type") != "nf4") fields.fail("quant_type", "'nf4'");
  if (fields.integer("blocksize", 1, INT64_MAX) != kNf4Block)
    fields.fail("blocksize", fmt::format("{}", kNf4Block));
  State state;
  const auto dtype = dtype_of_torch(fields.string("dtype"));
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
    fields.fail("dtype", "'float32', 'bfloat16' or 'float16'");
  state.dtype = *dtype;
  if (!fields.at("shape").is_array()) fields.fail("shape", "a list of whole numbers");
  for (const Json& side : fields.at("shape")) {
    if (!side.is_number_unsigned() || side.get<std::uint64_t>() > INT64_MAX)
      fields.fail("shape", "a list of whole numbers");
    state.shape.push_back(side.get<std::int64_t>());
  }
  state.nested = fields.has("nested_offset");
  if (!state.nested) return state;
  if (fields.integer("nested_blocksize", 1, INT64_MAX) != kNestedBlock)
    fields.fail("nested_blocksize", fmt::format("{}", kNestedBlock));
  if (fields.string("nested_dtype", "float32") != "float32")
    fields.fail("nested_dtype", "'float32'");
  state.offset = static_cast<float>(fields.number("nested_offset"));
  return state;
}

void check_levels(const Parts& parts) {
  const std::vector<float> levels = parts.floats(".quant_map", kNf4Levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (levels[i] != kNf4Levels[i])
      parts.fail(".quant_map",
                 fmt::format("has {} for level {}, not nf4's {}", levels[i], i, kNf4Levels[i]));
}

}  // namespace

std::vector<NamedBytes> nf4_parts(const std::string& name, const Nf4Tensor& tensor) {
  using enum DType;
  std::vector<NamedBytes> parts;
  const auto add = [&](const std::string& part, DType dtype, std::vector<std::int64_t> shape,
                       std::vector<std::byte> bytes) {
    parts.push_back({{name + part, dtype, std::move(shape)}, std::move(bytes)});
  };
  const auto floats = [&](const char* part, std::span<const float> all) {
    add(part, f32, {length(all)}, copy_of(all));
  };
  add("", u8, {length(tensor.packed), 1}, copy_of<std::uint8_t>(tensor.packed));
  if (tensor.nested) {
    add(".absmax", u8, {length(tensor.nested->indices)},
        copy_of<std::uint8_t>(tensor.nested->indices));
    floats(".nested_absmax", tensor.nested->scales);
    floats(".nested_quant_map", tensor.nested->levels);
  } else {
    floats(".absmax", tensor.scales);
  }
  floats(".quant_map", kNf4Levels);
  const std::string state = state_text(tensor);
  add(kState, u8, {length(state)}, copy_of(bytes_of(state)));
  return parts;
}

bool is_nf4(const Weights& weights, const std::string& name) {
  return weights.find(name + kState).has_value();
}

Nf4Tensor read_nf4(const Weights& weights, const std::string& name) {
  const Parts parts(weights, name);
  const State state = read_state(parts);
  const auto count = bytes_needed(DType::u8, state.shape);
  if (!count) parts.fail(kState, "has the invalid shape " + shape_text(state.shape));
  const auto blocks_of = [](std::uint64_t n, std::uint64_t block) {
    return n / block + (n % block != 0);
  };
  const std::uint64_t blocks = blocks_of(*count, kNf4Block);

  check_levels(parts);
  Nf4Tensor tensor{.dtype = state.dtype,
                   .shape = state.shape,
                   .packed = parts.bytes("", *count / 2 + *count % 2)};
  if (!state.nested) {
    tensor.scales = parts.floats(".absmax", blocks);
    return tensor;
  }
  NestedScales nested{.indices = parts.bytes(".absmax", blocks),
                      .scales = parts.floats(".nested_absmax", blocks_of(blocks, kNestedBlock)),
                      .offset = state.offset};
  const auto levels = parts.floats(".nested_quant_map", nested.levels.size());
  std::ranges::copy(levels, nested.levels.begin());
  tensor.nested = std::move(nested);
  return tensor;
}

}  // namespace mgpu::checkpoint
