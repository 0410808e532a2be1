#include "launcher/plan/binding.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

// One share of the cores of a NUMA node: one per GPU, or one per rank where ranks share a GPU or
// have none.
struct CoreShare {
  int node = 0;
  int index = 0;  // its place among the shares of its node
  int count = 1;  // of its node
};

int spread(int i, int count, const std::vector<int>& nodes) {
  return nodes[static_cast<size_t>(i) * nodes.size() / count];
}

std::vector<CoreShare> core_shares(int ranks, const std::vector<int>& gpu_nodes,
                                   const std::vector<int>& nodes) {
  const int gpus = static_cast<int>(gpu_nodes.size());
  std::vector<CoreShare> shares(std::max(ranks, gpus));
  std::map<int, int> on_node;
  const int lanes = gpus > 0 ? gpus : ranks;
  for (int lane = 0; lane < lanes; ++lane) {
    const bool known = gpus > 0 && gpu_nodes[lane] >= 0;
    const int node = known ? gpu_nodes[lane] : spread(lane, lanes, nodes);
    // Ranks that share a GPU get neighbouring indices, hence neighbouring cores.
    for (size_t t = lane; t < shares.size(); t += lanes) shares[t] = {node, on_node[node]++, 1};
  }
  for (auto& share : shares) share.count = on_node[share.node];
  shares.resize(ranks);
  return shares;
}

// Groups the logical cores by `key`.
template <class Key>
std::map<int, std::vector<int>> grouped(const std::vector<Cpu>& cpus, Key key) {
  std::map<int, std::vector<int>> groups;
  for (const auto& cpu : cpus) groups[key(cpu)].push_back(cpu.id);
  return groups;
}

template <class Keep>
std::vector<Cpu> only(const std::vector<Cpu>& cpus, Keep keep) {
  std::vector<Cpu> kept;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(kept), keep);
  return kept;
}

std::vector<int> share_of(const CoreShare& share, const std::vector<Cpu>& cpus) {
  const auto cores = grouped(cpus, [](const Cpu& cpu) { return cpu.core; });
  const int count = static_cast<int>(cores.size());
  if (count < share.count)
    throw UsageError(fmt::format(
        "--numa-binding exclusive: NUMA node {} has only {} usable cores for {} GPUs or ranks; use "
        "--numa-binding node",
        share.node, count, share.count));
  const int each = count / share.count, extra = count % share.count;
  const int first = share.index * each + std::min(share.index, extra);
  const int last = first + each + (share.index < extra ? 1 : 0);
  std::vector<int> ids;
  auto core = std::next(cores.begin(), first);
  for (int i = first; i < last; ++i, ++core)
    ids.insert(ids.end(), core->second.begin(), core->second.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<int> complex_of(const CoreShare& share, const std::vector<Cpu>& cpus) {
  std::vector<std::vector<int>> complexes;
  for (auto& [cache, ids] : grouped(cpus, [](const Cpu& cpu) { return cpu.cache; }))
    complexes.push_back(ids);
  // A cpuset may leave some complexes with few cores: the complete ones come first.
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return complexes[share.index % complexes.size()];
}

Binding binding_of(NumaBinding mode, const CoreShare& share, const Topology& topology) {
  auto near = only(topology.cpus, [&](const Cpu& cpu) { return cpu.node == share.node; });
  if (near.empty())
    throw UsageError(fmt::format(
        "--numa-binding: mgpu-run may not use any core of NUMA node {} (taskset, cpuset); omit "
        "--numa-binding",
        share.node));
  if (mode == NumaBinding::socket) {
    const int socket = near.front().socket;
    near = only(topology.cpus, [&](const Cpu& cpu) { return cpu.socket == socket; });
  }
  Binding binding;
  if (mode == NumaBinding::exclusive) {
    binding.cpus = share_of(share, near);
  } else if (mode == NumaBinding::core_complex) {
    binding.cpus = complex_of(share, near);
  } else {
    for (const auto& cpu : near) binding.cpus.push_back(cpu.id);
  }
  binding.memory_nodes = in_both(Topology{near, {}}.nodes(), topology.memory_nodes);
  return binding;
}

template <class Words>
bool set_bits(Words& words, const std::vector<int>& ids, int word_bits) {
  const int most = static_cast<int>(words.size()) * word_bits;
  bool any = false;
  for (const int id : ids) {
    if (id < 0 || id >= most) continue;
    words[id / word_bits] |= 1ul << (id % word_bits);
    any = true;
  }
  return any;
}

}  // namespace

std::vector<Binding> bindings(NumaBinding mode, int ranks, const std::vector<int>& gpu_nodes,
                              const Topology& topology) {
  if (mode == NumaBinding::none) return {};
  const auto nodes = topology.nodes();
  if (nodes.empty())
    throw UsageError(
        "--numa-binding: the kernel lists no usable cores under /sys/devices/system; "
        "omit --numa-binding");
  std::vector<Binding> out;
  for (const auto& share : core_shares(ranks, gpu_nodes, nodes))
    out.push_back(binding_of(mode, share, topology));
  return out;
}

BindingMask::BindingMask(const Binding& binding)
    : has_cpus_(set_bits(cpus_, binding.cpus, kWordBits)),
      has_nodes_(set_bits(nodes_, binding.memory_nodes, kWordBits)) {}

int BindingMask::apply() const noexcept {
  if (has_cpus_ && ::syscall(SYS_sched_setaffinity, 0, sizeof cpus_, cpus_.data()) != 0)
    return errno;
  // The kernel reads one bit less than the given number.
  if (has_nodes_) ::syscall(SYS_set_mempolicy, MPOL_BIND, nodes_.data(), kMostNodes + 1);
  return 0;
}

}  // namespace mgpu::launcher
