#include "runtime/servers/completions.hpp"

#include <atomic>
#include <cmath>

#include "tests/runtime/servers/servers_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using servers::CompletionRequest;
using servers::parse_completions;

namespace {

const servers::SamplingParams kSampling{.max_tokens = 3, .vocabulary = 10};
const CompletionRequest kRequest{.prompt = {1, 2}, .count = 2, .seed = 77};

json choice(int index, json tokens, json log_probs, json reason) {
  return {{"index", index},
          {"token_ids", std::move(tokens)},
          {"prompt_token_ids", {1, 2}},
          {"logprobs", {{"token_logprobs", std::move(log_probs)}}},
          {"finish_reason", std::move(reason)}};
}

json good() {
  return {
      {"choices", {choice(1, {5, 6, 7}, {-1, -2, -3}, "length"), choice(0, {9}, {-.5}, "stop")}}};
}

}  // namespace

TEST_CASE("a log-prob of null is unknown and keeps the completion", "[servers]") {
  auto answer = good();
  answer["choices"][0]["logprobs"]["token_logprobs"][1] = nullptr;
  const auto completions = parse_completions(answer, kRequest, kSampling);
  CHECK(completions[1].log_probs[0] == -1);
  CHECK(std::isnan(completions[1].log_probs[1]));
  CHECK(completions[1].log_probs[2] == -3);
}

TEST_CASE("a request has all sampling parameters and the seed", "[servers]") {
  auto sampling = kSampling;
  sampling.temperature = .7;
  sampling.top_p = .9;
  sampling.min_p = .05;
  sampling.top_k = 4;
  sampling.repetition_penalty = 1.1;
  sampling.stop_tokens = {0};
  sampling.stop_texts = {"\n\n"};
  sampling.more = {{"frequency_penalty", .5}};
  const auto request = servers::request_json(kRequest, sampling, "policy-3");
  CHECK(request == json{{"model", "policy-3"},
                        {"prompt", {{1, 2}}},
                        {"n", 2},
                        {"max_tokens", 3},
                        {"temperature", .7},
                        {"top_p", .9},
                        {"min_p", .05},
                        {"top_k", 4},
                        {"repetition_penalty", 1.1},
                        {"logprobs", 0},
                        {"return_token_ids", true},
                        {"return_tokens_as_token_ids", true},
                        {"seed", 77 / 4},
                        {"stop_token_ids", {0}},
                        {"stop", {"\n\n"}},
                        {"frequency_penalty", .5}});
  // The server adds the number of the completion, in 64 bits with sign.
  const auto largest = servers::request_json({{1}, 1, ~0ULL}, kSampling, "m").at("seed");
  CHECK(largest.get<std::uint64_t>() < (1ULL << 63) - 1000);
}

TEST_CASE("completions are ordered by index and have their finish reason", "[servers]") {
  const auto completions = parse_completions(good(), kRequest, kSampling);
  CHECK(completions[0].tokens == std::vector<std::int32_t>{9});
  CHECK(completions[0].log_probs == std::vector<float>{-.5F});
  CHECK(completions[0].ended);
  CHECK(completions[1].tokens == std::vector<std::int32_t>{5, 6, 7});
  CHECK_FALSE(completions[1].ended);
}

TEST_CASE("an invalid answer is reported with the reason", "[servers]") {
  struct Case {
    const char* change;
    const char* message;
  };
  const auto [change, message] = GENERATE(values<Case>({
      {R"([{"op":"remove","path":"/choices"}])", "has no choices"},
      {R"([{"op":"remove","path":"/choices/0"}])",
       "2 completions were requested, but 1 were returned"},
      {R"([{"op":"replace","path":"/choices/0/index","value":0}])", "not numbered from 0 to 1"},
      {R"([{"op":"replace","path":"/choices/0/index","value":-1}])", "not numbered"},
      {R"([{"op":"replace","path":"/choices/0","value":7}])", "not numbered"},
      {R"([{"op":"remove","path":"/choices/0/token_ids"}])", "completion 1: it has no token_ids"},
      {R"([{"op":"replace","path":"/choices/0/token_ids/1","value":10}])",
       "10 is not a token id of the model, which has 10"},
      {R"([{"op":"replace","path":"/choices/0/token_ids/1","value":-1}])", "-1 is not a token"},
      {R"([{"op":"replace","path":"/choices/0/token_ids/1","value":1.5}])", "1.5 is not a token"},
      {R"([{"op":"add","path":"/choices/0/token_ids/1","value":1}])",
       "it has 4 tokens, but at most 3 were requested"},
      {R"([{"op":"replace","path":"/choices/0/logprobs","value":null}])", "it has no logprobs"},
      {R"([{"op":"remove","path":"/choices/0/logprobs/token_logprobs/0"}])",
       "3 tokens and 2 logprobs"},
      {R"([{"op":"replace","path":"/choices/0/logprobs/token_logprobs/0","value":1e99}])",
       "is not a valid log-prob"},
      {R"([{"op":"replace","path":"/choices/0/finish_reason","value":"abort"}])",
       "its finish_reason is \"abort\""},
      {R"([{"op":"replace","path":"/choices/0/prompt_token_ids","value":[1]}])",
       "its prompt is not the requested one"},
  }));
  CAPTURE(change);
  const auto answer = good().patch(json::parse(change));
  CHECK_THAT(message_of([&] { parse_completions(answer, kRequest, kSampling); }),
             Contains(message));
}

TEST_CASE("each prompt is one request, and results come in order", "[servers]") {
  const HttpServer server([](const HttpRequest& request) {
    const auto body = json::parse(request.body);
    const int token = body["prompt"][0][0];
    json answer{{"choices", {choice(0, {token}, {-1}, "stop")}}};
    answer["choices"][0]["prompt_token_ids"] = body["prompt"][0];
    return HttpResponse{200, answer.dump()};
  });
  std::vector<CompletionRequest> requests;
  for (std::int32_t i = 0; i < 200; ++i) requests.push_back({.prompt = {i % 10, i / 10}});
  const auto completions = servers::complete(client_of(server), "m", requests, kSampling, 10s);
  REQUIRE(completions);
  REQUIRE(completions->size() == requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    CHECK((*completions)[i][0].tokens[0] == requests[i].prompt[0]);
}

TEST_CASE("requests without an answer end when they are cancelled", "[servers]") {
  std::atomic<bool> arrived = false;
  const HttpServer server([&](const HttpRequest&) {
    arrived = true;
    return HttpResponse{.silent = true};
  });
  const std::vector<CompletionRequest> requests(70, kRequest);
  const auto cancelled = [&] { return arrived.load(); };
  CHECK_FALSE(servers::complete(client_of(server), "m", requests, kSampling, 1000s, cancelled));
}

TEST_CASE("the first failure stops the other requests and names the server", "[servers]") {
  std::atomic<int> number = 0;
  const HttpServer server([&](const HttpRequest&) {
    ++number;
    return HttpResponse{400, R"({"error":{"message":"too long"}})"};
  });
  const std::vector<CompletionRequest> requests(1000, kRequest);
  CHECK_THAT(
      message_of([&] { servers::complete(client_of(server), "m", requests, kSampling, 10s); }),
      Contains(server.url() + "/v1/completions answered with status 400: too long"));
  CHECK(number < 500);
  const HttpServer liar(by_path({{"/v1/completions", {200, R"({"choices":[]})"}}}));
  CHECK_THAT(
      message_of([&] { servers::complete(client_of(liar), "m", {kRequest}, kSampling, 10s); }),
      Contains(liar.url() +
               "/v1/completions returned an invalid answer: 2 completions were requested"));
}
