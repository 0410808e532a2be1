#include "runtime/rl/weight_sync.hpp"

#include <iostream>
#include <utility>
#include <vector>

#include "runtime/comm/text.hpp"

namespace mgpu::rl {
namespace {

class AdapterSync : public WeightSync {
 public:
  AdapterSync(std::unique_ptr<servers::Adapters> adapters, train::Saver& saver, comm::Comm& comm,
              c10::Device device)
      : adapters_(std::move(adapters)), saver_(saver), comm_(comm), device_(device) {}

  std::string send(std::int64_t step) override {
    servers::LoadedAdapter version;
    if (adapters_) version = adapters_->next(step);
    saver_.write_adapter(version.folder);
    if (adapters_) adapters_->load(version);
    // Ranks get the name only after the server has loaded the adapter.
    return comm::share_text(comm_, version.name, device_, "the adapter's name on the server");
  }

  void finish() override {
    if (!adapters_) return;
    try {
      adapters_->finish();
    } catch (const std::runtime_error& e) {  // training is done and a loaded adapter does no harm
      std::cerr << "mgpu-train: cannot remove the last adapter from the server: " << e.what()
                << "\n";
    }
  }

 private:
  std::unique_ptr<servers::Adapters> adapters_;
  train::Saver& saver_;
  comm::Comm& comm_;
  c10::Device device_;
};

// In the order of Shards::visit. fp32 is sent in bf16.
std::vector<servers::SentTensor> tensors_of(const parallel::Shards& shards) {
  const auto dtype = shards.dtype() == at::kHalf ? at::kHalf : at::kBFloat16;
  std::vector<servers::SentTensor> tensors;
  const auto& units = shards.layout().units;
  for (const auto& unit : units)
    for (const auto& slot : unit.trained.slots) tensors.push_back({slot.name, slot.shape, dtype});
  for (const auto& unit : units)
    for (const auto& slot : unit.frozen.slots) tensors.push_back({slot.name, slot.shape, dtype});
  return tensors;
}

class TransferSync : public WeightSync {
 public:
  TransferSync(const TransferOptions& options, std::unique_ptr<servers::Transport> transport,
               parallel::Shards& shards, comm::Comm& comm)
      : model_(options.model), shards_(shards), comm_(comm) {
    if (transport)
      transfer_ = std::make_unique<servers::WeightTransfer>(
          options.server, options.group, tensors_of(shards), std::move(transport));
  }

  std::string send(std::int64_t) override {
    if (transfer_) transfer_->begin();
    const auto add = [this](const std::string& name, const at::Tensor& value) {
      if (transfer_) transfer_->add(name, value);
    };
    shards_.visit(true, add);
    shards_.visit(false, add);
    if (transfer_) transfer_->finish();
    comm_.barrier("the weights on the server");
    return model_;
  }

  void finish() override {}

 private:
  std::string model_;
  parallel::Shards& shards_;
  comm::Comm& comm_;
  std::unique_ptr<servers::WeightTransfer> transfer_;
};

}  // namespace

std::unique_ptr<WeightSync> make_adapter_sync(std::unique_ptr<servers::Adapters> adapters,
                                              train::Saver& saver, comm::Comm& comm,
                                              c10::Device device) {
  return std::make_unique<AdapterSync>(std::move(adapters), saver, comm, device);
}

std::unique_ptr<WeightSync> make_transfer_sync(const TransferOptions& options,
                                               std::unique_ptr<servers::Transport> transport,
                                               parallel::Shards& shards, comm::Comm& comm) {
  return std::make_unique<TransferSync>(options, std::move(transport), shards, comm);
}

}  // namespace mgpu::rl
