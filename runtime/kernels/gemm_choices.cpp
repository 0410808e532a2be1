#include "runtime/kernels/gemm_choices.hpp"

#include <algorithm>

namespace mgpu::ops {
namespace {

thread_local GemmChoices* choices_in_scope = nullptr;

}  // namespace

GemmChoices::Scope::Scope(GemmChoices* choices) : before_(choices_in_scope) {
  choices_in_scope = choices;
}

GemmChoices::Scope::~Scope() {
  choices_in_scope = before_;
}

bool GemmChoices::multiply(const GemmOperands& operands) {
  const auto gemm = gemm_of(operands);
  if (!gemm || gemm->flops() < least_flops_) return false;
  const auto found = chosen_.find(*gemm);
  if (found == chosen_.end()) {
    if (chosen_.size() + without_choice_.size() < kMost) without_choice_.try_emplace(*gemm, step_);
    return false;
  }
  const auto& [product, algorithm, from_step] = found->second;
  if (!algorithm || step_ < from_step) return false;
  library_.run(product, *algorithm, operands);
  return true;
}

std::int64_t GemmChoices::new_products() const {
  return std::ranges::count_if(without_choice_,
                               [&](const auto& entry) { return entry.second == step_; });
}

std::vector<Gemm> GemmChoices::products_until(std::int64_t step) const {
  std::vector<Gemm> products;
  for (const auto& [gemm, first] : without_choice_)
    if (first <= step) products.push_back(gemm);
  return products;
}

void GemmChoices::add(const std::vector<GemmChoice>& choices) {
  for (const auto& choice : choices) {
    if (chosen_.size() < kMost) chosen_.try_emplace(choice.gemm, choice);
    without_choice_.erase(choice.gemm);
  }
}

std::vector<GemmChoice> GemmChoices::all() const {
  std::vector<GemmChoice> all;
  for (const auto& [gemm, choice] : chosen_) all.push_back(choice);
  return all;
}

void multiply(const GemmOperands& operands) {
  if (choices_in_scope == nullptr || !choices_in_scope->multiply(operands))
    multiply_as_pytorch(operands);
}

}  // namespace mgpu::ops
