#pragma once

#include <dlfcn.h>

#include <cstdlib>

#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

namespace mgpu::tests {

// Makes dlopen find the fake libnvidia-ml.so.1: the loader uses a library that is already
// loaded under that name, even if a real one is installed.
class LoadedNvml {
 public:
  LoadedNvml(const char* gpus, const char* links, const char* faults = "")
      : handle_(::dlopen(in_build("fake_nvml/libnvidia-ml.so.1").c_str(), RTLD_NOW)) {
    REQUIRE(handle_);
    if (gpus) ::setenv("FAKE_NVML_GPUS", gpus, 1);
    ::setenv("FAKE_NVML_LINKS", links, 1);
    ::setenv("FAKE_NVML_FAULTS", faults, 1);
  }
  LoadedNvml(const LoadedNvml&) = delete;
  LoadedNvml& operator=(const LoadedNvml&) = delete;
  ~LoadedNvml() {
    ::unsetenv("FAKE_NVML_GPUS");
    ::unsetenv("FAKE_NVML_LINKS");
    ::unsetenv("FAKE_NVML_FAULTS");
    ::dlclose(handle_);
  }

 private:
  void* handle_;
};

}  // namespace mgpu::tests
