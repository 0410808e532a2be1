#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/variables.hpp"

namespace mgpu::launcher {

// What a scheduler or an outer launcher tells this process of the job that it belongs to.
struct Cluster {
  enum class Kind { none, slurm, kubernetes, open_mpi, pmix };
  // One thing that was told, and the variable that told it; for people.
  struct Found {
    std::string what, value, from;
    friend bool operator==(const Found&, const Found&) = default;
  };

  Kind kind = Kind::none;
  int nodes = 0;  // 0: not told
  std::optional<int> node_rank;
  std::vector<std::string> hosts;  // by node rank
  std::string first_host;          // where node 0 is; empty: not told
  int port = 0;                    // that all nodes derive alike from the job; 0: none
  std::string job_id;
  std::optional<int> gpus_per_node;
  std::vector<Found> found;
  std::string problem;  // why no job can be formed from this: one line; empty: none
  std::string note;     // what a person may not expect: one line; empty: none
};

// Reads Slurm's, Kubernetes', Open MPI's and PMIx's variables; of several launchers inside each
// other the innermost counts. Within a rank of another job of ours, whose variables these are,
// nothing is found. Never throws for what a variable holds: that is the cluster's `problem`.
Cluster find_cluster(const Variables& variables);

// "Slurm"; empty for none.
const char* name_of(Cluster::Kind kind);

// The port that all steps of a Slurm job derive alike: from 20000 to 29999, which is below the
// range that Linux gives to outgoing connections (32768 and up).
int slurm_port(unsigned long long job, unsigned long long step);

}  // namespace mgpu::launcher
