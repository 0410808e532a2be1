#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/rl/generator.hpp"
#include "runtime/rl/weight_sync.hpp"
#include "runtime/servers/completions.hpp"

namespace mgpu::rl {

// A server that somebody runs. Each rank asks for its own prompts, a request each.
class ServerGenerator : public Generator {
 public:
  ServerGenerator(const servers::Caller& server, servers::Drawing drawing,
                  servers::milliseconds limit, std::unique_ptr<WeightSync> sync);

  // Sends nothing if the server has the weights of that step.
  void renew(std::int64_t step) override;
  std::vector<std::vector<rollout::Completion>> complete(
      const std::vector<rollout::Prompt>& prompts) override;
  void finish() override { sync_->finish(); }

 private:
  const servers::Caller& server_;
  servers::Drawing drawing_;
  servers::milliseconds limit_;
  std::unique_ptr<WeightSync> sync_;
  std::string model_;
  std::optional<std::int64_t> step_;  // whose weights the server has
};

}  // namespace mgpu::rl
