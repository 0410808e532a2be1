#include "runtime/data/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::data {

std::vector<double> probabilities_of(const Mixture& mixture, std::size_t count) {
  if (mixture.probabilities.empty())
    return std::vector<double>(count, 1.0 / static_cast<double>(count));
  double sum = 0;
  for (const double probability : mixture.probabilities) {
    if (!(probability > 0 && probability <= 1e6))
      throw rendezvous::InputError(
          fmt::format("interleave_probs contains {}; need numbers above 0", probability));
    sum += probability;
  }
  if (mixture.probabilities.size() != count)
    throw rendezvous::InputError(fmt::format("interleave_probs has {} numbers for {} datasets",
                                             mixture.probabilities.size(), count));
  auto probabilities = mixture.probabilities;
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

void interleave(std::vector<Selection>& selections, std::span<const std::size_t> datasets,
                const Mixture& mixture) {
  if (mixture.strategy == MixStrategy::concat || mixture.strategy == MixStrategy::interleave_once ||
      selections.empty())
    return;
  std::vector<double> sizes(*std::max_element(datasets.begin(), datasets.end()) + 1);
  for (std::size_t i = 0; i < selections.size(); ++i)
    sizes[datasets[i]] += static_cast<double>(selections[i].examples.size());
  const auto probabilities = probabilities_of(mixture, sizes.size());
  const bool over = mixture.strategy == MixStrategy::interleave_over;
  double rows = 0;  // of an epoch: when the first dataset ends, or the last one
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0)
      throw rendezvous::InputError(
          fmt::format("dataset {} of {} has no example left, so nothing can be interleaved", d + 1,
                      sizes.size()));
    const double needed = sizes[d] / probabilities[d];
    if (d == 0 || (over ? needed > rows : needed < rows)) rows = needed;
  }
  for (std::size_t i = 0; i < selections.size(); ++i) {
    const std::size_t d = datasets[i];
    selections[i].weight = probabilities[d] * rows / sizes[d];
    // Rounding must not drop an example of the dataset that decides.
    if (std::abs(selections[i].weight - 1) < 1e-9) selections[i].weight = 1;
  }
}

}  // namespace mgpu::data
