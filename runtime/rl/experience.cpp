#include "runtime/rl/experience.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace mgpu::rl {
namespace {

using nlohmann::json;

json sample_json(const Sample& s) {
  json rewards = json::array();
  for (const auto& reward : s.rewards) rewards.push_back(reward ? json(*reward) : json());
  return {{"question", s.question},     {"tokens", s.tokens},     {"sampler", s.sampler_log_probs},
          {"old", s.old_log_probs},     {"ref", s.ref_log_probs}, {"text", s.text},
          {"terminated", s.terminated}, {"rewards", rewards},     {"advantage", s.advantage}};
}

Sample sample_from(const json& j) {
  Sample s;
  s.question = j.at("question");
  s.tokens = j.at("tokens").get<std::vector<std::int32_t>>();
  s.sampler_log_probs = j.at("sampler").get<std::vector<float>>();
  s.old_log_probs = j.at("old").get<std::vector<float>>();
  s.ref_log_probs = j.at("ref").get<std::vector<float>>();
  s.text = j.at("text");
  s.terminated = j.at("terminated");
  for (const auto& reward : j.at("rewards"))
    s.rewards.push_back(reward.is_null() ? std::nullopt : std::optional<double>(reward));
  s.advantage = j.at("advantage");
  return s;
}

}  // namespace

json to_json(const Generation& generation) {
  json samples = json::array();
  for (const auto& sample : generation.samples) samples.push_back(sample_json(sample));
  return {{"number", generation.number},
          {"samples", std::move(samples)},
          {"metrics", generation.metrics}};
}

Generation generation_from(const json& j) {
  Generation generation;
  generation.number = j.at("number");
  for (const auto& sample : j.at("samples")) generation.samples.push_back(sample_from(sample));
  generation.metrics = j.at("metrics").get<std::map<std::string, double>>();
  return generation;
}

std::vector<Sample> share(const std::vector<Sample>& own, comm::Comm& comm, at::Device device) {
  if (comm.world() == 1) return own;
  json list = json::array();
  for (const auto& sample : own) list.push_back(sample_json(sample));
  const auto bytes = json::to_cbor(list);

  const auto where = at::TensorOptions(device);
  const auto size = at::full({1}, static_cast<std::int64_t>(bytes.size()), where.dtype(at::kLong));
  const auto sizes = at::empty({comm.world()}, size.options());
  comm.all_gather(sizes, size, "the sizes of what was generated").wait();
  const auto sizes_here = sizes.cpu();
  const auto* each = sizes_here.const_data_ptr<std::int64_t>();
  const auto most = *std::max_element(each, each + comm.world());

  auto mine = at::zeros({most}, at::TensorOptions(at::kByte));
  std::memcpy(mine.data_ptr(), bytes.data(), bytes.size());
  mine = mine.to(device);
  const auto all = at::empty({comm.world() * most}, mine.options());
  comm.all_gather(all, mine, "what was generated").wait();
  const auto here = all.cpu();
  const auto* data = here.const_data_ptr<std::uint8_t>();
  std::vector<Sample> samples;
  for (int rank = 0; rank < comm.world(); ++rank) {
    const auto* begin = data + rank * most;
    for (const auto& sample : json::from_cbor(begin, begin + each[rank]))
      samples.push_back(sample_from(sample));
  }
  return samples;
}

std::vector<Sample> in_order(std::vector<Sample> samples,
                             const std::vector<std::vector<std::int64_t>>& spread,
                             std::int64_t group) {
  std::vector<Sample> ordered(samples.size());
  auto next = samples.begin();
  for (const auto& prompts : spread)
    for (const auto prompt : prompts)
      for (std::int64_t i = 0; i < group; ++i)
        ordered[static_cast<std::size_t>(prompt * group + i)] = std::move(*next++);
  return ordered;
}

}  // namespace mgpu::rl
