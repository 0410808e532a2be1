#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kernels/gemm_choices.hpp"

namespace mgpu::train {

// In the output folder.
inline constexpr const char* kGemmFile = "gemm_choices.json";

// The choices of a job, and where they have a meaning. As JSON (docs/checkpoints.md):
//   {"library": "cuBLASLt 130100", "device": "NVIDIA H200", "products": [{"rows": 8192, ...}]}
struct GemmTable {
  std::string library, device;
  std::vector<ops::GemmChoice> choices;

  friend bool operator==(const GemmTable&, const GemmTable&) = default;
};

nlohmann::json gemm_table_json(const GemmTable& table);
// Throws with `where` and the key if something is missing or wrong.
GemmTable gemm_table_in(const nlohmann::json& json, const std::string& where);

std::string gemm_table_text(const GemmTable& table);
GemmTable parse_gemm_table(std::string_view text, const std::string& file);

}  // namespace mgpu::train
