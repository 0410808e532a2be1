#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/kernels/gemm_choices.hpp"
#include "runtime/train/gemm_table.hpp"

namespace mgpu::train {

// The algorithms of matrix products that the ranks of a job use (gemm_choice: timed). Rank 0 times
// them, and all ranks use what it finds, so that results do not depend on which rank computes what.
// All ranks make every call together, except choices() and table().
class JobGemms {
 public:
  // `library` is that of this rank's GPU; null: it has none. `folder` is the output folder.
  JobGemms(std::unique_ptr<ops::GemmLibrary> library, comm::Comm& comm, at::Device device,
           std::string folder, double least_flops = ops::GemmChoices::kLeastFlops);

  // Takes the choices of the checkpoint `checkpoint`, or, at the beginning of a run, those that
  // rank 0 finds in the output folder. Returns a note for the user, or nothing. Throws if the file
  // cannot be used.
  std::string begin(const std::string& checkpoint, const std::optional<GemmTable>& saved);

  // Null: the ranks' GPUs differ or have no library, so PyTorch computes all products.
  ops::GemmChoices* choices() { return choices_ ? &*choices_ : nullptr; }

  // Chooses algorithms for the products that came first in `step` or before it, for all steps from
  // `step` + 2 on. Waits for the device. To be called when the step is known to be complete: that
  // is before step + 2 begins. Returns a note for the user, or nothing. Rank 0 writes the choices
  // to the output folder.
  std::string choose(std::int64_t step);

  // Empty: there are no choices.
  std::optional<GemmTable> table() const;

 private:
  std::vector<ops::Gemm> products_of_all_ranks(std::int64_t step);

  std::unique_ptr<ops::GemmLibrary> library_;
  comm::Comm& comm_;
  at::Device device_;
  std::string folder_;
  std::string obstacle_;  // why there are no choices
  std::optional<ops::GemmChoices> choices_;
};

// Why choices cannot be reused, for a note; empty: they can.
std::string why_not_reused(const GemmTable& saved, const std::string& library,
                           const std::string& device);

}  // namespace mgpu::train
