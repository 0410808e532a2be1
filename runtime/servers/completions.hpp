#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/servers/caller.hpp"

// Completions by a server that speaks vLLM's /v1/completions, token ids in and out.
namespace mgpu::servers {

// A prompt and how often it is to be completed. The seed is all that the server's chance depends
// on, besides the number of the completion.
struct Asked {
  std::vector<std::int32_t> prompt;
  std::int64_t count = 1;
  std::uint64_t seed = 0;
};

struct Made {
  std::vector<std::int32_t> tokens;  // the one that ended it included
  std::vector<float> log_probs;      // of each, as the server says them
  bool ended = false;                // of its own; else it was cut at its length
};

// How all of them are drawn.
struct Drawing {
  double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  std::int64_t top_k = 0;  // 0: all
  std::int64_t most_tokens = 512;
  std::vector<std::int32_t> stop_tokens;
  std::vector<std::string> stop_texts;
  nlohmann::json more = nlohmann::json::object();  // of the request, as it is
  std::int64_t vocabulary = 0;                     // ids below this are tokens of the model
};

nlohmann::json request_of(const Asked& asked, const Drawing& drawing, const std::string& model);

// The completions in an answer, by their index. Throws what is wrong with an answer that does not
// have as many, with ids and log-probs for each of their tokens.
std::vector<Made> completions_in(const nlohmann::json& answer, const Asked& asked,
                                 const Drawing& drawing);

// Asks for all, some at a time, each within the limit. Throws naming the server and what it said or
// did not say.
std::vector<std::vector<Made>> complete(const Caller& server, const std::string& model,
                                        const std::vector<Asked>& asked, const Drawing& drawing,
                                        milliseconds limit);

}  // namespace mgpu::servers
