// Answers of the servers that a training asks for scores and completions. The low 3 bits of the
// first byte select the request, the other bits the status and sizes; the rest is the body of every
// answer.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>

#include "runtime/http/client.hpp"
#include "runtime/rewards/external_reward.hpp"
#include "runtime/servers/adapters.hpp"
#include "runtime/servers/completions.hpp"
#include "runtime/servers/vllm.hpp"

namespace {

std::string_view answer_body;
unsigned answer_status = 200;

void require(bool what) {
  if (!what) std::abort();
}

}  // namespace

// In place of runtime/http/client.cpp, which needs a network.
namespace mgpu::http {

Response send_request(const Address&, const Request& request, Deadline, const std::stop_token&) {
  require(request.path.starts_with('/'));
  return {answer_status, std::string(answer_body)};
}

std::string Address::url() const {
  return "http://" + host + ":" + port + path;
}

}  // namespace mgpu::http

namespace {

using namespace mgpu;
using std::chrono_literals::operator""ms;

// An error is short and cannot control a terminal.
template <class Work>
void allow_refusal(Work work) {
  try {
    work();
  } catch (const std::runtime_error& e) {
    const std::string_view message = e.what();
    require(!message.empty() && message.size() < 2000);
    for (const char c : message) require(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
  }
}

void read_scores(std::size_t count) {
  allow_refusal(
      [&] { require(rewards::parse_scores(std::string(answer_body), count).size() == count); });
}

void read_completions(const servers::ServerClient& server, std::int64_t count) {
  servers::SamplingParams sampling;
  sampling.vocabulary = 1000;
  sampling.max_tokens = 64;
  allow_refusal([&] {
    const auto all = servers::complete(
        server, "model", {{.prompt = {1, 2, 3}, .count = count, .seed = 5}}, sampling, 1000ms);
    require(all && all->size() == 1 && all->front().size() == static_cast<std::size_t>(count));
    for (const auto& completion : all->front()) {
      require(completion.tokens.size() == completion.log_probs.size());
      require(completion.tokens.size() <= 64);
      for (const auto id : completion.tokens) require(id >= 0 && id < 1000);
    }
  });
}

void identify(const servers::ServerClient& server) {
  allow_refusal([&] {
    const auto served = servers::identify(server, "command");
    require(!served.model.empty());
    servers::same_model(served.root, "models/m");
  });
  allow_refusal([&] { servers::read_server_info(server); });
  allow_refusal([&] { servers::workers_of(server); });
  allow_refusal([&] {
    servers::wait_for(server, {.limit = 0ms, .every = 1ms, .pause = 1ms}, "command",
                      [](const std::string&) {});
  });
}

void load_adapter(const servers::ServerClient& server) {
  // Only the first version: a second one would delete the folder of the first.
  servers::Adapters adapters(server, "/nonexistent/mgpu-answers-fuzz", "command", "mark");
  allow_refusal([&] { adapters.load({"name", "/nonexistent/name"}); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size == 0) return 0;
  answer_body = std::string_view(reinterpret_cast<const char*>(input) + 1, size - 1);
  const unsigned count = input[0] >> 3 & 7;
  constexpr unsigned kStatus[] = {200, 200, 404, 422};
  answer_status = kStatus[input[0] >> 6];
  const servers::ServerClient server({.host = "h", .port = "8000", .path = ""}, {.tries = 1});
  switch (input[0] & 7) {
    case 0:
    case 1:
      read_scores(count);
      break;
    case 2:
    case 3:
      read_completions(server, 1 + count);
      break;
    case 4:
    case 5:
      identify(server);
      break;
    case 6:
      load_adapter(server);
      break;
    default:
      require(servers::error_message(std::string(answer_body)).find('\n') == std::string::npos);
  }
  return 0;
}
