#pragma once

#include "runtime/config/planning/known_models.hpp"

// The shapes of published models that several tests plan for.
namespace mgpu::tests {

inline model::ModelConfig qwen25_05b() {
  return train::known_model("0.5B").config;
}
inline model::ModelConfig qwen25_15b() {
  return train::known_model("1.5B").config;
}
inline model::ModelConfig qwen25_7b() {
  return train::known_model("7B").config;
}
inline model::ModelConfig qwen3_06b() {
  return train::known_model("0.6B").config;
}
inline model::ModelConfig qwen3_4b() {
  return train::known_model("4B").config;
}
inline model::ModelConfig qwen3_8b() {
  return train::known_model("8B").config;
}

}  // namespace mgpu::tests
