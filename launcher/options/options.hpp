#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "launcher/lifecycle/failure_policy.hpp"
#include "launcher/options/scheduler.hpp"
#include "rendezvous/base/limits.hpp"

namespace mgpu::launcher {

using Milliseconds = std::chrono::milliseconds;

// An error in the user's input: one line that names what is wrong, where, and what would be right.
// main prints it after the program's name and exits with status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How a source set an option, in the user's words, for messages.
struct Origin {
  std::string name;   // --nproc, PET_NNODES, job.yaml:3: nproc
  std::string joint;  // between name and value: " ", "=" or ": "
  std::string value;  // as it was written

  // The beginning of a message: "--nproc 0", "PET_NNODES=0", "job.yaml:3: nproc: 0".
  std::string text() const;
};

using rendezvous::kLastPort;
using rendezvous::kMostNodes;
using rendezvous::kMostRanks;

// How many ranks: a number, or a word that is resolved from the devices.
struct RankCount {
  enum class Kind { unset, number, gpu, cpu, automatic };
  Kind kind = Kind::unset;
  int number = 0;
  friend bool operator==(const RankCount&, const RankCount&) = default;
};

// The streams of each local rank that an option selects: bit 1 stdout, bit 2 stderr.
struct StreamMap {
  unsigned all = 0;  // for ranks that are not listed
  std::map<int, unsigned> by_rank = {};
  unsigned of(int local_rank) const {
    const auto found = by_rank.find(local_rank);
    return found == by_rank.end() ? all : found->second;
  }
  friend bool operator==(const StreamMap&, const StreamMap&) = default;
};

enum class NumaBinding { none, node, socket, exclusive, core_complex };

enum class Command { run, devices, doctor, status, completion, help, version };

// All options of a job. parse_options fills it in; it is not changed afterwards.
struct Options {
  Command command = Command::run;
  std::string completion_shell;    // bash, zsh or fish, for Command::completion
  std::optional<int> doctor_port;  // for Command::doctor
  std::string status_job;          // for Command::status

  // Target: a path or, with `module`, a module's name.
  std::string target;
  bool only_set = false;  // no TARGET: the recipe consists of `set`, and target is mgpu-train
  std::vector<std::string> args;
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  // Whether TARGET is a recipe: YAML, of which JSON is a part.
  bool is_recipe() const;
  // The job's id as the beginning of a folder's name: other characters than letters, digits, dots,
  // dashes and underscores become underscores, and so does a dot at its beginning.
  std::string log_folder_name() const;
  bool append_local_rank = false;  // torch.distributed.launch without --use-env
  std::vector<std::pair<std::string, std::string>> env;
  std::string workdir;
  std::vector<std::string> set;  // key=value for the worker's YAML

  // Ranks.
  RankCount nproc;
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = 0;
  std::string role = "default";
  std::optional<std::vector<std::string>> gpus;  // ids or UUIDs as given to --gpus
  bool oversubscribe = false;
  bool virtual_local_rank = false;
  NumaBinding numa_binding = NumaBinding::none;

  // Rendezvous.
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  std::map<std::string, std::string> rdzv_conf;
  bool standalone = false;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  std::string local_addr;
  bool rank0_store = false;
  bool direct_store = false;       // ranks of other nodes connect to the leader's store themselves
  Milliseconds keep_alive{5'000};  // a node that is silent this long is lost
  std::string rdzv_token_file;     // holds the secret that agents prove to each other
  // The secret is the first line of stdin; mgpu-run stops when stdin ends.
  bool rdzv_token_stdin = false;
  bool insecure = false;  // several nodes without a secret
  std::string hostfile;   // hosts to start agents on, over ssh
  // The timeouts end ssh when a host does not answer, or no longer answers.
  std::string ssh_command = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=5";
  SchedulerJob scheduler;  // provided by a scheduler; fills in options that are not set

  // Supervision.
  int max_restarts = 0;
  bool restarts_renewed = false;   // by progress: --max-restarts N/progress
  Milliseconds retry_delay{1000};  // before the second and later restarts, doubled each time
  FailurePolicies on_failure;
  Milliseconds grace{30'000};
  bool replace_ranks = false;  // one at a time, while the others keep their processes
  std::optional<Milliseconds> failure_grace;  // after the failure of another rank; unset: grace
  // Without progress for this long a job hangs; 0: never, unset: learned from its steps.
  std::optional<Milliseconds> hang_timeout;
  // What counts as activity of ranks that report no steps: output, cpu, gpu; empty: they never
  // hang.
  std::vector<std::string> hang_activity;
  std::vector<int> signals_to_handle;  // never empty after parsing
  bool signal_group = false;
  std::uint64_t worker_memory = 0;  // host memory of a rank in bytes; 0: no limit

  // Output.
  std::optional<std::string> log_dir;  // unset: a temporary folder; /dev/null: none
  StreamMap redirects;
  StreamMap tee;
  bool prefix = false;
  std::string prefix_template;  // empty: torchrun's default
  std::vector<int> local_ranks_filter;
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  std::string report;  // path of the JSON report, empty: none
  bool quiet = false;
  bool dry_run = false;
  bool json = false;

  std::map<std::string, Origin> given;    // the options that any source set
  std::vector<std::string> line_options;  // options of the command line, one argument each
  bool was_given(const std::string& option) const { return given.contains(option); }
  // The origin of an option, for messages; "--option value" if no source set it.
  Origin origin(const std::string& option, const std::string& value = {}) const;

  // Lines to print: options that were accepted but have no effect.
  std::vector<std::string> notes;
};

}  // namespace mgpu::launcher
