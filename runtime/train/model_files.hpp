#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/final_model.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {

// The files of the trained model: a whole model in Hugging Face's layout, or an adapter in PEFT's.
// Adapters are saved in fp32, as PEFT does even beside a 16-bit base: they are small.
class ModelFiles {
 public:
  // `dtype`: in which the model computes.
  ModelFiles(const TrainConfig& config, const ModelSource& source, at::ScalarType dtype);

  // The folder of the weights within that of a checkpoint. As in PEFT, an adapter whose name is not
  // "default" is stored in a subfolder of that name.
  std::string folder(const std::string& checkpoint) const;
  // The name of a file of the weights, relative to the checkpoint.
  std::string name_of(const std::string& file) const;

  const char* stem() const;      // of the names of these files
  at::ScalarType dtype() const;  // of the tensors in them
  std::vector<checkpoint::TensorPlan> plan(const parallel::Shards& shards) const;
  // Calls visit(name in the file, whole tensor) for what plan() lists: for an adapter, the master
  // weights. All ranks call it together; see visit_weights and visit_master_weights.
  void visit(parallel::Shards& shards, const optim::Optimizer& optimizer,
             const VisitTensor& visit) const;
  // Writes the weights into the folder of a checkpoint. All ranks call it together; only rank 0
  // writes and returns records.
  std::vector<checkpoint::FileRecord> write(const std::string& checkpoint, parallel::Shards& shards,
                                            const optim::Optimizer& optimizer, int rank) const;
  // Writes only an adapter, with the values that the model computes with, and its configuration.
  void write_adapter(const std::string& folder, parallel::Shards& shards, int rank) const;

  // PiSSA: see begin_with_pissa.
  void set_appended(Appended appended) { appended_ = std::move(appended); }
  const Appended& appended() const { return appended_; }

  // The configuration and the tokenizer.
  void write_metadata(const std::string& checkpoint) const;

  // An adapter replaces a whole model that an earlier run left, but not its own base model.
  checkpoint::FinalModelDraft::Replaced replaced_models() const;

 private:
  Rename rename() const;  // from the names in the model to those in the files
  std::unique_ptr<checkpoint::WeightsWriter> writer(const std::string& folder,
                                                    const parallel::Shards& shards) const;
  void write_adapter_config(const std::string& folder) const;

  const TrainConfig& config_;
  const ModelSource& source_;
  at::ScalarType dtype_;
  Appended appended_;
};

}  // namespace mgpu::train
