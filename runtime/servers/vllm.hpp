#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/servers/server_client.hpp"

// Waits for a native vLLM server and queries its model and configuration.
namespace mgpu::servers {

using PrintLine = std::function<void(const std::string& line)>;

struct LoadedAdapter {
  std::string name, folder;
  friend bool operator==(const LoadedAdapter&, const LoadedAdapter&) = default;
};

struct ServedModel {
  std::string model;                    // its id in requests
  std::string root;                     // the model it was started with; empty: unknown
  std::int64_t longest = 0;             // prompt and completion tokens; 0: unknown
  std::vector<LoadedAdapter> adapters;  // the loaded ones

  friend bool operator==(const ServedModel&, const ServedModel&) = default;
};

// Whether a server's root and our model_name_or_path may be the same model: their last path parts
// are equal.
bool same_model(const std::string& root, const std::string& ours);

// Returns when the server answers. Prints that it is waiting, at once and then every `every`.
// Throws after the limit, with the server's address and the command that starts one. Throws at once
// if its certificate is not trusted.
struct WaitOptions {
  milliseconds limit{240'000}, every{10'000}, pause{500};
};
void wait_for(const ServerClient& server, const WaitOptions& options, const std::string& command,
              const PrintLine& print);

// Queries the served model. Throws if the server is not a native vLLM, with the command that starts
// one; the server of TRL before 1.11 is recognised by name.
ServedModel identify(const ServerClient& server, const std::string& command);

// The command that starts a server for a job: with adapters of this LoRA rank, or (0) for full
// weights.
std::string start_command(const std::string& model, const std::string& port,
                          std::int64_t adapter_rank);

// What only a server in development mode reports.
struct ServerInfo {
  bool shown = false;              // it has /server_info
  bool takes_weights = false;      // it has a weight-transfer engine
  std::int64_t data_parallel = 1;  // copies of the model
  std::string log_probs;           // its logprobs mode; empty: unknown
};
ServerInfo read_server_info(const ServerClient& server);

// The number of GPUs that the server uses; 0: unknown.
std::int64_t workers_of(const ServerClient& server);

// Whether packed weights are announced once, when the group is formed, as vLLM 0.28 and later
// require. `version` is the version of /version; one that cannot be parsed counts as new.
bool packs_at_init(const std::string& version);

}  // namespace mgpu::servers
