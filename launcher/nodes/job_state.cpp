#include "launcher/nodes/job_state.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::launcher {
namespace {

using nlohmann::json;
using std::chrono::duration_cast, std::chrono::milliseconds;

constexpr std::int64_t kMaxSavedCount = 1'000'000'000;
constexpr milliseconds kMaxSavedTime = std::chrono::years(3);

}  // namespace

std::string job_state_json(const JobState& state) {
  json object = {
      {"job", state.job},
      {"rounds", state.counts.rounds},
      {"restarts", state.counts.restarts},
      {"oom_count", state.counts.oom_count},
      {"nodes", state.nodes},
      {"left", state.left},
      {"lease_and_grace_ms", duration_cast<milliseconds>(state.lease_and_grace).count()}};
  if (state.ended) object["ended"] = *state.ended;
  return object.dump();
}

std::optional<JobState> parse_job_state(const std::string& text) {
  const json object = rendezvous::parse_untrusted_json(text);
  if (!object.is_object()) return std::nullopt;
  const auto number = [&](const char* name) -> std::int64_t {
    std::int64_t value = 0;
    rendezvous::read_field(object, name, value);
    return std::max<std::int64_t>(value, 0);
  };
  const auto count = [&](const char* name) {
    return static_cast<int>(std::min<std::int64_t>(number(name), kMaxSavedCount));
  };
  JobState state{
      .job = number("job"),
      .counts = {count("rounds"), count("restarts"), count("oom_count")},
      .nodes = count("nodes"),
      .left = count("left"),
      .lease_and_grace = std::min(milliseconds(number("lease_and_grace_ms")), kMaxSavedTime)};
  if (state.job == 0) return std::nullopt;
  if (object.contains("ended")) state.ended = count("ended") & 0xff;
  return state;
}

}  // namespace mgpu::launcher
