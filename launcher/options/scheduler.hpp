#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/variables.hpp"

namespace mgpu::launcher {

// What a scheduler or an outer launcher provides about the job of this process.
struct SchedulerJob {
  enum class Kind { none, slurm, kubernetes, open_mpi, pmix };
  // A value and the variable that it comes from; for display.
  struct Found {
    std::string what, value, from;
    friend bool operator==(const Found&, const Found&) = default;
  };

  Kind kind = Kind::none;
  int nodes = 0;  // 0: unknown
  std::optional<int> node_rank;
  std::vector<std::string> hosts;  // by node rank
  std::string first_host;          // host of node 0; empty: unknown
  int port = 0;                    // derived from the job, the same on all nodes; 0: none
  std::string job_id;
  std::optional<int> gpus_per_node;
  std::vector<Found> found;
  std::string problem;  // why this data cannot form a job: one line; empty: none
  std::string note;     // what may surprise the user: one line; empty: none
};

// Reads the variables of Slurm, Kubernetes, Open MPI and PMIx; with nested launchers the innermost
// one is used. Inside a rank of another mgpu-run job it finds nothing, because the variables belong
// to that job. Never throws for the value of a variable: it reports it as its `problem`.
SchedulerJob read_scheduler(const Variables& variables);

// "Slurm"; empty for none.
const char* name_of(SchedulerJob::Kind kind);

// A port that is derived from a Slurm job and step: from 20000 to 29999, which is below the
// range that Linux uses for outgoing connections (32768 and up).
int slurm_port(unsigned long long job, unsigned long long step);

}  // namespace mgpu::launcher
