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

// The server of a job, from the wait for it to the generator that asks it.
class Server {
 public:
  struct Needs {
    std::int64_t prompt = 0, completion = 0;  // tokens at most
    bool new_rows = false;                    // the policy has tokens that its files have not
    std::vector<std::int64_t> gpus;           // that this rank computes on, by number
  };

  // All ranks make it together. Rank 0 waits and asks, the others are told. Throws
  // std::runtime_error with what to do for a server that cannot serve this job, and for one on a
  // GPU that trains.
  Server(const train::TrainConfig& config, const rendezvous::Contract& contract, const Needs& needs,
         comm::Comm& comm, c10::Device device);

  const std::vector<std::string>& notes() const { return notes_; }

  // The generator lives no longer than this does.
  std::unique_ptr<Generator> generator(const train::ModelSource& source, train::Learner& learner,
                                       train::Saver& saver, rollout::Wanted wanted);

 private:
  void recognise(const Needs& needs);
  void check_weights(const Needs& needs) const;
  void check_inside();
  void check_gpus(const std::vector<std::int64_t>& gpus) const;
  double patience() const;
  std::string start() const;
  bool sends_adapter() const { return config_.use_peft; }
  std::unique_ptr<WeightSync> adapter_sync(train::Saver& saver) const;
  std::unique_ptr<WeightSync> transfer_sync(train::Learner& learner) const;

  const train::TrainConfig& config_;
  const rendezvous::Contract& contract_;
  comm::Comm& comm_;
  c10::Device device_;
  nlohmann::json request_;  // what requests have besides
  servers::Caller caller_;
  servers::Facts facts_;
  std::int64_t workers_ = 0;  // 0: it does not say
  std::vector<std::string> notes_;
};

}  // namespace mgpu::rl
