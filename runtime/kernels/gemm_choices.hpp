#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/kernels/gemm.hpp"

namespace mgpu::ops {

struct GemmChoice {
  Gemm gemm;
  std::optional<GemmAlgorithm> algorithm;  // empty: as PyTorch computes it
  std::int64_t from_step = 0;              // the first step that uses it

  friend bool operator==(const GemmChoice&, const GemmChoice&) = default;
};

// The algorithms of the large matrix products of training. A product is computed as PyTorch does it
// until its algorithm has been chosen, outside of the steps. Which steps use an algorithm does not
// depend on how fast anything was done, so that a resumed run does the same.
//
//   begin_step(n); the products of step n, within a Scope
//   later: add(the choices for products_of(n))
class GemmChoices {
 public:
  // Products beyond this number are left to PyTorch. A job whose micro-batches have ever new sizes
  // would else spend its time on timing.
  static constexpr std::size_t kMost = 128;
  static constexpr double kLeastFlops = 1e10;  // for a product to be worth a choice

  explicit GemmChoices(GemmLibrary& library, double least_flops = kLeastFlops)
      : library_(library), least_flops_(least_flops) {}

  void begin_step(std::int64_t step) { step_ = step; }

  // Computes the product if its algorithm is chosen, and returns whether it was.
  bool multiply(const GemmOperands& operands);

  // The number of products that came first in the step that began last, and have no choice.
  std::int64_t new_products() const;
  // The products without a choice that came first in `step` or before it.
  std::vector<Gemm> products_until(std::int64_t step) const;
  // Takes choices. They may include products that did not occur on this rank. At most kMost are
  // kept, in their order.
  void add(const std::vector<GemmChoice>& choices);
  std::vector<GemmChoice> all() const;

  // While it exists, the products of this thread ask these choices; null: none.
  class Scope {
   public:
    explicit Scope(GemmChoices* choices);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    GemmChoices* before_;
  };

 private:
  GemmLibrary& library_;
  double least_flops_;
  std::int64_t step_ = 0;
  std::map<Gemm, GemmChoice> chosen_;
  std::map<Gemm, std::int64_t> without_choice_;  // with the step in which each came first
};

// Computes the product with the choice of the scope that this thread is in, else as PyTorch does.
void multiply(const GemmOperands& operands);

}  // namespace mgpu::ops
