#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/config.hpp"
#include "runtime/config/keys/key_fields.hpp"

namespace mgpu::train {

// The values of the GRPO keys by canonical name: that of the recipe, else the default in the table
// of keys. Empty if the recipe sets the key to null, or if the default is a text such as "same as
// epsilon". Throws std::logic_error for a name that is not a GRPO key, and std::runtime_error
// ("key: need ...") for an invalid value.
class GrpoValues {
 public:
  explicit GrpoValues(const TrainConfig& config) : config_(config) {}

  bool is_set(std::string_view key) const;  // whether the recipe sets the key
  bool flag(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<std::int64_t> whole(std::string_view key) const;
  std::string text(std::string_view key) const;
  YamlNode node(std::string_view key) const;

  // Whether a server generates: use_vllm with vllm_mode: server.
  bool uses_server() const;

  template <class Value>
  Value choice(std::string_view key, const Choices<Value>& words) const {
    return choose(node(key), words);
  }

 private:
  const TrainConfig& config_;
};

// Whether smaller micro-batches have the same loss. Not with GRPO losses that contain a mean or a
// quantile over each micro-batch.
bool may_divide_micro_batches(const TrainConfig& config);

// The most tokens of a GRPO micro-batch; 0: it has a number of completions instead.
std::int64_t micro_batch_tokens(const TrainConfig& config);

// The tokens that a GRPO micro-batch with a budget can have: one completion alone may have more
// than the budget. Requires a budget; max_length is that of the longest prompt and completion.
std::int64_t most_micro_batch_tokens(const TrainConfig& config);

}  // namespace mgpu::train
