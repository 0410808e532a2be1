#include "runtime/rl/generation.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "runtime/rl/completion_bytes.hpp"

namespace mgpu::rl {
namespace {

using nlohmann::json;

ScoredCompletion completion_from(const json& j) {
  ScoredCompletion s;
  s.prompt = j.at("question");
  s.tokens = j.at("tokens").get<std::vector<std::int32_t>>();
  for (const auto& value : j.at("sampler"))  // JSON text has no NaN, which means "unknown"
    s.sampler_log_probs.push_back(value.is_null() ? std::numeric_limits<float>::quiet_NaN()
                                                  : value.get<float>());
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

Generation generation_from(const json& j) {
  Generation generation;
  generation.number = j.at("number");
  for (const auto& completion : j.at("samples"))
    generation.completions.push_back(completion_from(completion));
  generation.metrics = j.at("metrics").get<std::map<std::string, double>>();
  return generation;
}

std::vector<ScoredCompletion> gather_completions(const std::vector<ScoredCompletion>& own,
                                                 comm::Comm& comm, at::Device device) {
  if (comm.world() == 1) return own;
  const auto bytes = to_bytes(own);

  const auto where = at::TensorOptions(device);
  const auto size = at::full({1}, static_cast<std::int64_t>(bytes.size()), where.dtype(at::kLong));
  const auto sizes = at::empty({comm.world()}, size.options());
  comm.all_gather(sizes, size, "the sizes of the generated completions").wait();
  const auto host_sizes = sizes.cpu();
  const auto* each = host_sizes.const_data_ptr<std::int64_t>();
  const auto largest = *std::max_element(each, each + comm.world());

  auto padded = at::zeros({largest}, at::TensorOptions(at::kByte));
  if (!bytes.empty()) std::memcpy(padded.data_ptr(), bytes.data(), bytes.size());
  padded = padded.to(device);
  const auto all = at::empty({comm.world() * largest}, padded.options());
  comm.all_gather(all, padded, "the generated completions").wait();
  const auto host = all.cpu();
  const auto* data = reinterpret_cast<const std::byte*>(host.const_data_ptr<std::uint8_t>());
  std::vector<ScoredCompletion> completions;
  for (int rank = 0; rank < comm.world(); ++rank) {
    const auto* begin = data + rank * largest;
    std::ranges::move(completions_from({begin, static_cast<std::size_t>(each[rank])}),
                      std::back_inserter(completions));
  }
  return completions;
}

std::vector<ScoredCompletion> in_prompt_order(std::vector<ScoredCompletion> completions,
                                              const std::vector<std::vector<std::int64_t>>& spread,
                                              std::int64_t group) {
  std::vector<ScoredCompletion> ordered(completions.size());
  auto next = completions.begin();
  for (const auto& prompts : spread)
    for (const auto prompt : prompts)
      for (std::int64_t i = 0; i < group; ++i)
        ordered[static_cast<std::size_t>(prompt * group + i)] = std::move(*next++);
  return ordered;
}

}  // namespace mgpu::rl
