#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/servers/caller.hpp"

// A native vLLM: waiting for it, and what it says of itself.
namespace mgpu::servers {

using Tell = std::function<void(const std::string& line)>;

struct LoadedAdapter {
  std::string name, folder;
  friend bool operator==(const LoadedAdapter&, const LoadedAdapter&) = default;
};

struct Facts {
  std::string model;                    // its id
  std::string root;                     // what it was started with; empty: it does not say
  std::int64_t longest = 0;             // prompt and completion; 0: it does not say
  std::vector<LoadedAdapter> adapters;  // that are loaded

  friend bool operator==(const Facts&, const Facts&) = default;
};

// Whether a server's root and our model_name_or_path may be the same: their last parts are.
bool same_model(const std::string& root, const std::string& ours);

// Returns when the server answers. Tells at once that it waits, and again every `every`. Throws
// when the limit is over, naming the server and how one is started.
struct Waiting {
  milliseconds limit{240'000}, every{10'000}, pause{500};
};
void wait_for(const Caller& server, const Waiting& waiting, const std::string& start,
              const Tell& tell);

// What the server says of itself. Throws for one that is no native vLLM, with the command that
// starts one; the server of TRL before 1.11 is named.
Facts recognise(const Caller& server, const std::string& start);

// The command that starts a server for a job: with adapters of this rank, or (0) for all weights.
std::string start_command(const std::string& model, const std::string& port,
                          std::int64_t adapter_rank);

// What only a server in development mode tells.
struct Inside {
  bool shown = false;              // /server_info is there
  bool takes_weights = false;      // it has a weight-transfer engine
  std::int64_t data_parallel = 1;  // copies of the model
  std::string log_probs;           // its logprobs mode
};
Inside look_inside(const Caller& server);

// GPUs that the server works on; 0: it does not say.
std::int64_t workers_of(const Caller& server);

// Whether weights are packed as vLLM 0.28 and later say it: once, when the group is formed. By the
// text of /version; a text that cannot be read is taken for a new one.
bool packs_at_init(const std::string& version);

}  // namespace mgpu::servers
