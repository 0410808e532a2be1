#pragma once

#include <string>
#include <string_view>

#include "runtime/model/model_config.hpp"

namespace mgpu::train {

// A published model that can be planned for without any of its files.
struct KnownModel {
  std::string_view size;  // "7B"
  std::string_view name;  // its Hub id
  model::ModelConfig config;
};

// The model of a size, in upper or lower case. Throws std::runtime_error with all known sizes.
KnownModel known_model(std::string_view size);

}  // namespace mgpu::train
