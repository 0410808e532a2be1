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

#include "runtime/comm/text.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/rl/recipe.hpp"
#include "runtime/rl/server_generator.hpp"
#include "runtime/rl/weight_sync.hpp"
#include "runtime/servers/listeners.hpp"
#include "runtime/servers/nccl_transport.hpp"

namespace mgpu::rl {
namespace {

using nlohmann::json;
using train::GrpoValues;

servers::milliseconds seconds(double number) {
  return servers::milliseconds(static_cast<std::int64_t>(number * 1000));
}

// 0.0.0.0 is the host of rank 0, wherever the others are.
http::Address address_of(const train::TrainConfig& config, const rendezvous::Contract& contract) {
  auto address = server_address(config);
  if (address.host == "0.0.0.0" || address.host == "::")
    address.host = contract.group_world_size > 1 ? contract.master_addr : "127.0.0.1";
  return address;
}

servers::Drawing drawing_of(rollout::Wanted wanted, std::int64_t vocabulary, const json& request) {
  return {.temperature = wanted.sampling.temperature,
          .top_p = wanted.sampling.top_p,
          .min_p = wanted.sampling.min_p,
          .repetition_penalty = wanted.repetition_penalty,
          .top_k = wanted.sampling.top_k,
          .most_tokens = wanted.most_tokens,
          .stop_tokens = std::move(wanted.stop_tokens),
          .stop_texts = std::move(wanted.stop_texts),
          .more = request,
          .vocabulary = vocabulary};
}

}  // namespace

Server::Server(const train::TrainConfig& config, const rendezvous::Contract& contract,
               const Needs& needs, comm::Comm& comm, c10::Device device)
    : config_(config),
      contract_(contract),
      comm_(comm),
      device_(device),
      request_(server_request(config)),
      caller_(address_of(config, contract)) {
  check_weights(needs);
  if (comm_.rank() == 0) recognise(needs);
  const json told{{"model", facts_.model}, {"workers", workers_}};
  const auto shared =
      json::parse(comm::share_text(comm_, told.dump(), device_, "what the server says of itself"));
  facts_.model = shared.at("model");
  workers_ = shared.at("workers");
  check_gpus(needs.gpus);
}

// Seconds that a rank may take while the others wait for it in a collective.
double Server::patience() const {
  const auto all = static_cast<double>(config_.ddp_timeout);
  return comm_.world() > 1 ? .8 * all : all;
}

// What no server could do for this recipe.
void Server::check_weights(const Needs& needs) const {
  if (needs.new_rows)
    throw std::runtime_error(
        "vllm_mode: server: the policy has new tokens, for which the server's model has no rows; "
        "save the model with them first, or leave vllm_mode out");
  if (sends_adapter() && !config_.lora_modules_to_save.empty())
    throw std::runtime_error(
        "vllm_mode: server: vLLM takes no adapters with lora_modules_to_save; leave these out, or "
        "vllm_mode");
  if (!sends_adapter() && !device_.is_cuda())
    throw std::runtime_error(
        "vllm_mode: server: all weights reach a server over NCCL, which needs GPUs, and this job "
        "runs on CPUs; train an adapter (lora_r: 16), or leave vllm_mode out");
}

std::string Server::start() const {
  return servers::start_command(config_.model_name_or_path, caller_.address().port,
                                sends_adapter() ? config_.lora_r : 0);
}

void Server::recognise(const Needs& needs) {
  auto limit = GrpoValues(config_).number("vllm_server_timeout").value_or(240);
  if (limit > patience()) {
    limit = patience();
    notes_.push_back(
        fmt::format("vllm_server_timeout is cut to {:.0f} s: the other ranks wait for {} s "
                    "(ddp_timeout)",
                    limit, config_.ddp_timeout));
  }
  servers::wait_for(caller_, {.limit = seconds(limit)}, start(),
                    [](const std::string& line) { std::cerr << "mgpu-train: " << line << "\n"; });
  facts_ = servers::recognise(caller_, start());
  if (const auto all = needs.prompt + needs.completion; facts_.longest > 0 && facts_.longest < all)
    throw std::runtime_error(fmt::format(
        "the server at {} reads {} tokens (max_model_len), and prompts of up to {} with "
        "completions of up to {} have {}; start it with --max-model-len {}",
        caller_.url(), facts_.longest, needs.prompt, needs.completion, all, all));
  notes_.push_back(
      fmt::format("completions come from {} by the server at {}", facts_.model, caller_.url()));
  if (!servers::same_model(facts_.root, config_.model_name_or_path))
    notes_.push_back(fmt::format("warning: the server has {}, and what learns is {}", facts_.root,
                                 config_.model_name_or_path));
  workers_ = servers::workers_of(caller_);
  check_inside();
}

void Server::check_inside() {
  const auto inside = servers::look_inside(caller_);
  if (!sends_adapter()) {
    if (!inside.shown || workers_ == 0)
      throw std::runtime_error(
          fmt::format("the server at {} takes no weights: it is not in development mode "
                      "(/server_info is not there); start it with\n    {}",
                      caller_.url(), start()));
    if (!inside.takes_weights)
      throw std::runtime_error(fmt::format(
          "the server at {} has no weight-transfer engine, so the weights that learn cannot reach "
          "it; start it with\n    {}",
          caller_.url(), start()));
  }
  if (sends_adapter() && inside.data_parallel > 1)
    throw std::runtime_error(fmt::format(
        "the server at {} runs {} copies of the model, of which one would get the adapter; start "
        "it without --data-parallel-size",
        caller_.url(), inside.data_parallel));
  if (!inside.shown)
    notes_.push_back(
        "the server does not say its logprobs mode; with any but --logprobs-mode "
        "processed_logprobs sampling/importance_sampling_ratio is not what it seems");
  else if (inside.log_probs != "processed_logprobs")
    notes_.push_back(fmt::format(
        "warning: the server's logprobs mode is {}, so its log-probs are not those of what it drew "
        "from; start it with --logprobs-mode processed_logprobs",
        inside.log_probs.empty() ? "not known" : inside.log_probs));
}

void Server::check_gpus(const std::vector<std::int64_t>& gpus) const {
  if (!device_.is_cuda() || !servers::is_this_host(caller_.address().host)) return;
  std::optional<std::string> visible;
  if (const char* set = std::getenv(rendezvous::variable::kCudaVisibleDevices)) visible = set;
  const auto port = static_cast<std::uint16_t>(std::stoi(caller_.address().port));
  const auto found = servers::listeners("/proc", port);
  for (const auto number : gpus) {
    const auto gpu = servers::gpu_of_rank(visible, static_cast<int>(number));
    if (const auto* user = servers::user_of(found, workers_, gpu))
      throw std::runtime_error(fmt::format(
          "GPU {} is used by rank {} and by the server at {} ({}, pid {}); give them different "
          "ones with CUDA_VISIBLE_DEVICES, or use vllm_mode: colocate, where our own engine "
          "generates on the GPUs that train",
          gpu, contract_.rank, caller_.url(), user->name, user->pid));
  }
}

std::unique_ptr<WeightSync> Server::adapter_sync(train::Saver& saver) const {
  std::unique_ptr<servers::Adapters> adapters;
  if (comm_.rank() == 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    adapters = std::make_unique<servers::Adapters>(
        caller_, config_.output_dir + "/server_adapters", start(),
        fmt::format("{:x}-{:x}", now, static_cast<unsigned>(::getpid())));
    adapters->clean(facts_);
  }
  return make_adapter_sync(std::move(adapters), saver, comm_, device_);
}

std::unique_ptr<WeightSync> Server::transfer_sync(train::Learner& learner) const {
  TransferOptions options{.server = caller_, .model = facts_.model, .meeting = {}};
  std::unique_ptr<servers::Transport> transport;
  if (comm_.rank() == 0) {
    const auto port = GrpoValues(config_).whole("vllm_group_port").value_or(51216);
    const auto said = json::parse(caller_.get("/version", seconds(10)).body, nullptr, false);
    const auto version = said.is_object() ? said.value("version", std::string()) : std::string();
    options.meeting = {.address = servers::address_towards(caller_.address().host),
                       .port = static_cast<int>(port),
                       .workers = workers_,
                       .packs_at_init = servers::packs_at_init(version)};
    transport = servers::make_nccl_transport(options.meeting, device_);
  }
  return make_transfer_sync(options, std::move(transport), learner.shards(), comm_);
}

std::unique_ptr<Generator> Server::generator(const train::ModelSource& source,
                                             train::Learner& learner, train::Saver& saver,
                                             rollout::Wanted wanted) {
  return std::make_unique<ServerGenerator>(
      caller_, drawing_of(std::move(wanted), source.config.vocab_size, request_),
      seconds(patience()), sends_adapter() ? adapter_sync(saver) : transfer_sync(learner));
}

}  // namespace mgpu::rl
