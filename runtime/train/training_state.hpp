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
// and for moments in 8 bits (U8 codes, blocks of 256 counted from the tensor's beginning)
//   first_scales/NAME@BEGIN, second_scales/NAME@BEGIN   of the blocks that the elements lie in
// so that any number of ranks, at any ZeRO stage, can put together what it owns.
namespace mgpu::train {

checkpoint::FileRecord write_training_state(const std::string& checkpoint_folder,
                                            parallel::Shards& shards, optim::AdamW& optimizer,
                                            int rank, int world);

// Moments may have been saved in another precision than they are held in here. Codes come back bit
// for bit where their blocks were not cut, and to the rounding of 8 bits elsewhere.
// Throws, naming the tensor and the range, if a piece is missing.
void read_training_state(const std::string& checkpoint_folder, optim::AdamW& optimizer);

}  // namespace mgpu::train
