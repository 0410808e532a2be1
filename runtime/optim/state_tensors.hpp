#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

// What an optimizer keeps for the weights that it trains, besides their fp32 master weights. The
// planning of memory computes with it before any optimizer exists. Does not need LibTorch.
namespace mgpu::optim {

enum class StateType { f32, bf16, u8 };

// A vector of the state.
struct StateTensor {
  std::string_view name;  // of its tensors in checkpoints
  StateType type = StateType::f32;
  std::int64_t elements = 1;  // weights that share one of its values: 1, or the size of a block

  friend bool operator==(const StateTensor&, const StateTensor&) = default;
};

constexpr double bytes_per_weight(const StateTensor& tensor) {
  const double size = tensor.type == StateType::f32 ? 4 : tensor.type == StateType::bf16 ? 2 : 1;
  return size / static_cast<double>(tensor.elements);
}

// How AdamW stores its moments. With eight_bit, tensors with fewer than kFewestCoded elements keep
// fp32 moments.
enum class Moments { fp32, bf16, eight_bit };
inline constexpr std::int64_t kFewestCoded = 4096;
inline constexpr std::int64_t kCodedBlock = 256;  // elements that share a scale

// The state of AdamW, for tensors that are not too small for 8-bit codes.
inline std::vector<StateTensor> adamw_state(Moments moments) {
  using enum StateType;
  if (moments == Moments::eight_bit)
    return {{"first", u8},
            {"first_scales", f32, kCodedBlock},
            {"second", u8},
            {"second_scales", f32, kCodedBlock}};
  const auto type = moments == Moments::bf16 ? bf16 : f32;
  return {{"first", type}, {"second", type}};
}

}  // namespace mgpu::optim
