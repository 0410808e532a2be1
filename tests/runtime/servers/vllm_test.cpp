#include "runtime/servers/vllm.hpp"

#include "tests/runtime/servers/servers_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using servers::identify;

TEST_CASE("a vLLM server reports its model, context length and adapters", "[servers]") {
  const HttpServer server(by_path({{"/v1/models", {200, R"({"data":[
      {"id":"a-1","root":"/out/a-1","parent":"base"},
      {"id":"base","root":"base","parent":null,"max_model_len":4096},
      {"id":"second-name","root":"base","parent":null}]})"}}}));
  const auto served = identify(client_of(server), "vllm serve");
  CHECK(served == servers::ServedModel{"base", "base", 4096, {{"a-1", "/out/a-1"}}});
}

TEST_CASE("a server that is not vLLM is rejected with the command that starts one", "[servers]") {
  const auto message_for = [](std::map<std::string, HttpResponse> known) {
    const HttpServer server(by_path(std::move(known)));
    return message_of([&] { identify(client_of(server), "vllm serve M"); });
  };
  CHECK_THAT(
      message_for({{"/health/", {200, "{}"}}, {"/get_world_size/", {200, R"({"world_size":1})"}}}),
      Contains("the server of an older TRL") && Contains("vllm serve M"));
  CHECK_THAT(message_for({}),
             Contains("status 404") && Contains("not a vLLM server") && Contains("vllm serve M"));
  CHECK_THAT(message_for({{"/v1/models", {401, R"({"error":"Unauthorized"})"}}}),
             Contains("status 401: Unauthorized"));
  for (const char* nothing : {"{}", R"({"data":[]})", R"({"data":[{"id":7}]})", "[]"}) {
    CAPTURE(nothing);
    CHECK_THAT(message_for({{"/v1/models", {200, nothing}}}), Contains("lists no model"));
  }
}

TEST_CASE("wait_for waits for a server and reports one that never answers", "[servers]") {
  int requests = 0;
  const HttpServer server(
      [&](const HttpRequest&) { return HttpResponse{++requests < 4 ? 503U : 200U}; });
  std::vector<std::string> lines;
  const auto print = [&](const std::string& line) { lines.push_back(line); };
  const auto client = client_of(server);
  servers::wait_for(client, {.limit = 10s, .every = 1h, .pause = 1ms}, "vllm serve M", print);
  CHECK(requests == 4);
  REQUIRE(lines.size() == 1);  // at once, and again after an hour
  CHECK_THAT(lines[0], Contains("waiting for the server at " + server.url()) &&
                           Contains("status 503") && Contains("for at most 10 s more"));
  lines.clear();
  servers::wait_for(client, {.limit = 10s, .every = 1h, .pause = 1ms}, "vllm serve M", print);
  CHECK(lines.empty());
  requests = -1'000'000;
  CHECK_THAT(message_of([&] {
               servers::wait_for(client, {.limit = 50ms, .every = 10ms, .pause = 5ms},
                                 "vllm serve M", print);
             }),
             Contains("no server answered at " + server.url() + " within 0.05 s") &&
                 Contains("status 503") && Contains("vllm serve M"));
  CHECK(lines.size() >= 3);
}

TEST_CASE("the start command has the options that a job needs", "[servers]") {
  using servers::start_command;
  CHECK(start_command("M", "8000", 12) ==
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve M --port 8000 --enable-lora "
        "--max-lora-rank 16 --logprobs-mode processed_logprobs");
  CHECK_THAT(start_command("M", "8000", 4), Contains("--max-lora-rank 8 "));
  CHECK_THAT(start_command("M", "8000", 256), Contains("--max-lora-rank 256 "));
  CHECK_THAT(start_command("M", "8000", 300), Contains("--max-lora-rank 320 "));
  CHECK(start_command("M", "8001", 0) ==
        "VLLM_SERVER_DEV_MODE=1 vllm serve M --port 8001 --weight-transfer-config "
        "'{\"backend\":\"nccl\"}' --logprobs-mode processed_logprobs");
}

TEST_CASE("only a server in development mode reports its configuration", "[servers]") {
  const HttpServer closed(by_path({}));
  CHECK_FALSE(servers::read_server_info(client_of(closed)).shown);
  CHECK(servers::workers_of(client_of(closed)) == 0);
  const HttpServer open(by_path({{"/get_world_size", {200, R"({"world_size":4})"}},
                                 {"/server_info?config_format=json", {200, R"({"vllm_config":{
      "weight_transfer_config":{"backend":"nccl"}, "parallel_config":{"data_parallel_size":2},
      "model_config":{"logprobs_mode":"raw_logprobs"}}})"}}}));
  const auto info = servers::read_server_info(client_of(open));
  CHECK(info.shown);
  CHECK(info.takes_weights);
  CHECK(info.data_parallel == 2);
  CHECK(info.log_probs == "raw_logprobs");
  CHECK(servers::workers_of(client_of(open)) == 4);
  const HttpServer odd(by_path(
      {{"/get_world_size", {200, "[]"}},
       {"/server_info?config_format=json", {200, R"({"vllm_config":{"weight_transfer_config":null,
                                           "model_config":7}})"}}}));
  CHECK(servers::read_server_info(client_of(odd)).shown);
  CHECK_FALSE(servers::read_server_info(client_of(odd)).takes_weights);
  CHECK(servers::workers_of(client_of(odd)) == 0);
}

TEST_CASE("models are compared by the last part of their paths", "[servers]") {
  CHECK(servers::same_model("/models/Qwen2.5-7B/", "Qwen/Qwen2.5-7B"));
  CHECK(servers::same_model("", "Qwen/Qwen2.5-7B"));
  CHECK_FALSE(servers::same_model("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"));
}

TEST_CASE("vLLM versions determine when packing is announced", "[servers]") {
  using servers::packs_at_init;
  CHECK_FALSE(packs_at_init("0.22.0"));
  CHECK_FALSE(packs_at_init("0.27.1.dev3+g12"));
  CHECK(packs_at_init("0.28.0"));
  CHECK(packs_at_init("0.31.2rc1"));
  CHECK(packs_at_init("1.0"));
  CHECK(packs_at_init("main"));
  CHECK(packs_at_init(""));
}
