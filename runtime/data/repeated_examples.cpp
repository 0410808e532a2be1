#include "runtime/data/repeated_examples.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "runtime/data/digest.hpp"

namespace mgpu::data {
namespace {

bool equal(const Sequence& a, const Sequence& b) {
  if (!std::equal(a.ids.begin(), a.ids.end(), b.ids.begin(), b.ids.end())) return false;
  for (std::size_t i = 0; i < a.ids.size(); ++i)
    if (a.label(i) != b.label(i)) return false;
  return true;
}

}  // namespace

std::vector<std::uint32_t> repeated_examples(const Dataset& dataset) {
  std::unordered_multimap<std::uint64_t, std::uint32_t> seen;  // by checksum of the tokens
  std::vector<std::uint32_t> repeated;
  for (std::uint32_t i = 0; i < dataset.size(); ++i) {
    const auto sequence = dataset[i];
    const auto key =
        checksum({reinterpret_cast<const char*>(sequence.ids.data()), sequence.ids.size_bytes()});
    const auto [first, last] = seen.equal_range(key);
    if (std::any_of(first, last,
                    [&](const auto& other) { return equal(dataset[other.second], sequence); }))
      repeated.push_back(i);
    else
      seen.emplace(key, i);
  }
  return repeated;
}

}  // namespace mgpu::data
