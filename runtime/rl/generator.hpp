#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/rollout/engine.hpp"

namespace mgpu::rl {

// How completions are found.
struct Decoding {
  bool beams = false;            // the best beams, the best first, instead of samples
  bool with_temperature = true;  // of the policy; false: 1
};

// Completes prompts with the weights of the policy.
class Generator {
 public:
  Generator() = default;
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  virtual ~Generator() = default;

  // Whether complete() computes with the policy's weights on this rank, which must be gathered.
  virtual bool computes_here() const = 0;

  // When it returns, the generator has the policy's weights after `step`. All ranks call it
  // together, before any of them calls complete().
  virtual void sync_weights(std::int64_t step) = 0;

  using Completions = std::vector<std::vector<rollout::Completion>>;

  // Completions of this rank's prompts, in the order of the requests and their seeds. A completion
  // depends only on the weights, its prompt and its seed. `finished` is called once for each
  // request, one call at a time, as soon as its completions are complete. Nothing is returned if
  // `cancelled`, which is called several times per second, returned true.
  virtual std::optional<Completions> complete(const std::vector<rollout::Request>& requests,
                                              const rollout::RequestFinished& finished,
                                              const std::function<bool()>& cancelled,
                                              const Decoding& decoding) = 0;

  // All ranks call it together after the last step. It removes what the run left on a server.
  virtual void finish() = 0;
};

}  // namespace mgpu::rl
