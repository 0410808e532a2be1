#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/shards.hpp"

// The training state: what a resumed run needs besides the model's files, namely the state of the
// optimizer. Rank R of W writes its part, in pieces, into training_state/rank-R-of-W.safetensors.
// For every vector of the optimizer's state, for example `master`, `first` and `second` of AdamW:
//   VECTOR/NAME@BEGIN          elements [BEGIN, BEGIN + size) of NAME
// and, if it is in 8 bits (U8 codes in blocks of 256 elements, counted from the tensor's
// beginning),
//   VECTOR_scales/NAME@BEGIN   of the blocks that the elements lie in
// From these pieces any number of ranks, at any ZeRO stage, can assemble the parts they own.
namespace mgpu::train {

using NamedTensor = std::pair<std::string, at::Tensor>;

// The file of a rank, relative to the checkpoint, and its tensors: views of the optimizer's state.
std::string training_state_file(int rank, int world);
std::vector<NamedTensor> training_state_tensors(parallel::Shards& shards,
                                                const optim::Optimizer& optimizer, int rank,
                                                int world);
std::vector<checkpoint::TensorPlan> plan_of(const std::vector<NamedTensor>& tensors);

checkpoint::FileRecord write_training_state(const std::string& checkpoint_folder,
                                            parallel::Shards& shards,
                                            const optim::Optimizer& optimizer, int rank, int world);

// Fills the optimizer's state. It may have been saved in another precision than `optimizer` uses.
// 8-bit codes are restored bit for bit where the pieces did not cut their blocks, and within
// 8-bit rounding elsewhere. Throws if a piece is missing; the message names the tensor and the
// range.
void read_training_state(const std::string& checkpoint_folder, optim::Optimizer& optimizer);

}  // namespace mgpu::train
