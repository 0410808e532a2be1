#include "runtime/train/rank_places.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "rendezvous/base/host_name.hpp"
#include "runtime/train/device.hpp"

namespace mgpu::train {
namespace {

constexpr std::size_t kSingleLines = 8;  // ranks with a line of their own
constexpr std::size_t kMostLines = 16;

// A place as the ranks exchange it.
struct PlaceRecord {
  std::int64_t gpu, pid;
  char host[64], device[64];
};

PlaceRecord own_record(c10::Device device) {
  PlaceRecord record{};
  record.gpu = device.is_cuda() ? device.index() : -1;
  record.pid = ::getpid();
  rendezvous::host_name().copy(record.host, sizeof record.host - 1);
  device_name(device).copy(record.device, sizeof record.device - 1);
  return record;
}

std::string processor_of(const RankPlace& place) {
  if (place.gpu < 0) return "the CPU";
  return fmt::format("GPU {} ({})", place.gpu, place.device);
}

std::string processors_of(const RankPlace& first, const RankPlace& last) {
  if (first.gpu < 0) return "the CPU";
  return fmt::format("GPUs {}-{} ({})", first.gpu, last.gpu, first.device);
}

// Whether the second place, of the next rank, continues a run of ranks.
bool continues(const RankPlace& place, const RankPlace& next) {
  return next.host == place.host && next.device == place.device &&
         next.gpu == (place.gpu < 0 ? -1 : place.gpu + 1);
}

}  // namespace

std::vector<RankPlace> gather_places(comm::Comm& comm, c10::Device device) {
  const auto size = static_cast<std::int64_t>(sizeof(PlaceRecord));
  const auto record = own_record(device);
  auto own = at::empty({size}, at::TensorOptions(at::kByte));
  std::memcpy(own.data_ptr(), &record, sizeof record);
  auto all = at::zeros({size * comm.world()}, at::TensorOptions(device).dtype(at::kByte));
  comm.all_gather(all, own.to(device), "all-gather of the places of ranks").wait();
  all = all.to(at::kCPU);
  std::vector<RankPlace> places;
  for (int rank = 0; rank < comm.world(); ++rank) {
    PlaceRecord found;
    std::memcpy(&found, static_cast<const char*>(all.const_data_ptr()) + rank * size, sizeof found);
    places.push_back({found.gpu, found.pid, found.host, found.device});
  }
  return places;
}

std::vector<std::string> start_lines(const std::vector<RankPlace>& places,
                                     const std::string& backend) {
  const auto world = places.size();
  if (world == 1)
    return {fmt::format("trainer initialized: 1 rank on {}", processor_of(places.front()))};
  std::set<std::string> hosts;
  for (const auto& place : places) hosts.insert(place.host);
  const auto of_host = [&](const RankPlace& place) {
    return hosts.size() > 1 ? fmt::format(" of host {}", place.host) : "";
  };
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < world;) {
    std::size_t end = begin + 1;
    while (world > kSingleLines && end < world && continues(places[end - 1], places[end])) ++end;
    const auto& first = places[begin];
    if (end == begin + 1)
      lines.push_back(fmt::format("rank {} of {} initialized on {}{}, pid {}", begin, world,
                                  processor_of(first), of_host(first), first.pid));
    else
      lines.push_back(fmt::format("ranks {}-{} of {} initialized on {}{}", begin, end - 1, world,
                                  processors_of(first, places[end - 1]), of_host(first)));
    begin = end;
  }
  if (lines.size() > kMostLines) lines.clear();
  lines.push_back(fmt::format("distributed trainer initialized: {} ranks on {} host{}, backend {}",
                              world, hosts.size(), hosts.size() > 1 ? "s" : "", backend));
  return lines;
}

}  // namespace mgpu::train
