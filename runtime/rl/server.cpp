#include "runtime/rl/server.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/comm/text.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/rl/recipe.hpp"
#include "runtime/rl/server_generator.hpp"
#include "runtime/rl/weight_sync.hpp"
#include "runtime/servers/addresses.hpp"
#include "runtime/servers/listeners.hpp"
#include "runtime/servers/nccl_transport.hpp"

namespace mgpu::rl {
namespace {

using nlohmann::json;
using train::GrpoValues;

servers::milliseconds seconds(double number) {
  return servers::milliseconds(static_cast<std::int64_t>(number * 1000));
}

// 0.0.0.0 means the host of rank 0, also for ranks on other nodes.
http::Address address_of(const train::TrainConfig& config, const rendezvous::Contract& contract) {
  auto address = server_address(config);
  if (address.host == "0.0.0.0" || address.host == "::")
    address.host = contract.group_world_size > 1 ? contract.leader_addr : "127.0.0.1";
  return address;
}

servers::SamplingParams sampling_params(rollout::GenerationSettings settings,
                                        std::int64_t vocabulary, const json& request) {
  return {.temperature = settings.sampling.temperature,
          .top_p = settings.sampling.top_p,
          .min_p = settings.sampling.min_p,
          .repetition_penalty = settings.repetition_penalty,
          .top_k = settings.sampling.top_k,
          .max_tokens = settings.max_tokens,
          .stop_tokens = std::move(settings.stop_tokens),
          .stop_texts = std::move(settings.stop_texts),
          .more = request,
          .vocabulary = vocabulary};
}

}  // namespace

Server::Server(const train::TrainConfig& config, const rendezvous::Contract& contract,
               const Requirements& required, comm::Comm& comm, c10::Device device)
    : config_(config),
      contract_(contract),
      comm_(comm),
      device_(device),
      request_(server_request(config)),
      client_(address_of(config, contract)) {
  check_weights(required);
  if (comm_.rank() == 0) identify(required);
  const json own{{"model", served_.model}, {"workers", workers_}};
  const auto shared =
      json::parse(comm::share_text(comm_, own.dump(), device_, "the server's model and workers"));
  served_.model = shared.at("model");
  workers_ = shared.at("workers");
  check_gpus(required.gpus);
}

// Seconds that a rank may take while the other ranks wait for it in a collective.
double Server::rank_time_limit() const {
  const auto all = static_cast<double>(config_.ddp_timeout);
  return comm_.world() > 1 ? .8 * all : all;
}

// Rejects recipes that no server supports.
void Server::check_weights(const Requirements& required) const {
  if (required.new_rows)
    throw std::runtime_error(
        "vllm_mode: server: the policy has new tokens, for which the server's model has no "
        "embeddings; "
        "save the model with the new tokens first, or set vllm_mode: colocate");
  if (sends_adapter() && !config_.lora_modules_to_save.empty())
    throw std::runtime_error(
        "vllm_mode: server: vLLM does not support adapters with lora_modules_to_save; remove "
        "lora_modules_to_save, or set vllm_mode: colocate");
  if (sends_adapter() && config_.use_dora)
    throw std::runtime_error(
        "vllm_mode: server: vLLM does not support DoRA; remove use_dora, or set vllm_mode: "
        "colocate");
  if (!sends_adapter() && !device_.is_cuda())
    throw std::runtime_error(
        "vllm_mode: server: full weights are sent to a server over NCCL, which needs GPUs, but "
        "this job "
        "runs on CPUs; train an adapter (lora_r: 16), or set vllm_mode: colocate");
}

std::string Server::start_command() const {
  const auto& address = client_.address();
  const auto command = servers::start_command(config_.model_name_or_path, address.port,
                                              sends_adapter() ? config_.lora_r : 0);
  return address.tls ? command + " --ssl-keyfile KEY.pem --ssl-certfile CERT.pem" : command;
}

void Server::identify(const Requirements& required) {
  auto limit = GrpoValues(config_).number("vllm_server_timeout").value_or(240);
  if (limit > rank_time_limit()) {
    limit = rank_time_limit();
    notes_.push_back(
        fmt::format("vllm_server_timeout is reduced to {:.0f} s: the other ranks wait at most {} s "
                    "(ddp_timeout)",
                    limit, config_.ddp_timeout));
  }
  servers::wait_for(client_, {.limit = seconds(limit)}, start_command(),
                    [](const std::string& line) { std::cerr << "mgpu-train: " << line << "\n"; });
  served_ = servers::identify(client_, start_command());
  if (const auto all = required.prompt + required.completion;
      served_.longest > 0 && served_.longest < all)
    throw std::runtime_error(fmt::format(
        "the server at {} supports {} tokens (max_model_len), but prompts of up to {} and "
        "completions of up to {} tokens need {}; start it with --max-model-len {}",
        client_.url(), served_.longest, required.prompt, required.completion, all, all));
  notes_.push_back(fmt::format("completions are generated by {} on the server at {}", served_.model,
                               client_.url()));
  if (!servers::same_model(served_.root, config_.model_name_or_path))
    notes_.push_back(fmt::format("warning: the server runs {}, but the trained model is {}",
                                 served_.root, config_.model_name_or_path));
  workers_ = servers::workers_of(client_);
  check_server_info();
}

void Server::check_server_info() {
  const auto info = servers::read_server_info(client_);
  if (!sends_adapter()) {
    if (!info.shown || workers_ == 0)
      throw std::runtime_error(
          fmt::format("the server at {} does not accept weights: it is not in development mode "
                      "(it has no /server_info); start it with\n    {}",
                      client_.url(), start_command()));
    if (!info.takes_weights)
      throw std::runtime_error(fmt::format(
          "the server at {} has no weight-transfer engine and cannot receive the trained weights; "
          "start it with\n    {}",
          client_.url(), start_command()));
  }
  if (sends_adapter() && info.data_parallel > 1)
    throw std::runtime_error(fmt::format(
        "the server at {} runs {} copies of the model, but only one would get the adapter; start "
        "it without --data-parallel-size",
        client_.url(), info.data_parallel));
  if (!info.shown)
    notes_.push_back(
        "the server does not report its logprobs mode; sampling/importance_sampling_ratio is only "
        "correct with --logprobs-mode processed_logprobs");
  else if (info.log_probs != "processed_logprobs")
    notes_.push_back(
        fmt::format("warning: the server's logprobs mode is {}, so its log-probs do not belong to "
                    "the distribution "
                    "it samples from; start it with --logprobs-mode processed_logprobs",
                    info.log_probs.empty() ? "unknown" : info.log_probs));
}

void Server::check_gpus(const std::vector<std::int64_t>& gpus) const {
  if (!device_.is_cuda() || !servers::is_this_host(client_.address().host)) return;
  std::optional<std::string> visible;
  if (const char* set = std::getenv(rendezvous::variable::kCudaVisibleDevices)) visible = set;
  const auto port = static_cast<std::uint16_t>(std::stoi(client_.address().port));
  const auto found = servers::listeners("/proc", port);
  for (const auto number : gpus) {
    const auto gpu = servers::gpu_of_rank(visible, static_cast<int>(number));
    if (const auto error = servers::shared_gpu_error(
            found, workers_, gpu, static_cast<int>(contract_.rank), client_.url()))
      throw std::runtime_error(*error);
  }
}

std::unique_ptr<WeightSync> Server::adapter_sync(train::Saver& saver) const {
  std::unique_ptr<servers::Adapters> adapters;
  if (comm_.rank() == 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    adapters = std::make_unique<servers::Adapters>(
        client_, config_.output_dir + "/server_adapters", start_command(),
        fmt::format("{:x}-{:x}", now, static_cast<unsigned>(::getpid())));
    adapters->clean(served_);
  }
  return make_adapter_sync(std::move(adapters), saver, comm_, device_);
}

std::unique_ptr<WeightSync> Server::transfer_sync(train::Learner& learner) const {
  TransferOptions options{.server = client_, .model = served_.model, .group = {}};
  std::unique_ptr<servers::Transport> transport;
  if (comm_.rank() == 0) {
    const auto port = GrpoValues(config_).whole("vllm_group_port").value_or(51216);
    const auto answer = rendezvous::parse_untrusted_json(client_.get("/version", seconds(10)).body);
    const auto version =
        answer.is_object() ? answer.value("version", std::string()) : std::string();
    options.group = {.address = servers::local_address_for(client_.address().host),
                     .port = static_cast<int>(port),
                     .workers = workers_,
                     .packs_at_init = servers::packs_at_init(version)};
    transport = servers::make_nccl_transport(options.group, client_.address(), device_);
  }
  return make_transfer_sync(options, std::move(transport), learner.shards(), comm_);
}

std::unique_ptr<Generator> Server::generator(const train::ModelSource& source,
                                             train::Learner& learner, train::Saver& saver,
                                             rollout::GenerationSettings settings) {
  return std::make_unique<ServerGenerator>(
      client_, sampling_params(std::move(settings), source.config.vocab_size, request_),
      seconds(rank_time_limit()), sends_adapter() ? adapter_sync(saver) : transfer_sync(learner));
}

}  // namespace mgpu::rl
