#include "runtime/telemetry/peak_flops.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace mgpu::telemetry {
namespace {

struct Model {
  std::vector<std::string_view> words;  // the name must contain all of them
  double tflops;
};

// The first match is used, so for models that share a word the longer name comes first.
const std::vector<Model>& models() {
  static const std::vector<Model> all = {
      {{"gb200"}, 2500},
      {{"b200"}, 2250},
      {{"gh200"}, 989},
      {{"h200", "nvl"}, 835},
      {{"h200"}, 989},
      {{"h100", "pcie"}, 756},
      {{"h100", "nvl"}, 835},
      {{"h100"}, 989},
      {{"h800", "pcie"}, 756},
      {{"h800"}, 989},
      {{"h20"}, 148},
      {{"a100"}, 312},
      {{"a800"}, 312},
      {{"a40"}, 150},
      {{"a30"}, 165},
      {{"a10g"}, 70},
      {{"a10"}, 125},
      {{"l40s"}, 362},
      {{"l40"}, 181},
      {{"l4"}, 121},
      {{"rtx", "6000", "ada"}, 364},
      {{"rtx", "a6000"}, 155},
      {{"rtx", "5090"}, 209},
      {{"rtx", "4090", "d"}, 147},
      {{"rtx", "4090"}, 165},
      {{"rtx", "3090", "ti"}, 80},
      {{"rtx", "3090"}, 71},
  };
  return all;
}

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte))
      words.back() += static_cast<char>(std::tolower(byte));
    else
      words.emplace_back();
  }
  return words;
}

}  // namespace

double peak_tflops(std::string_view gpu_name) {
  const auto words = words_of(gpu_name);
  const auto has = [&](std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (has("mig") || has("laptop") || has("max")) return 0;
  for (const auto& model : models())
    if (std::all_of(model.words.begin(), model.words.end(), has)) return model.tflops;
  return 0;
}

}  // namespace mgpu::telemetry
