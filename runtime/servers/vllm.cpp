#include "runtime/servers/vllm.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <thread>

namespace mgpu::servers {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kShort{10'000};

// Nothing where the server is up, else what was wrong.
std::optional<std::string> not_up(const Caller& server, milliseconds limit) {
  try {
    const auto answer = server.get_once("/health", limit);
    // The server of older TRL has /health/ only: it sends on, or knows nothing of it.
    if (answer.status < 400 || answer.status == 404) return std::nullopt;
    return fmt::format("status {}", answer.status);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

bool is_older_trl(const Caller& server) {
  const auto answer = server.get("/get_world_size/", kShort);
  return answer.status == 200 && json::parse(answer.body, nullptr, false).is_object();
}

}  // namespace

void wait_for(const Caller& server, const Waiting& waiting, const std::string& start,
              const Tell& tell) {
  const auto begin = Clock::now();
  const auto end = begin + waiting.limit;
  auto next = begin;
  while (const auto wrong = not_up(server, std::min(kShort, waiting.limit))) {
    const auto now = Clock::now();
    if (now + waiting.pause > end)
      throw std::runtime_error(fmt::format(
          "no server answered at {} within {:g} s (vllm_server_timeout): {}; start it "
          "with\n    {}",
          server.url(), static_cast<double>(waiting.limit.count()) / 1000, *wrong, start));
    if (now >= next) {
      tell(fmt::format("waiting for the server at {} ({}), {} s more at most", server.url(), *wrong,
                       std::chrono::ceil<std::chrono::seconds>(end - now).count()));
      next += waiting.every;
    }
    std::this_thread::sleep_for(waiting.pause);
  }
}

Facts recognise(const Caller& server, const std::string& start) {
  constexpr const char* kModels = "/v1/models";
  const auto answer = server.get(kModels, kShort);
  if (answer.status == 404 || answer.status / 100 == 3) {
    if (is_older_trl(server))
      throw std::runtime_error(
          fmt::format("{} is the server of an older TRL, whose /generate/ is not spoken; stop it "
                      "and start vLLM itself:\n    {}",
                      server.url(), start));
    throw std::runtime_error(fmt::format("{}; it is no vLLM. Start one with\n    {}",
                                         server.complaint(kModels, answer), start));
  }
  const auto said = server.json_of(kModels, answer);
  Facts facts;
  try {
    for (const auto& model : said.at("data")) {
      const auto parent = model.value("parent", json());
      if (parent.is_string()) {
        const auto root = model.value("root", json());
        facts.adapters.push_back({model.at("id"), root.is_string() ? std::string(root) : ""});
      } else if (facts.model.empty()) {
        facts.model = model.at("id");
        if (const auto root = model.value("root", json()); root.is_string()) facts.root = root;
        const auto longest = model.value("max_model_len", json());
        if (longest.is_number_integer()) facts.longest = longest;
      }
    }
  } catch (const json::exception&) {
    facts.model.clear();
  }
  if (facts.model.empty())
    throw std::runtime_error(
        fmt::format("{}{} names no model: {}", server.url(), kModels, message_in(answer.body)));
  return facts;
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
  // vLLM takes these ranks only.
  std::int64_t rank = 512;
  for (const std::int64_t allowed : {512, 320, 256, 128, 64, 32, 16, 8})
    if (allowed >= adapter_rank) rank = allowed;
  return fmt::format(
      "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve {} --port {} --enable-lora "
      "--max-lora-rank {} --logprobs-mode processed_logprobs",
      model, port, rank);
}

Inside look_inside(const Caller& server) {
  const auto answer = server.get("/server_info?config_format=json", kShort);
  const auto said = json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || !said.is_object()) return {};
  const auto config = said.value("vllm_config", json::object());
  const auto part = [&](const char* name) {
    return config.is_object() ? config.value(name, json()) : json();
  };
  Inside inside{.shown = true};
  inside.takes_weights = !part("weight_transfer_config").is_null();
  if (const auto parallel = part("parallel_config"); parallel.is_object()) {
    const auto copies = parallel.value("data_parallel_size", json());
    if (copies.is_number_integer()) inside.data_parallel = copies;
  }
  if (const auto model = part("model_config"); model.is_object()) {
    const auto mode = model.value("logprobs_mode", json());
    if (mode.is_string()) inside.log_probs = mode;
  }
  return inside;
}

std::int64_t workers_of(const Caller& server) {
  const auto answer = server.get("/get_world_size", kShort);
  if (answer.status != 200) return 0;
  const auto said = json::parse(answer.body, nullptr, false);
  const auto size = said.is_object() ? said.value("world_size", json()) : json();
  return size.is_number_integer() ? size.get<std::int64_t>() : 0;
}

bool packs_at_init(const std::string& version) {
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2) return true;
  return major > 0 || minor >= 28;
}

}  // namespace mgpu::servers
