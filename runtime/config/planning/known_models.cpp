#include "runtime/config/planning/known_models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <vector>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::train {
namespace {

using model::Family;
using model::ModelConfig;

ModelConfig qwen25(std::int64_t width, std::int64_t layers, std::int64_t heads,
                   std::int64_t kv_heads, std::int64_t head_dim, std::int64_t mlp, bool small) {
  return {.family = Family::qwen2,
          .vocab_size = small ? 151936 : 152064,
          .hidden_size = width,
          .intermediate_size = mlp,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .max_position = 32768,
          .tied = small,
          .qkv_bias = true};
}

ModelConfig qwen3(std::int64_t width, std::int64_t layers, std::int64_t heads, std::int64_t mlp,
                  bool tied) {
  return {.family = Family::qwen3,
          .vocab_size = 151936,
          .hidden_size = width,
          .intermediate_size = mlp,
          .layers = layers,
          .heads = heads,
          .kv_heads = 8,
          .head_dim = 128,
          .max_position = 40960,
          .tied = tied,
          .qk_norm = true};
}

const std::vector<KnownModel>& known_models() {
  static const std::vector<KnownModel> all{
      {"0.5B", "Qwen/Qwen2.5-0.5B-Instruct", qwen25(896, 24, 14, 2, 64, 4864, true)},
      {"0.6B", "Qwen/Qwen3-0.6B", qwen3(1024, 28, 16, 3072, true)},
      {"1.5B", "Qwen/Qwen2.5-1.5B-Instruct", qwen25(1536, 28, 12, 2, 128, 8960, true)},
      {"1.7B", "Qwen/Qwen3-1.7B", qwen3(2048, 28, 16, 6144, true)},
      {"3B", "Qwen/Qwen2.5-3B-Instruct", qwen25(2048, 36, 16, 2, 128, 11008, true)},
      {"4B", "Qwen/Qwen3-4B", qwen3(2560, 36, 32, 9728, true)},
      {"7B", "Qwen/Qwen2.5-7B-Instruct", qwen25(3584, 28, 28, 4, 128, 18944, false)},
      {"8B", "Qwen/Qwen3-8B", qwen3(4096, 36, 32, 12288, false)},
      {"14B", "Qwen/Qwen2.5-14B-Instruct", qwen25(5120, 48, 40, 8, 128, 13824, false)},
      {"32B", "Qwen/Qwen2.5-32B-Instruct", qwen25(5120, 64, 40, 8, 128, 27648, false)},
      {"72B", "Qwen/Qwen2.5-72B-Instruct", qwen25(8192, 80, 64, 8, 128, 29568, false)},
  };
  return all;
}

}  // namespace

KnownModel known_model(std::string_view size) {
  std::string upper(size);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto found = std::ranges::find(known_models(), upper, &KnownModel::size);
  if (found != known_models().end()) return *found;
  std::vector<std::string_view> sizes;
  for (const auto& known : known_models()) sizes.push_back(known.size);
  throw std::runtime_error(fmt::format("need one of {}, not {}; for another model give a recipe",
                                       fmt::join(sizes, ", "), rendezvous::shown(size, 32)));
}

}  // namespace mgpu::train
