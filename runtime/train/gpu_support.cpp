#include "runtime/train/gpu_support.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <sstream>
#include <string>
#include <vector>

namespace mgpu::train {
namespace {

constexpr int kOldestWithCuda13 = 75, kOldestBefore = 50;

struct Compiled {
  int capability = 0;
  bool code = true, ptx = true;
  bool exact = false;  // "90a": for this capability only
};

Compiled compiled_for(std::string_view name) {
  Compiled compiled;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), compiled.capability);
  if (error != std::errc()) return {};
  const std::string_view rest(end, static_cast<std::size_t>(name.data() + name.size() - end));
  compiled.exact = rest.starts_with('a');
  compiled.code = !rest.ends_with("-virtual");
  compiled.ptx = !rest.ends_with("-real");
  return compiled;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream in{std::string(text)};
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string version_text_of(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

}  // namespace

bool has_code(std::string_view architectures, int capability) {
  for (const auto& word : words_of(architectures)) {
    const auto compiled = compiled_for(word);
    if (compiled.capability == 0) continue;
    if (compiled.exact
            ? capability == compiled.capability
            : capability >= compiled.capability &&
                  (compiled.ptx || (compiled.code && capability / 10 == compiled.capability / 10)))
      return true;
  }
  return false;
}

std::string unsupported_gpu(const Gpu& gpu, std::string_view architectures, int cuda_major) {
  const auto subject =
      fmt::format("GPU {} ({}, compute capability {}) is not supported: ", gpu.number, gpu.name,
                  version_text_of(gpu.capability));
  const int oldest = cuda_major >= 13 ? kOldestWithCuda13 : kOldestBefore;
  if (gpu.capability < oldest)
    return subject + fmt::format(
                         "torch for CUDA {} needs {} or newer; choose another GPU with "
                         "CUDA_VISIBLE_DEVICES, or set it to nothing to compute on CPUs",
                         cuda_major, version_text_of(oldest));
  if (architectures.empty() || has_code(architectures, gpu.capability)) return {};
  std::vector<std::string> versions;
  for (const auto& word : words_of(architectures)) {
    const auto compiled = compiled_for(word);
    versions.push_back(version_text_of(compiled.capability));
  }
  return subject + fmt::format(
                       "this mgpu-train has kernels for {}; build it on this machine "
                       "(scripts/build.sh), or anywhere with -DCMAKE_CUDA_ARCHITECTURES={}",
                       fmt::join(versions, ", "), gpu.capability);
}

std::string old_driver(int driver, int needed) {
  const auto text = [](int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  };
  return fmt::format(
      "the NVIDIA driver supports CUDA {} and this mgpu-train needs CUDA {}; update the driver{}, "
      "or "
      "set CUDA_VISIBLE_DEVICES= to compute on CPUs",
      text(driver), text(needed),
      needed >= 13000
          ? " to version 580 or newer, build mgpu-train for torch 2.10, which needs CUDA 12.8 "
            "(scripts/build.sh --torch=2.10.0)"
          : "");
}

}  // namespace mgpu::train
