#include "runtime/servers/completions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::servers {
namespace {

using nlohmann::json;

constexpr std::size_t kAtOnce = 64;  // requests of a rank

[[noreturn]] void lie(std::size_t index, const std::string& what) {
  throw std::runtime_error(fmt::format("completion {}: {}", index, what));
}

std::vector<std::int32_t> tokens_in(const json& choice, std::size_t index, const Drawing& drawing) {
  const auto ids = choice.value("token_ids", json());
  if (!ids.is_array()) lie(index, "it has no token_ids; vLLM 0.11 and newer give them");
  std::vector<std::int32_t> tokens;
  for (const auto& id : ids) {
    if (!id.is_number_integer() || id < 0 || id >= drawing.vocabulary)
      lie(index, fmt::format("{} is no token of the model, which has {}",
                             rendezvous::shown(id.dump()), drawing.vocabulary));
    tokens.push_back(id);
  }
  if (std::cmp_greater(tokens.size(), drawing.most_tokens))
    lie(index, fmt::format("it has {} tokens, and {} were asked for at most", tokens.size(),
                           drawing.most_tokens));
  return tokens;
}

std::vector<float> log_probs_in(const json& choice, std::size_t index, std::size_t count) {
  const auto said = choice.value("logprobs", json());
  const auto values = said.is_object() ? said.value("token_logprobs", json()) : json();
  if (!values.is_array()) lie(index, "it has no logprobs");
  if (values.size() != count)
    lie(index, fmt::format("it has {} tokens and {} logprobs", count, values.size()));
  std::vector<float> log_probs;
  for (const auto& value : values) {
    if (!value.is_number() || !std::isfinite(value.get<float>()))
      lie(index, fmt::format("{} is no log-prob", rendezvous::shown(value.dump())));
    log_probs.push_back(value);
  }
  return log_probs;
}

bool ended_in(const json& choice, std::size_t index) {
  const auto reason = choice.value("finish_reason", json());
  if (reason == "stop") return true;
  if (reason == "length") return false;
  lie(index, fmt::format("its finish_reason is {}, and neither stop nor length",
                         rendezvous::shown(reason.dump())));
}

// Runs work(i) for every i below `count`, some at a time. The first that throws ends it.
template <class Work>
void for_all(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(count, kAtOnce); ++i) threads.emplace_back(run);
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

json request_of(const Asked& asked, const Drawing& drawing, const std::string& model) {
  json request = drawing.more;
  request.update({{"model", model},
                  {"prompt", json::array({asked.prompt})},
                  {"n", asked.count},
                  {"max_tokens", drawing.most_tokens},
                  {"temperature", drawing.temperature},
                  {"top_p", drawing.top_p},
                  {"top_k", drawing.top_k},
                  {"min_p", drawing.min_p},
                  {"repetition_penalty", drawing.repetition_penalty},
                  {"logprobs", 0},
                  {"return_token_ids", true},
                  {"return_tokens_as_token_ids", true},
                  // vLLM adds the completion's number, and wants what fits into 64 bits with sign.
                  {"seed", asked.seed >> 2}});
  if (!drawing.stop_tokens.empty()) request["stop_token_ids"] = drawing.stop_tokens;
  if (!drawing.stop_texts.empty()) request["stop"] = drawing.stop_texts;
  return request;
}

std::vector<Made> completions_in(const json& answer, const Asked& asked, const Drawing& drawing) {
  const auto choices = answer.is_object() ? answer.value("choices", json()) : json();
  if (!choices.is_array()) throw std::runtime_error("its answer has no choices");
  const auto count = static_cast<std::size_t>(asked.count);
  if (choices.size() != count)
    throw std::runtime_error(
        fmt::format("{} completions were asked for, and {} came", count, choices.size()));
  std::vector<Made> made(count);
  std::vector<bool> seen(count);
  for (const auto& choice : choices) {
    const auto said = choice.is_object() ? choice.value("index", json()) : json();
    const bool number = said.is_number_integer() && said >= 0;
    const auto index = number ? said.get<std::size_t>() : count;
    if (index >= count || seen[index])
      throw std::runtime_error(
          fmt::format("its completions are not numbered from 0 to {}", count - 1));
    seen[index] = true;
    if (const auto read = choice.value("prompt_token_ids", json());
        read.is_array() && read != json(asked.prompt))
      lie(index, "it is of another prompt than the one that was asked for");
    auto& one = made[index];
    one.tokens = tokens_in(choice, index, drawing);
    one.log_probs = log_probs_in(choice, index, one.tokens.size());
    one.ended = ended_in(choice, index);
  }
  return made;
}

std::vector<std::vector<Made>> complete(const Caller& server, const std::string& model,
                                        const std::vector<Asked>& asked, const Drawing& drawing,
                                        milliseconds limit) {
  constexpr const char* kPath = "/v1/completions";
  std::vector<std::vector<Made>> made(asked.size());
  const auto end = std::chrono::steady_clock::now() + limit;
  for_all(asked.size(), [&](std::size_t i) {
    const auto answer = server.post(
        kPath, request_of(asked[i], drawing, model),
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now()));
    const auto said = server.json_of(kPath, answer);
    try {
      made[i] = completions_in(said, asked[i], drawing);
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(
          fmt::format("{}{} cannot be believed: {}", server.url(), kPath, e.what()));
    }
  });
  return made;
}

}  // namespace mgpu::servers
