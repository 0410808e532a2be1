#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/rewards/reward.hpp"
#include "runtime/rewards/settings.hpp"

// Rewards that are computed outside this process. A request is one line of JSON, and so is its
// answer. docs/rewards.md describes the lines.
namespace mgpu::rewards {

// A program, Python function or server that scores completions. Failures are std::runtime_error;
// the caller adds the reward's name.
class ScoringEndpoint {
 public:
  ScoringEndpoint() = default;
  ScoringEndpoint(const ScoringEndpoint&) = delete;
  ScoringEndpoint& operator=(const ScoringEndpoint&) = delete;
  virtual ~ScoringEndpoint() = default;

  // Sends a line and returns the answer, both without their newline. A failed request leaves no
  // data behind for the next one. It fails at the deadline, and soon after a stop is requested.
  virtual std::string request(const std::string& line, Deadline deadline, std::stop_token stop) = 0;
};

// Makes one more endpoint of a reward, each with its own process.
using OpenEndpoint = std::function<std::unique_ptr<ScoringEndpoint>()>;

// The request for the completions of one group.
std::string request_line(std::span<const CompletionView* const> group);

// Parses the scores of an answer. Throws if the answer is an error, has another number of scores
// than `count` or contains something that is not a finite number or null.
std::vector<Score> parse_scores(const std::string& answer, std::size_t count);

// FILE.py:FUNCTION, cmd: PROGRAM, http://HOST:PORT/PATH; null for any other name.
std::unique_ptr<Reward> make_external_reward(const std::string& name, const Settings& settings);

// Whether a name that no rule has is that of a Python function or a program.
bool runs_program(const std::string& name);

// How a reward's groups are distributed over its endpoints.
enum class Distribution {
  in_turn,   // group after group in the order of begin(): the same groups in every run
  any_free,  // a group goes to an endpoint that is free
};

// A reward that requests the scores of up to `concurrency` groups at a time. After a failure it
// throws or, with reward_on_error none, gives that group no scores and warns once on stderr.
std::unique_ptr<Reward> make_endpoint_reward(std::string name, OpenEndpoint open, int concurrency,
                                             Distribution distribution, const Settings& settings);

// A server that answers 429, or 503 with a Retry-After, is asked again until `patience` is over.
OpenEndpoint http_endpoints(const std::string& url, std::chrono::milliseconds patience);

}  // namespace mgpu::rewards
