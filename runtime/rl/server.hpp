#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/config/config.hpp"
#include "runtime/rl/generator.hpp"
#include "runtime/servers/vllm.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/saver.hpp"

namespace mgpu::rl {

class WeightSync;

// The external server that generates for a job. It waits for the server, checks it and creates the
// generator that sends requests to it.
class Server {
 public:
  struct Requirements {
    std::int64_t prompt = 0, completion = 0;  // maximum tokens
    bool new_rows = false;                    // the policy has tokens that are missing in its files
    std::vector<std::int64_t> gpus;           // GPU numbers on which this rank computes
  };

  // All ranks construct it together. Rank 0 waits for the server and queries it, then shares the
  // result with the others. Throws std::runtime_error with what to do if the server cannot serve
  // this job or runs on a GPU that trains.
  Server(const train::TrainConfig& config, const rendezvous::Contract& contract,
         const Requirements& required, comm::Comm& comm, c10::Device device);

  const std::vector<std::string>& notes() const { return notes_; }

  // The Server must outlive the generator.
  std::unique_ptr<Generator> generator(const train::ModelSource& source, train::Learner& learner,
                                       train::Saver& saver, rollout::GenerationSettings settings);

 private:
  void identify(const Requirements& required);
  void check_weights(const Requirements& required) const;
  void check_server_info();
  void check_gpus(const std::vector<std::int64_t>& gpus) const;
  double rank_time_limit() const;
  std::string start_command() const;
  bool sends_adapter() const { return config_.use_peft; }
  std::unique_ptr<WeightSync> adapter_sync(train::Saver& saver) const;
  std::unique_ptr<WeightSync> transfer_sync(train::Learner& learner) const;

  const train::TrainConfig& config_;
  const rendezvous::Contract& contract_;
  comm::Comm& comm_;
  c10::Device device_;
  nlohmann::json request_;  // additional fields of every request
  servers::ServerClient client_;
  servers::ServedModel served_;
  std::int64_t workers_ = 0;  // 0: unknown
  std::vector<std::string> notes_;
};

}  // namespace mgpu::rl
