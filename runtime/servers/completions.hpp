#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/servers/server_client.hpp"

// Completions from a server with vLLM's /v1/completions API; prompts and completions are token ids.
namespace mgpu::servers {

// A prompt and the number of its completions. The server's sampling depends only on the seed and
// the number of the completion.
struct CompletionRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t count = 1;
  std::uint64_t seed = 0;
};

struct ServerCompletion {
  std::vector<std::int32_t> tokens;  // including the stop token
  std::vector<float> log_probs;  // of each token, as the server reports them; NaN if it has none
  bool ended = false;            // it ended by itself; false: truncated at the maximum length
};

// Sampling parameters of all requests.
struct SamplingParams {
  double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  std::int64_t top_k = 0;  // 0: all
  std::int64_t max_tokens = 512;
  std::vector<std::int32_t> stop_tokens;
  std::vector<std::string> stop_texts;
  nlohmann::json more = nlohmann::json::object();  // additional fields of the request
  std::int64_t vocabulary = 0;                     // token ids must be below this
};

nlohmann::json request_json(const CompletionRequest& request, const SamplingParams& sampling,
                            const std::string& model);

// The completions of an answer, ordered by their index. Throws if the answer has another number of
// completions, or if token ids or log-probs are missing or invalid.
std::vector<ServerCompletion> parse_completions(const nlohmann::json& answer,
                                                const CompletionRequest& request,
                                                const SamplingParams& sampling);

// Called with the number of a request and its completions; by several threads, one call at a time.
using TakeCompletions = std::function<void(std::size_t, std::vector<ServerCompletion>)>;

// Sends all requests, several at a time, within the limit; `take` gets the completions of each as
// soon as they arrive. Throws with the server and its message or the missing answer. `cancelled` is
// called several times per second; if it returns true, all connections are closed, which ends the
// server's work too, and false is returned.
bool complete(const ServerClient& server, const std::string& model,
              const std::vector<CompletionRequest>& requests, const SamplingParams& sampling,
              milliseconds limit, const TakeCompletions& take,
              const std::function<bool()>& cancelled = {});

// The same; returns the completions in the order of the requests, or nothing.
std::optional<std::vector<std::vector<ServerCompletion>>> complete(
    const ServerClient& server, const std::string& model,
    const std::vector<CompletionRequest>& requests, const SamplingParams& sampling,
    milliseconds limit, const std::function<bool()>& cancelled = {});

}  // namespace mgpu::servers
