#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/config.hpp"
#include "runtime/config/keys/key_fields.hpp"

namespace mgpu::train {

// The values of GRPO's keys by canonical name: what a recipe says, else the default that the table
// of keys shows. Nothing where the key was given as null, or where the default is no number ("as
// epsilon"). Throws std::logic_error for a name that is no key of GRPO, and std::runtime_error
// ("key: need ...") for values that nobody has checked.
class GrpoValues {
 public:
  explicit GrpoValues(const TrainConfig& config) : config_(config) {}

  bool said(std::string_view key) const;
  bool flag(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<std::int64_t> whole(std::string_view key) const;
  std::string text(std::string_view key) const;
  YamlNode node(std::string_view key) const;

  // Whether generation is left to a server: use_vllm with vllm_mode: server.
  bool uses_server() const;

  template <class Value>
  Value choice(std::string_view key, const Words<Value>& words) const {
    return choose(node(key), words);
  }

 private:
  const TrainConfig& config_;
};

}  // namespace mgpu::train
