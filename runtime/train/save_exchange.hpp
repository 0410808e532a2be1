#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "rendezvous/contract.hpp"
#include "rendezvous/store/client.hpp"
#include "runtime/checkpoint/safetensors.hpp"

namespace mgpu::train {

// What the ranks tell each other about one checkpoint that is written in the background: through
// the store, because the collectives belong to training. Waiting ends with a stop request.
//
//   other ranks: report(records)  ->  rank 0: collect(), publish, announce()  ->  published()
//            or: report_failure()
class SaveExchange {
 public:
  // `save` names the checkpoint among all of this attempt, `previous` the one before it, whose keys
  // are removed; all ranks use the same names. An empty name: there was none.
  SaveExchange(const rendezvous::Contract& contract, const std::string& save,
               const std::string& previous);

  // Sends the records of this rank's files to rank 0.
  void report(const std::vector<checkpoint::FileRecord>& own);
  // Reports to rank 0 that this rank cannot write its files. Empty: this rank fails with the error;
  // else rank 0 does, with this text after the rank's name.
  void report_failure(const std::string& error);
  // On rank 0: the records of the other ranks. Nullopt: a stop was requested, or a rank fails.
  std::optional<std::vector<checkpoint::FileRecord>> collect(const std::stop_token& stop);
  // On rank 0: whether the checkpoint was published or given up.
  void announce(bool published);
  // On the other ranks: waits for the announcement. False also if a stop was requested.
  bool published(const std::stop_token& stop);
  // On the other ranks: whether rank 0 has announced already that the checkpoint is given up. False
  // also if the store does not respond.
  bool is_given_up() noexcept;

 private:
  std::string key_of(const std::string& save) const;
  std::string key_of(int rank) const;
  bool wait_for(const std::string& key, const std::stop_token& stop);

  int rank_, world_;
  std::string attempt_, save_, previous_;
  std::unique_ptr<rendezvous::store::StoreClient> store_;  // null: there is one rank
};

}  // namespace mgpu::train
