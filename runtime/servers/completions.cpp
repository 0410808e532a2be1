#include "runtime/servers/completions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::servers {
namespace {

using nlohmann::json;

constexpr std::size_t kAtOnce = 64;  // concurrent requests of a rank
constexpr milliseconds kPollInterval{100};

[[noreturn]] void reject(std::size_t index, const std::string& what) {
  throw std::runtime_error(fmt::format("completion {}: {}", index, what));
}

std::vector<std::int32_t> tokens_in(const json& choice, std::size_t index,
                                    const SamplingParams& sampling) {
  const auto ids = choice.value("token_ids", json());
  if (!ids.is_array()) reject(index, "it has no token_ids; use vLLM 0.11 or newer");
  std::vector<std::int32_t> tokens;
  for (const auto& id : ids) {
    if (!id.is_number_integer() || id < 0 || id >= sampling.vocabulary)
      reject(index, fmt::format("{} is not a token id of the model, which has {} tokens",
                                rendezvous::shown(id.dump()), sampling.vocabulary));
    tokens.push_back(id);
  }
  if (std::cmp_greater(tokens.size(), sampling.max_tokens))
    reject(index, fmt::format("it has {} tokens, but at most {} were requested", tokens.size(),
                              sampling.max_tokens));
  return tokens;
}

std::vector<float> log_probs_in(const json& choice, std::size_t index, std::size_t count) {
  const auto parsed = choice.value("logprobs", json());
  const auto values = parsed.is_object() ? parsed.value("token_logprobs", json()) : json();
  if (!values.is_array()) reject(index, "it has no logprobs");
  if (values.size() != count)
    reject(index, fmt::format("it has {} tokens and {} logprobs", count, values.size()));
  std::vector<float> log_probs;
  for (const auto& value : values) {
    if (value.is_null()) {  // vLLM does not know it
      log_probs.push_back(std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    if (!value.is_number() || !std::isfinite(value.get<float>()))
      reject(index, fmt::format("{} is not a valid log-prob", rendezvous::shown(value.dump())));
    log_probs.push_back(value);
  }
  return log_probs;
}

bool ended_in(const json& choice, std::size_t index) {
  const auto reason = choice.value("finish_reason", json());
  if (reason == "stop") return true;
  if (reason == "length") return false;
  reject(index, fmt::format("its finish_reason is {}, neither stop nor length",
                            rendezvous::shown(reason.dump())));
}

// Runs work(i, stop) for every i below `count`, several at a time. Stops at the first exception and
// rethrows it. Returns false if it was cancelled: then it requests `stop` and starts no more work.
template <class Work>
bool for_all(std::size_t count, const Work& work, const std::function<bool()>& cancelled) {
  std::stop_source stop;
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t running = std::min(count, kAtOnce);
  const auto run = [&] {
    for (std::size_t i = next++; i < count && !stop.stop_requested(); i = next++) {
      try {
        work(i, stop.get_token());
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
    const std::scoped_lock lock(mutex);
    --running;
    ended.notify_one();
  };
  {
    std::vector<std::jthread> threads;
    for (auto i = running; i > 0; --i) threads.emplace_back(run);
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, kPollInterval, [&] { return running == 0; }))
      if (cancelled && cancelled()) stop.request_stop();
  }
  if (stop.stop_requested()) return false;
  if (failure) std::rethrow_exception(failure);
  return true;
}

}  // namespace

json request_json(const CompletionRequest& request, const SamplingParams& sampling,
                  const std::string& model) {
  json body = sampling.more;
  body.update({{"model", model},
               {"prompt", json::array({request.prompt})},
               {"n", request.count},
               {"max_tokens", sampling.max_tokens},
               {"temperature", sampling.temperature},
               {"top_p", sampling.top_p},
               {"top_k", sampling.top_k},
               {"min_p", sampling.min_p},
               {"repetition_penalty", sampling.repetition_penalty},
               {"logprobs", 0},
               {"return_token_ids", true},
               {"return_tokens_as_token_ids", true},
               // vLLM adds the completion's number and requires a signed 64-bit value.
               {"seed", request.seed >> 2}});
  if (!sampling.stop_tokens.empty()) body["stop_token_ids"] = sampling.stop_tokens;
  if (!sampling.stop_texts.empty()) body["stop"] = sampling.stop_texts;
  return body;
}

std::vector<ServerCompletion> parse_completions(const json& answer,
                                                const CompletionRequest& request,
                                                const SamplingParams& sampling) {
  const auto choices = answer.is_object() ? answer.value("choices", json()) : json();
  if (!choices.is_array()) throw std::runtime_error("the answer has no choices");
  const auto count = static_cast<std::size_t>(request.count);
  if (choices.size() != count)
    throw std::runtime_error(
        fmt::format("{} completions were requested, but {} were returned", count, choices.size()));
  std::vector<ServerCompletion> completions(count);
  std::vector<bool> seen(count);
  for (const auto& choice : choices) {
    const auto parsed = choice.is_object() ? choice.value("index", json()) : json();
    const bool number = parsed.is_number_integer() && parsed >= 0;
    const auto index = number ? parsed.get<std::size_t>() : count;
    if (index >= count || seen[index])
      throw std::runtime_error(
          fmt::format("the completions are not numbered from 0 to {}", count - 1));
    seen[index] = true;
    if (const auto read = choice.value("prompt_token_ids", json());
        read.is_array() && read != json(request.prompt))
      reject(index, "its prompt is not the requested one");
    auto& one = completions[index];
    one.tokens = tokens_in(choice, index, sampling);
    one.log_probs = log_probs_in(choice, index, one.tokens.size());
    one.ended = ended_in(choice, index);
  }
  return completions;
}

bool complete(const ServerClient& server, const std::string& model,
              const std::vector<CompletionRequest>& requests, const SamplingParams& sampling,
              milliseconds limit, const TakeCompletions& take,
              const std::function<bool()>& cancelled) {
  constexpr const char* kPath = "/v1/completions";
  const auto end = std::chrono::steady_clock::now() + limit;
  std::mutex taking;
  const auto request = [&](std::size_t i, const std::stop_token& stop) {
    const auto answer = server.post(
        kPath, request_json(requests[i], sampling, model),
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now()), stop);
    const auto parsed = server.json_of(kPath, answer);
    std::vector<ServerCompletion> completions;
    try {
      completions = parse_completions(parsed, requests[i], sampling);
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(
          fmt::format("{}{} returned an invalid answer: {}", server.url(), kPath, e.what()));
    }
    const std::scoped_lock lock(taking);
    take(i, std::move(completions));
  };
  return for_all(requests.size(), request, cancelled);
}

std::optional<std::vector<std::vector<ServerCompletion>>> complete(
    const ServerClient& server, const std::string& model,
    const std::vector<CompletionRequest>& requests, const SamplingParams& sampling,
    milliseconds limit, const std::function<bool()>& cancelled) {
  std::vector<std::vector<ServerCompletion>> completions(requests.size());
  const auto take = [&](std::size_t i, std::vector<ServerCompletion> taken) {
    completions[i] = std::move(taken);
  };
  if (!complete(server, model, requests, sampling, limit, take, cancelled)) return std::nullopt;
  return completions;
}

}  // namespace mgpu::servers
