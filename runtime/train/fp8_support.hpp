#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "runtime/config/config.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::train {

// A note for the user if `fp8` is set and this device computes some of the products in the type of
// the computation instead.
std::optional<std::string> fp8_note(const TrainConfig& config, const model::ModelConfig& model,
                                    at::Device device);

}  // namespace mgpu::train
