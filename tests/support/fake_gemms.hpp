#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/gemm.hpp"

namespace mgpu::tests {

// The n-th algorithm of a fake library.
inline ops::GemmAlgorithm algorithm_number(std::uint64_t n) {
  return {.words = {n, ~n, 0, 0, 0, 0, 0, 1}, .workspace = 1024 * n};
}

// A library of matrix products on a device that does not exist. Its algorithms compute the double
// of the product, so that a test sees which one was used.
class FakeGemms : public ops::GemmLibrary {
 public:
  explicit FakeGemms(std::string device = "Fake GPU", std::string version = "fakeblas 1")
      : device_(std::move(device)), version_(std::move(version)) {}

  // Seconds of a call: as PyTorch, with algorithm 1, with algorithm 2, ... Negative: it fails.
  std::vector<double> times{3, 2, 1};
  bool has_memory = true;
  std::vector<ops::Gemm> timed, run_products;

  std::string version() const override { return version_; }
  std::string device() const override { return device_; }
  std::vector<ops::GemmAlgorithm> candidates(const ops::Gemm& gemm, int most) override {
    timed.push_back(gemm);
    std::vector<ops::GemmAlgorithm> all;
    for (std::size_t n = 1; n < times.size() && static_cast<int>(n) <= most; ++n)
      all.push_back(algorithm_number(n));
    return all;
  }
  std::unique_ptr<ops::GemmTrial> trial(const ops::Gemm&) override {
    if (!has_memory) return nullptr;
    return std::make_unique<Trial>(times);
  }
  void run(const ops::Gemm& gemm, const ops::GemmAlgorithm&,
           const ops::GemmOperands& operands) override {
    run_products.push_back(gemm);
    auto doubled = operands;
    doubled.alpha *= 2;
    doubled.beta = operands.beta;
    if (operands.bias.defined()) {
      multiply_as_pytorch(operands);
      operands.out.mul_(2);
    } else {
      multiply_as_pytorch(doubled);
    }
  }

 private:
  struct Trial : ops::GemmTrial {
    explicit Trial(std::vector<double> times) : times_(std::move(times)) {}
    std::optional<double> seconds(const ops::GemmAlgorithm* algorithm) override {
      const double time = times_.at(algorithm == nullptr ? 0 : algorithm->words[0]);
      return time < 0 ? std::nullopt : std::optional(time);
    }
    std::vector<double> times_;
  };

  std::string device_, version_;
};

}  // namespace mgpu::tests
