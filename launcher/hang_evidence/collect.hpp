#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hang_evidence/odd_rank_out.hpp"
#include "launcher/hang_evidence/rank_state.hpp"
#include "launcher/ranks/inherited.hpp"

namespace mgpu::launcher {

// The ranks of this node that hang, and where to write the evidence.
struct EvidenceRequest {
  struct Rank {
    int rank = 0;
    pid_t pid = 0;                                   // 0: it has exited
    std::optional<CollectiveState> collective = {};  // that it has reported
  };
  std::vector<Rank> ranks;
  std::string folder;    // created here; empty: nothing is written
  std::string nccl_dir;  // with the pipes of PyTorch's records of NCCL; empty: none
  std::string path;      // the value of PATH, where debuggers are looked for
  std::chrono::milliseconds limit = std::chrono::seconds(8);  // of the whole collection
};

struct HangFindings {
  OddRank odd;
  std::string folder;   // with the evidence and its summary; empty: they were not written
  std::string problem;  // what could not be written, in one line; empty: nothing
};

// Collects the evidence of a hang, and finds the rank that the others wait for. Stops and changes
// no process, except that a debugger stops a rank for as long as it reads its stacks. Blocks for at
// most about the limit, so it has to be called in a thread of its own. Does not throw.
HangFindings collect_evidence(const EvidenceRequest& request, const Inherited& inherited);

}  // namespace mgpu::launcher
