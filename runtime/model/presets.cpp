#include "runtime/model/presets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/model/families.hpp"

namespace mgpu::model {
namespace {

struct Size {
  std::string_view name;
  std::optional<Family> family;  // empty: any
  std::int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, max_position;
  bool tied;
  double rope_theta;
};

constexpr Size kSizes[] = {
    {"tiny", {}, 128, 4, 4, 4, 32, 384, 2048, true, 1e4},
    {"small", {}, 256, 8, 4, 4, 64, 704, 2048, true, 1e4},
    {"medium", {}, 512, 8, 8, 8, 64, 1408, 4096, true, 1e4},
    {"large", {}, 768, 14, 12, 12, 64, 2048, 4096, true, 1e4},
    // As published in Qwen/Qwen3-0.6B to Qwen/Qwen3-32B.
    {"0.6B", Family::qwen3, 1024, 28, 16, 8, 128, 3072, 40960, true, 1e6},
    {"1.7B", Family::qwen3, 2048, 28, 16, 8, 128, 6144, 40960, true, 1e6},
    {"4B", Family::qwen3, 2560, 36, 32, 8, 128, 9728, 40960, true, 1e6},
    {"8B", Family::qwen3, 4096, 36, 32, 8, 128, 12288, 40960, false, 1e6},
    {"14B", Family::qwen3, 5120, 40, 40, 8, 128, 17408, 40960, false, 1e6},
    {"32B", Family::qwen3, 5120, 64, 64, 8, 128, 25600, 40960, false, 1e6},
};

bool belongs_to(const Size& size, Family family) {
  return size.family.value_or(family) == family;
}

const Size* find_size(std::string_view name, Family family) {
  const auto found = std::ranges::find_if(
      kSizes, [&](const Size& size) { return size.name == name && belongs_to(size, family); });
  return found == std::end(kSizes) ? nullptr : &*found;
}

// "tiny, small, medium or large"
std::string sizes_of(Family family) {
  std::vector<std::string_view> names;
  for (const Size& size : kSizes)
    if (belongs_to(size, family)) names.push_back(size.name);
  std::string text;
  for (const auto& name : names)
    text += fmt::format("{}{}", text.empty() ? "" : &name == &names.back() ? " or " : ", ", name);
  return text;
}

}  // namespace

std::vector<std::string> preset_sizes() {
  std::vector<std::string> names;
  for (const Size& size : kSizes)
    if (std::ranges::find(names, size.name) == names.end()) names.emplace_back(size.name);
  return names;
}

std::optional<std::string> size_mistake(std::string_view size, Family family) {
  if (find_size(size, family) != nullptr) return std::nullopt;
  auto text = fmt::format("must be {}, not '{}'", sizes_of(family), size);
  for (const Size& other : kSizes)
    if (other.name == size && other.family)
      text +=
          fmt::format(", which is a size of model_family: {}", row_of(*other.family).model_type);
  return text;
}

ModelConfig preset(std::string_view size, std::int64_t vocab_size, Family family) {
  const Size* known = find_size(size, family);
  if (known == nullptr)
    throw rendezvous::InputError("model_size " + size_mistake(size, family).value_or(""));
  const auto& row = row_of(family);
  return {.family = family,
          .vocab_size = vocab_size,
          .hidden_size = known->hidden,
          .intermediate_size = known->intermediate,
          .layers = known->layers,
          .heads = known->heads,
          .kv_heads = known->kv_heads,
          .head_dim = known->head_dim,
          .max_position = known->max_position,
          .rope = {.theta = known->rope_theta},
          .tied = known->tied,
          .qkv_bias = row.qkv_bias,
          .qk_norm = row.qk_norm};
}

}  // namespace mgpu::model
