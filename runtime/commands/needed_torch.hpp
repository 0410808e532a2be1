#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mgpu::recipes {

// What a packaged worker was built with, from build.json beside it.
struct NeededTorch {
  std::string torch;  // "2.11.0"
  std::string cuda;   // "13.0"
};

// A torch package, from its files.
struct TorchPackage {
  std::string folder;   // site-packages/torch
  std::string version;  // "2.11.0+cu130"
  std::string cuda;     // what it was built for; empty: CPUs only
  std::string missing;  // a library of CUDA that pip installs with it and that is not there
};

// Reads the text of build.json. Throws std::runtime_error.
NeededTorch read_needed_torch(const std::string& json);

// The package in this folder, from its version.py and the packages beside it; nullopt: there is
// none.
std::optional<TorchPackage> read_torch_package(const std::string& folder);

// Why a worker cannot use a package, and what to do; empty: it can. `gpus` is whether GPUs are
// visible: a package without CUDA would leave them idle. `python` is the command of the Python that
// has it.
std::string torch_problem(const NeededTorch& needed, const std::optional<TorchPackage>& found,
                          bool gpus, std::string_view python);

}  // namespace mgpu::recipes
