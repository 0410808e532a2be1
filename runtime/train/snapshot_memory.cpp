#include "runtime/train/snapshot_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "runtime/comm/text.hpp"
#include "runtime/train/host_memory.hpp"

namespace mgpu::train {
namespace {

constexpr const char* kHostMemory = "all-gather of host memory for checkpoints";

std::string lack_on_any_rank(std::uint64_t missing, int node, comm::Comm& comm,
                             c10::Device device) {
  const auto own = fmt::format("{} {} {}", node, missing, available_host_memory());
  std::vector<HostNeed> needs;
  for (const auto& text : comm::gather_texts(comm, own, device, kHostMemory)) {
    auto& need = needs.emplace_back();
    std::istringstream(text) >> need.node >> need.bytes >> need.available;
  }
  return lack_of_host_memory(needs);
}

}  // namespace

std::string reserve_on_all_ranks(Snapshot& snapshot, std::uint64_t size, int node, comm::Comm& comm,
                                 c10::Device device) {
  const auto missing = size - std::min(size, snapshot.reserved());
  auto lack = lack_on_any_rank(missing, node, comm, device);
  if (lack.empty()) {
    const auto own = snapshot.reserve(size) ? "" : "refused";
    const auto results = comm::gather_texts(comm, own, device, kHostMemory);
    if (std::ranges::any_of(results, [](const auto& text) { return !text.empty(); }))
      lack = "more host memory than the system gives to one of the ranks";
  }
  if (!lack.empty()) snapshot.release();
  return lack;
}

}  // namespace mgpu::train
