#include "runtime/servers/vllm.hpp"

#include "tests/runtime/servers/servers_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using servers::recognise;

TEST_CASE("a vLLM says its model, how much it reads and which adapters it has", "[servers]") {
  const HttpServer server(by_path({{"/v1/models", {200, R"({"data":[
      {"id":"a-1","root":"/out/a-1","parent":"base"},
      {"id":"base","root":"base","parent":null,"max_model_len":4096},
      {"id":"second-name","root":"base","parent":null}]})"}}}));
  const auto facts = recognise(caller_of(server), "vllm serve");
  CHECK(facts == servers::Facts{"base", "base", 4096, {{"a-1", "/out/a-1"}}});
}

TEST_CASE("what is no vLLM is refused with the command that starts one", "[servers]") {
  const auto told = [](std::map<std::string, HttpAnswer> known) {
    const HttpServer server(by_path(std::move(known)));
    return message_of([&] { recognise(caller_of(server), "vllm serve M"); });
  };
  CHECK_THAT(told({{"/health/", {200, "{}"}}, {"/get_world_size/", {200, R"({"world_size":1})"}}}),
             Contains("the server of an older TRL") && Contains("vllm serve M"));
  CHECK_THAT(told({}), Contains("status 404") && Contains("no vLLM") && Contains("vllm serve M"));
  CHECK_THAT(told({{"/v1/models", {401, R"({"error":"Unauthorized"})"}}}),
             Contains("status 401: Unauthorized"));
  for (const char* nothing : {"{}", R"({"data":[]})", R"({"data":[{"id":7}]})", "[]"}) {
    CAPTURE(nothing);
    CHECK_THAT(told({{"/v1/models", {200, nothing}}}), Contains("names no model"));
  }
}

TEST_CASE("a server that comes up is waited for, one that does not is told", "[servers]") {
  int asked = 0;
  const HttpServer server(
      [&](const HttpQuestion&) { return HttpAnswer{++asked < 4 ? 503U : 200U}; });
  std::vector<std::string> lines;
  const auto tell = [&](const std::string& line) { lines.push_back(line); };
  const auto caller = caller_of(server);
  servers::wait_for(caller, {.limit = 10s, .every = 1h, .pause = 1ms}, "vllm serve M", tell);
  CHECK(asked == 4);
  REQUIRE(lines.size() == 1);  // at once, and after an hour again
  CHECK_THAT(lines[0], Contains("waiting for the server at " + server.url()) &&
                           Contains("status 503") && Contains("10 s more at most"));
  lines.clear();
  servers::wait_for(caller, {.limit = 10s, .every = 1h, .pause = 1ms}, "vllm serve M", tell);
  CHECK(lines.empty());
  asked = -1'000'000;
  CHECK_THAT(message_of([&] {
               servers::wait_for(caller, {.limit = 50ms, .every = 10ms, .pause = 5ms},
                                 "vllm serve M", tell);
             }),
             Contains("no server answered at " + server.url() + " within 0.05 s") &&
                 Contains("status 503") && Contains("vllm serve M"));
  CHECK(lines.size() >= 3);
}

TEST_CASE("the command that starts a server has what a job needs of it", "[servers]") {
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

TEST_CASE("a server in development mode is looked into, another shows nothing", "[servers]") {
  const HttpServer closed(by_path({}));
  CHECK_FALSE(servers::look_inside(caller_of(closed)).shown);
  CHECK(servers::workers_of(caller_of(closed)) == 0);
  const HttpServer open(by_path({{"/get_world_size", {200, R"({"world_size":4})"}},
                                 {"/server_info?config_format=json", {200, R"({"vllm_config":{
      "weight_transfer_config":{"backend":"nccl"}, "parallel_config":{"data_parallel_size":2},
      "model_config":{"logprobs_mode":"raw_logprobs"}}})"}}}));
  const auto inside = servers::look_inside(caller_of(open));
  CHECK(inside.shown);
  CHECK(inside.takes_weights);
  CHECK(inside.data_parallel == 2);
  CHECK(inside.log_probs == "raw_logprobs");
  CHECK(servers::workers_of(caller_of(open)) == 4);
  const HttpServer odd(by_path(
      {{"/get_world_size", {200, "[]"}},
       {"/server_info?config_format=json", {200, R"({"vllm_config":{"weight_transfer_config":null,
                                           "model_config":7}})"}}}));
  CHECK(servers::look_inside(caller_of(odd)).shown);
  CHECK_FALSE(servers::look_inside(caller_of(odd)).takes_weights);
  CHECK(servers::workers_of(caller_of(odd)) == 0);
}

TEST_CASE("a server with another model than ours is known by its name's last part", "[servers]") {
  CHECK(servers::same_model("/models/Qwen2.5-7B/", "Qwen/Qwen2.5-7B"));
  CHECK(servers::same_model("", "Qwen/Qwen2.5-7B"));
  CHECK_FALSE(servers::same_model("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"));
}

TEST_CASE("versions say when packing is agreed upon", "[servers]") {
  using servers::packs_at_init;
  CHECK_FALSE(packs_at_init("0.22.0"));
  CHECK_FALSE(packs_at_init("0.27.1.dev3+g12"));
  CHECK(packs_at_init("0.28.0"));
  CHECK(packs_at_init("0.31.2rc1"));
  CHECK(packs_at_init("1.0"));
  CHECK(packs_at_init("main"));
  CHECK(packs_at_init(""));
}
