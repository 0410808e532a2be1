#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/rl/generator.hpp"
#include "runtime/rl/weight_sync.hpp"
#include "runtime/servers/completions.hpp"

namespace mgpu::rl {

// Generates on an external server. Each rank sends one request per prompt of its own.
class ServerGenerator : public Generator {
 public:
  ServerGenerator(const servers::ServerClient& server, servers::SamplingParams sampling,
                  servers::milliseconds limit, std::unique_ptr<WeightSync> sync);

  // Sends nothing if the server already has the weights of that step.
  bool computes_here() const override { return false; }
  void sync_weights(std::int64_t step) override;
  std::optional<Completions> complete(const std::vector<rollout::Request>& requests,
                                      const rollout::RequestFinished& finished,
                                      const std::function<bool()>& cancelled,
                                      const Decoding& decoding) override;
  void finish() override { sync_->finish(); }

 private:
  const servers::ServerClient& server_;
  servers::SamplingParams sampling_;
  servers::milliseconds limit_;
  std::unique_ptr<WeightSync> sync_;
  std::string model_;
  std::optional<std::int64_t> step_;  // the step whose weights the server has
};

}  // namespace mgpu::rl
