#include "rendezvous/membership.hpp"

#include <algorithm>
#include <climits>
#include <tuple>

namespace mgpu::rendezvous {
namespace {

// Sorts unset numbers last.
int unset_last(int number) {
  return number < 0 ? INT_MAX : number;
}

auto precedence(const Candidate& c) {
  return std::tuple(c.previous < 0, !c.leads, unset_last(c.node_rank), unset_last(c.position),
                    c.id);
}

class Places {
 public:
  explicit Places(std::size_t count) : ids_(count, 0), taken_(count, false) {}

  bool take(int place, std::uint64_t id) {
    const auto at = static_cast<std::size_t>(place);
    if (place < 0 || at >= ids_.size() || taken_[at]) return false;
    ids_[at] = id;
    taken_[at] = true;
    return true;
  }
  void take_first_free(std::uint64_t id) {
    while (!take(first_free_, id)) ++first_free_;
  }
  std::vector<std::uint64_t> ids() && { return std::move(ids_); }

 private:
  std::vector<std::uint64_t> ids_;
  std::vector<bool> taken_;
  int first_free_ = 0;
};

}  // namespace

std::vector<std::uint64_t> assign_node_ranks(std::vector<Candidate> candidates, int max_nodes) {
  std::sort(candidates.begin(), candidates.end(),
            [](const auto& a, const auto& b) { return precedence(a) < precedence(b); });
  if (candidates.size() > static_cast<std::size_t>(max_nodes))
    candidates.resize(static_cast<std::size_t>(max_nodes));

  Places places(candidates.size());
  std::vector<Candidate> remaining;
  const auto place = [&](auto wanted) {
    remaining.clear();
    for (const auto& candidate : candidates)
      if (!places.take(wanted(candidate), candidate.id)) remaining.push_back(candidate);
    candidates = remaining;
  };
  place([](const Candidate& c) { return c.node_rank; });
  place([](const Candidate& c) { return c.previous; });
  place([](const Candidate& c) { return c.leads && c.previous < 0 ? 0 : -1; });
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::tuple(unset_last(a.node_rank), unset_last(a.previous), unset_last(a.position),
                      a.id) < std::tuple(unset_last(b.node_rank), unset_last(b.previous),
                                         unset_last(b.position), b.id);
  });
  for (const auto& candidate : candidates) places.take_first_free(candidate.id);
  return std::move(places).ids();
}

}  // namespace mgpu::rendezvous
