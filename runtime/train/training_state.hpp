#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/parallel/shards.hpp"

// What a run needs to go on besides the model's files: the fp32 weights and the optimizer's
// moments, in pieces. Every rank writes its part into training_state/rank-R-of-W.safetensors:
//   master/NAME@BEGIN, first/NAME@BEGIN, second/NAME@BEGIN   elements [BEGIN, BEGIN + size) of NAME
// so that any number of ranks, at any ZeRO stage, can put together what it owns.
namespace mgpu::train {

checkpoint::FileRecord write_training_state(const std::string& checkpoint_folder,
                                            parallel::Shards& shards, optim::AdamW& optimizer,
                                            int rank, int world);

// Throws, naming the tensor and the range, if a piece is missing.
void read_training_state(const std::string& checkpoint_folder, optim::AdamW& optimizer);

}  // namespace mgpu::train
