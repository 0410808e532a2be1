#include "runtime/servers/vllm.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <thread>

#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::servers {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kShort{10'000};

// Why the server is not ready; nothing if it is. Throws if it cannot become so.
std::optional<std::string> health_problem(const ServerClient& server, milliseconds limit) {
  try {
    const auto answer = server.get_once("/health", limit);
    // Old TRL servers have only /health/: they redirect or answer 404.
    if (answer.status < 400 || answer.status == 404) return std::nullopt;
    return fmt::format("status {}", answer.status);
  } catch (const http::Unreachable& e) {
    return e.what();
  } catch (const http::TimedOut& e) {
    return e.what();
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(fmt::format("{}: {}", server.url(), e.what()));
  }
}

bool is_old_trl_server(const ServerClient& server) {
  const auto answer = server.get("/get_world_size/", kShort);
  return answer.status == 200 && rendezvous::parse_untrusted_json(answer.body).is_object();
}

}  // namespace

void wait_for(const ServerClient& server, const WaitOptions& options, const std::string& command,
              const PrintLine& print) {
  const auto begin = Clock::now();
  const auto end = begin + options.limit;
  auto next = begin;
  while (const auto problem = health_problem(server, std::min(kShort, options.limit))) {
    const auto now = Clock::now();
    if (now + options.pause > end)
      throw std::runtime_error(fmt::format(
          "no server answered at {} within {:g} s (vllm_server_timeout): {}; start it "
          "with\n    {}",
          server.url(), static_cast<double>(options.limit.count()) / 1000, *problem, command));
    if (now >= next) {
      print(fmt::format("waiting for the server at {} ({}), for at most {} s more", server.url(),
                        *problem, std::chrono::ceil<std::chrono::seconds>(end - now).count()));
      next += options.every;
    }
    std::this_thread::sleep_for(options.pause);
  }
}

ServedModel identify(const ServerClient& server, const std::string& command) {
  constexpr const char* kModels = "/v1/models";
  const auto answer = server.get(kModels, kShort);
  if (answer.status == 404 || answer.status / 100 == 3) {
    if (is_old_trl_server(server))
      throw std::runtime_error(fmt::format(
          "{} is the server of an older TRL, whose /generate/ is not supported; stop it "
          "and start vLLM itself:\n    {}",
          server.url(), command));
    throw std::runtime_error(fmt::format("{}; it is not a vLLM server; start one with\n    {}",
                                         server.error_text(kModels, answer), command));
  }
  const auto parsed = server.json_of(kModels, answer);
  ServedModel served;
  try {
    for (const auto& model : parsed.at("data")) {
      const auto parent = model.value("parent", json());
      if (parent.is_string()) {
        const auto root = model.value("root", json());
        served.adapters.push_back({model.at("id"), root.is_string() ? std::string(root) : ""});
      } else if (served.model.empty()) {
        served.model = model.at("id");
        if (const auto root = model.value("root", json()); root.is_string()) served.root = root;
        const auto longest = model.value("max_model_len", json());
        if (longest.is_number_integer()) served.longest = longest;
      }
    }
  } catch (const json::exception&) {
    served.model.clear();
  }
  if (served.model.empty())
    throw std::runtime_error(
        fmt::format("{}{} lists no model: {}", server.url(), kModels, error_message(answer.body)));
  return served;
}

bool same_model(const std::string& root, const std::string& ours) {
  const auto last = [](std::string path) {
    while (path.ends_with('/')) path.pop_back();
    return path.substr(path.rfind('/') + 1);
  };
  return root.empty() || last(root) == last(ours);
}

std::string start_command(const std::string& model, const std::string& port,
                          std::int64_t adapter_rank) {
  if (adapter_rank == 0)
    return fmt::format(
        "VLLM_SERVER_DEV_MODE=1 vllm serve {} --port {} --weight-transfer-config "
        "'{{\"backend\":\"nccl\"}}' --logprobs-mode processed_logprobs",
        model, port);
  // vLLM supports only these ranks.
  std::int64_t rank = 512;
  for (const std::int64_t allowed : {512, 320, 256, 128, 64, 32, 16, 8})
    if (allowed >= adapter_rank) rank = allowed;
  return fmt::format(
      "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve {} --port {} --enable-lora "
      "--max-lora-rank {} --logprobs-mode processed_logprobs",
      model, port, rank);
}

ServerInfo read_server_info(const ServerClient& server) {
  const auto answer = server.get("/server_info?config_format=json", kShort);
  const auto parsed = rendezvous::parse_untrusted_json(answer.body);
  if (answer.status != 200 || !parsed.is_object()) return {};
  const auto config = parsed.value("vllm_config", json::object());
  const auto part = [&](const char* name) {
    return config.is_object() ? config.value(name, json()) : json();
  };
  ServerInfo info{.shown = true};
  info.takes_weights = !part("weight_transfer_config").is_null();
  if (const auto parallel = part("parallel_config"); parallel.is_object()) {
    const auto copies = parallel.value("data_parallel_size", json());
    if (copies.is_number_integer()) info.data_parallel = copies;
  }
  if (const auto model = part("model_config"); model.is_object()) {
    const auto mode = model.value("logprobs_mode", json());
    if (mode.is_string()) info.log_probs = mode;
  }
  return info;
}

std::int64_t workers_of(const ServerClient& server) {
  const auto answer = server.get("/get_world_size", kShort);
  if (answer.status != 200) return 0;
  const auto parsed = rendezvous::parse_untrusted_json(answer.body);
  const auto size = parsed.is_object() ? parsed.value("world_size", json()) : json();
  return size.is_number_integer() ? size.get<std::int64_t>() : 0;
}

bool packs_at_init(const std::string& version) {
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2) return true;
  return major > 0 || minor >= 28;
}

}  // namespace mgpu::servers
