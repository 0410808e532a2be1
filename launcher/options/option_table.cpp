#include "launcher/options/option_table.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "launcher/options/parse_values.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

using Set = std::function<void(Options&, const std::string&)>;
using enum OptionGroup;

Set flag(bool Options::* member) {
  return [member](Options& o, const std::string& text) { o.*member = parse_bool(text); };
}

Set text(std::string Options::* member) {
  return [member](Options& o, const std::string& value) { o.*member = parse_text(value); };
}

template <class Member, class Parse>
Set parsed(Member Options::* member, Parse parse) {
  return [member, parse](Options& o, const std::string& value) { o.*member = parse(value); };
}

template <class Member>
Set whole(Member Options::* member, int least, int most) {
  return parsed(member, [=](const std::string& value) { return parse_whole(value, least, most); });
}

Set command(Command command) {
  return [command](Options& o, const std::string& value) {
    if (parse_bool(value)) o.command = command;
  };
}

// For options that are accepted and checked but have no effect.
template <class Parse>
Set noted(Parse parse, std::string note) {
  return [parse, note](Options& o, const std::string& value) {
    parse(value);
    o.notes.push_back(note);
  };
}

void set_nodes(Options& o, const std::string& value) {
  std::tie(o.min_nodes, o.max_nodes) = parse_node_range(value);
}

// Variables that --env cannot set, because they give a rank its place or state the size of the job,
// and the options that set them; empty: no option does.
struct OwnVariable {
  std::string_view name, options;
};

constexpr std::string_view kSize = "--nproc and --nnodes";
constexpr OwnVariable kOwnVariables[] = {
    {rendezvous::variable::kRank, {}},
    {rendezvous::variable::kLocalRank, {}},
    {rendezvous::variable::kGroupRank, "--node-rank"},
    {rendezvous::variable::kRoleRank, {}},
    {rendezvous::variable::kRoleName, "--role"},
    {rendezvous::variable::kWorldSize, kSize},
    {rendezvous::variable::kLocalWorldSize, "--nproc"},
    {rendezvous::variable::kGroupWorldSize, "--nnodes"},
    {rendezvous::variable::kRoleWorldSize, kSize},
    {rendezvous::variable::kMasterAddr, "--master-addr"},
    {rendezvous::variable::kMasterPort, "--master-port"},
    {rendezvous::variable::kRestartCount, {}},
    {rendezvous::variable::kMaxRestarts, "--max-restarts"},
    {rendezvous::variable::kRunId, "--rdzv-id"},
    {rendezvous::variable::kUseAgentStore, "--rank0-store"},
    {rendezvous::variable::kErrorFile, "--log-dir"},
    {rendezvous::variable::kLeaderAddr, {}},
    {rendezvous::variable::kWorkerSocket, {}},
    {rendezvous::variable::kReplacement, {}},
};

void add_env(Options& o, const std::string& value) {
  auto assignment = parse_assignment(value);
  for (const auto& [name, options] : kOwnVariables)
    if (assignment.first == name)
      throw UsageError(
          fmt::format("mgpu-run sets {} itself in every rank; {}", name,
                      options.empty() ? "drop it" : fmt::format("use {} instead", options)));
  o.env.push_back(std::move(assignment));
}

void add_set(Options& o, const std::string& value) {
  parse_assignment(value);
  o.set.push_back(value);
}

void add_on_failure(Options& o, const std::string& value) {
  for (const auto& [kind, policy] : parse_on_failure(value)) o.on_failure.chosen[kind] = policy;
}

void set_gpus(Options& o, const std::string& value) {
  if (value == "all") {  // what accelerate writes when no GPUs are selected
    o.gpus.reset();
  } else {
    o.gpus = parse_gpus(value);
  }
}

void set_run_path(Options& o, const std::string& value) {
  o.run_path = parse_bool(value);
  if (o.run_path)
    o.notes.push_back(
        "--run-path: the script runs in its own Python process, not in a fork of mgpu-run");
}

void set_event_log_handler(Options& o, const std::string& value) {
  if (value != "null")
    o.notes.push_back(
        fmt::format("--event-log-handler {} is ignored; use --report FILE for a JSON "
                    "report",
                    shown(value, 32)));
}

// Below half a second a busy machine would be declared lost.
Milliseconds parse_keep_alive(const std::string& value) {
  return parse_seconds_from(value, 0.5);
}

// A shorter limit would end jobs on a busy machine.
std::optional<Milliseconds> parse_hang_timeout(const std::string& value) {
  if (value == "auto") return std::nullopt;
  if (value == "off") return Milliseconds(0);
  try {
    return parse_seconds_from(value, 1);
  } catch (const UsageError&) {
    throw UsageError("need auto, off, or seconds from 1 to 31622400, for example 600");
  }
}

void set_completion(Options& o, const std::string& value) {
  o.completion_shell = parse_choice(value, {"bash", "zsh", "fish"});
  o.command = Command::completion;
}

// clang-format off: one paragraph per option reads better than one line per field.
std::vector<OptionSpec> program_options() {
  return {
      {.letter = 'm', .names = {"module"}, .group = program, .help = "TARGET is a Python module",
       .set = flag(&Options::module), .torchrun = "module", .variables = {"PET_MODULE"}},
      {.names = {"no-python"}, .group = program, .help = "run TARGET directly, without Python",
       .set = flag(&Options::no_python), .torchrun = "no-python", .variables = {"PET_NO_PYTHON"}},
      {.names = {"run-path"}, .group = program, .set = set_run_path, .torchrun = "run-path",
       .variables = {"PET_RUN_PATH"}},
      {.names = {"env"}, .value = "KEY=VALUE", .group = program,
       .help = "set an environment variable in every rank; repeatable", .set = add_env,
       .yaml = YamlForm::equals_map, .repeats = true},
      {.names = {"workdir"}, .value = "DIR", .group = program, 
       .help = "working directory of the ranks [current directory]",
       .set = text(&Options::workdir), .completes = Completes::folders},
      {.names = {"set"}, .value = "KEY=VALUE", .group = program,
       .help = "set a recipe key (without TARGET: the whole recipe); repeatable",
       .set = add_set,
       .yaml = YamlForm::equals_map, .repeats = true},
      {.names = {"config", "config-file"}, .value = "FILE", .group = program,
       .help = "read options from a launch: section or an accelerate config",
       .set = [](Options&, const std::string& value) { parse_text(value); },
       .completes = Completes::files},
      {.names = {"use-env"}, .group = program,
       .set = [](Options& o, const std::string& v) { o.append_local_rank = !parse_bool(v); }},
      {.names = {"no-use-env"}, .group = program, .set = flag(&Options::append_local_rank)},
  };
}

std::vector<OptionSpec> rank_options() {
  return {
      {.letter = 'n', .names = {"nproc", "nproc-per-node", "num-processes"},
       .value = "N|gpu|cpu|auto", .group = ranks,
       .help = "ranks on this node [one per visible GPU, else 1]",
       .set = parsed(&Options::nproc, parse_rank_count), .torchrun = "nproc-per-node",
       .variables = {"PET_NPROC_PER_NODE"}, .completes = Completes::words,
       .choices = {"gpu", "cpu", "auto"}},
      {.names = {"gpus", "gpu-ids"}, .value = "LIST", .group = ranks,
       .help = "use only these GPUs, by number or UUID: 0,1 [all visible]", .set = set_gpus,
       .yaml = YamlForm::list},
      {.names = {"oversubscribe"}, .group = ranks, .help = "allow more ranks than GPUs",
       .set = flag(&Options::oversubscribe)},
      {.names = {"virtual-local-rank"}, .group = ranks,
       .help = "give every rank LOCAL_RANK=0 and one visible GPU",
       .set = flag(&Options::virtual_local_rank), .torchrun = "virtual-local-rank",
       .variables = {"PET_VIRTUAL_LOCAL_RANK"}},
      {.names = {"numa-binding"}, .value = "MODE", .group = ranks,
       .help = "bind to cores: node, socket, exclusive or core-complex [none]",
       .set = parsed(&Options::numa_binding, parse_numa_binding), .torchrun = "numa-binding",
       .completes = Completes::words,
       .choices = {"none", "node", "socket", "exclusive", "core-complex"}},
      {.names = {"role"}, .value = "NAME", .group = ranks, .set = text(&Options::role),
       .torchrun = "role", .variables = {"PET_ROLE"}},
  };
}

std::vector<OptionSpec> node_options() {
  return {
      {.letter = 'N', .names = {"nnodes", "num-machines"}, .value = "N|MIN:MAX", .group = nodes,
       .help = "nodes in the job [1]", .set = set_nodes, .torchrun = "nnodes",
       .variables = {"PET_NNODES"}},
      {.names = {"node-rank", "machine-rank"}, .value = "N", .group = nodes,
       .help = "rank of this node, from 0 [0]",
       .set = whole(&Options::node_rank, 0, kMostNodes - 1),
       .torchrun = "node-rank", .variables = {"PET_NODE_RANK"}},
      {.names = {"master-addr", "main-process-ip"}, .value = "HOST", .group = nodes,
       .help = "address of node 0 [127.0.0.1]", .set = parsed(&Options::master_addr, parse_text),
       .torchrun = "master-addr", .variables = {"PET_MASTER_ADDR"}},
      {.names = {"master-port", "main-process-port"}, .value = "PORT", .group = nodes,
       .help = "port on node 0 [29500; on a single node a free port]",
       .set = whole(&Options::master_port, 0, kLastPort),
       .torchrun = "master-port", .variables = {"PET_MASTER_PORT"}},
      {.names = {"rdzv-endpoint"}, .value = "HOST:PORT", .group = nodes,
       .help = "rendezvous endpoint of an elastic job",
       .set = parsed(&Options::rdzv_endpoint, parse_endpoint), .torchrun = "rdzv-endpoint",
       .variables = {"PET_RDZV_ENDPOINT"}},
      {.names = {"rdzv-backend"}, .value = "NAME", .group = nodes,
       .set = parsed(&Options::rdzv_backend,
                     [](const std::string& name) {
                       return parse_choice(name, {"static", "c10d", "etcd", "etcd-v2"});
                     }),
       .torchrun = "rdzv-backend",
       .variables = {"PET_RDZV_BACKEND"}, .completes = Completes::words,
       .choices = {"static", "c10d", "etcd", "etcd-v2"}},
      {.names = {"rdzv-id"}, .value = "NAME", .group = nodes, .set = text(&Options::rdzv_id),
       .torchrun = "rdzv-id", .variables = {"PET_RDZV_ID"}},
      {.names = {"rdzv-conf"}, .value = "K=V,...", .group = nodes,
       .set = parsed(&Options::rdzv_conf, parse_rdzv_conf), .torchrun = "rdzv-conf",
       .variables = {"PET_RDZV_CONF"}, .yaml = YamlForm::equals_map},
      {.names = {"standalone"}, .group = nodes,
       .help = "single-node job, regardless of other options",
       .set = flag(&Options::standalone), .torchrun = "standalone",
       .variables = {"PET_STANDALONE"}},
      {.names = {"local-addr"}, .value = "HOST", .group = nodes, .set = text(&Options::local_addr),
       .torchrun = "local-addr", .variables = {"PET_LOCAL_ADDR"}},
      {.names = {"rank0-store"}, .group = nodes,
       .help = "let rank 0 bind MASTER_PORT itself", .set = flag(&Options::rank0_store)},
      {.names = {"store"}, .value = "MODE", .group = nodes,
       .help = "how ranks of other nodes reach the store: relay, direct [relay]",
       .set = parsed(&Options::direct_store,
                     [](const std::string& mode) {
                       return parse_choice(mode, {"relay", "direct"}) == "direct";
                     }),
       .completes = Completes::words, .choices = {"relay", "direct"}},
      {.names = {"hostfile"}, .value = "FILE", .group = nodes,
       .help = "start the job over ssh on the hosts in FILE", .set = text(&Options::hostfile),
       .completes = Completes::files},
      {.names = {"ssh-command"}, .value = "COMMAND", .group = nodes,
       .help = "ssh command for --hostfile [ssh -o BatchMode=yes ...]",
       .set = text(&Options::ssh_command), .variables = {"MGPU_SSH"}},
      {.names = {"keep-alive"}, .value = "SECONDS", .group = nodes,
       .help = "declare a node lost after this long without a message [5]",
       .set = parsed(&Options::keep_alive, parse_keep_alive)},
      {.names = {"rdzv-token-file"}, .value = "FILE", .group = nodes,
       .help = "file with the shared secret of the nodes", .set = text(&Options::rdzv_token_file),
       .completes = Completes::files},
      {.names = {"insecure"}, .group = nodes, .help = "allow nodes to join without a secret",
       .set = flag(&Options::insecure)},
      {.names = {"rdzv-token-stdin"}, .group = nodes, .set = flag(&Options::rdzv_token_stdin),
       .line_only = true, .internal = true},
  };
}

std::vector<OptionSpec> supervision_options() {
  const auto restarts = [](Options& o, const std::string& value) {
    std::tie(o.max_restarts, o.restarts_renewed) = parse_restarts(value);
  };
  const auto start_method = [](const std::string& value) {
    return parse_choice(value, {"spawn", "fork", "forkserver"});
  };
  return {
      {.names = {"max-restarts"}, .value = "N", .group = supervision,
       .help = "restarts [0]; N/progress counts only those without a new step",
       .set = restarts, .torchrun = "max-restarts",
       .variables = {"PET_MAX_RESTARTS"}, .file_keys = {"max-retries"}},
      {.names = {"replace-ranks"}, .group = supervision,
       .help = "replace a killed rank without restarting the others",
       .set = flag(&Options::replace_ranks)},
      {.names = {"retry-delay"}, .value = "SECONDS", .group = supervision,
       .help = "delay before the second restart, then doubled [1]",
       .set = parsed(&Options::retry_delay, parse_seconds)},
      {.names = {"on-failure"}, .value = "KIND=POLICY", .group = supervision,
       .help = "what to do after a kind of failure, such as nan=give_up; repeatable",
       .set = add_on_failure, .yaml = YamlForm::equals_map, .repeats = true},
      {.names = {"grace", "shutdown-timeout"}, .value = "SECONDS", .group = supervision,
       .help = "time from the stop signal to SIGKILL [30]",
       .set = parsed(&Options::grace, parse_seconds), .torchrun = "shutdown-timeout",
       .variables = {"PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"}},
      {.names = {"failure-grace"}, .value = "SECONDS", .group = supervision,
       .help = "grace period after another rank has failed [--grace]",
       .set = parsed(&Options::failure_grace, parse_seconds)},
      {.names = {"hang-timeout"}, .value = "SECONDS", .group = supervision,
       .help = "fail after this long without progress, or off [auto: learned]",
       .set = parsed(&Options::hang_timeout, parse_hang_timeout), .completes = Completes::words,
       .choices = {"auto", "off"}},
      {.names = {"hang-activity"}, .value = "LIST", .group = supervision,
       .help = "for programs that report no steps: output, cpu, gpu count [off]",
       .set = parsed(&Options::hang_activity, parse_hang_activity), .yaml = YamlForm::list,
       .completes = Completes::words, .choices = {"off", "output", "cpu", "gpu"}},
      {.names = {"signals-to-handle"}, .value = "LIST", .group = supervision,
       .help = "signals that stop the job [SIGTERM,SIGINT,SIGHUP,SIGQUIT]",
       .set = parsed(&Options::signals_to_handle, parse_signals), .torchrun = "signals-to-handle",
       .variables = {"PET_SIGNALS_TO_HANDLE"}, .yaml = YamlForm::list},
      {.names = {"signal-group"}, .group = supervision,
       .help = "send stop signals to the whole process group of a rank",
       .set = flag(&Options::signal_group)},
      {.names = {"worker-memory"}, .value = "SIZE", .group = supervision,
       .help = "host memory limit of a rank and its children, such as 60G [none]",
       .set = parsed(&Options::worker_memory, parse_size)},
      {.names = {"monitor-interval"}, .value = "SECONDS", .group = supervision,
       .set = noted(parse_seconds, "--monitor-interval is ignored; mgpu-run does not poll"),
       .torchrun = "monitor-interval", .variables = {"PET_MONITOR_INTERVAL"}},
      {.names = {"start-method"}, .value = "METHOD", .group = supervision,
       .set = noted(start_method, "--start-method is ignored; every rank is a new process"),
       .torchrun = "start-method", .variables = {"PET_START_METHOD"}, .completes = Completes::words,
       .choices = {"spawn", "fork", "forkserver"}},
  };
}

std::vector<OptionSpec> output_options() {
  return {
      {.names = {"log-dir"}, .value = "DIR", .group = output,
       .help = "keep logs in DIR [temporary, removed after success]",
       .set = parsed(&Options::log_dir, parse_text),
       .torchrun = "log-dir", .variables = {"PET_LOG_DIR"}, .completes = Completes::folders},
      {.letter = 'r', .names = {"redirects"}, .value = "STREAMS", .group = output,
       .help = "write to files: 1 stdout, 2 stderr, 3 both, or 0:1,11:3 [0]",
       .set = parsed(&Options::redirects, parse_stream_map), .torchrun = "redirects",
       .variables = {"PET_REDIRECTS"}, .yaml = YamlForm::colon_map},
      {.letter = 't', .names = {"tee"}, .value = "STREAMS", .group = output,
       .help = "write to files and print each line with its rank [0]",
       .set = parsed(&Options::tee, parse_stream_map), .torchrun = "tee", .variables = {"PET_TEE"},
       .yaml = YamlForm::colon_map},
      {.names = {"prefix"}, .group = output, .help = "prefix every printed line with its rank",
       .set = flag(&Options::prefix)},
      {.names = {"log-line-prefix-template"}, .value = "TEXT", .group = output,
       .set = text(&Options::prefix_template), .torchrun = "log-line-prefix-template",
       .variables = {"PET_LOG_LINE_PREFIX_TEMPLATE", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"}},
      {.names = {"local-ranks-filter"}, .value = "LIST", .group = output,
       .help = "print only these local ranks: 0,1 [all]",
       .set = parsed(&Options::local_ranks_filter, parse_rank_list),
       .torchrun = "local-ranks-filter", .variables = {"PET_LOCAL_RANKS_FILTER"},
       .yaml = YamlForm::list},
      {.names = {"duplicate-stdout-filters"}, .value = "LIST", .group = output,
       .set = parsed(&Options::stdout_filters, parse_needles),
       .torchrun = "duplicate-stdout-filters", .variables = {"PET_DUPLICATE_STDOUT_FILTERS"},
       .yaml = YamlForm::list},
      {.names = {"duplicate-stderr-filters"}, .value = "LIST", .group = output,
       .set = parsed(&Options::stderr_filters, parse_needles),
       .torchrun = "duplicate-stderr-filters", .variables = {"PET_DUPLICATE_STDERR_FILTERS"},
       .yaml = YamlForm::list},
      {.names = {"report"}, .value = "FILE", .group = output,
       .help = "write the result of the job to FILE as JSON",
       .set = text(&Options::report), .completes = Completes::files},
      {.names = {"quiet"}, .group = output, .help = "print no notes, only errors and the failure report",
       .set = flag(&Options::quiet)},
      {.names = {"event-log-handler"}, .value = "NAME", .group = output,
       .set = set_event_log_handler, .torchrun = "event-log-handler",
       .variables = {"PET_EVENT_LOG_HANDLER"}},
      {.names = {"logs-specs"}, .value = "NAME", .group = output,
       .set = noted(parse_text, "--logs-specs is ignored; see --log-dir, --redirects and --tee"),
       .torchrun = "logs-specs"},
  };
}

std::vector<OptionSpec> other_options() {
  return {
      {.names = {"dry-run"}, .help = "print the command of each rank; start nothing",
       .set = flag(&Options::dry_run)},
      {.names = {"json"}, .help = "print --dry-run, status, devices and doctor as JSON",
       .set = flag(&Options::json)},
      {.names = {"completion", "print-completion"}, .value = "SHELL",
       .help = "print a completion script for bash, zsh or fish", .set = set_completion,
       .torchrun = "print-completion", .line_only = true, .completes = Completes::words,
       .choices = {"bash", "zsh", "fish"}},
      {.letter = 'h', .names = {"help"}, .help = "print this help", .set = command(Command::help),
       .torchrun = "help", .line_only = true},
      {.names = {"version"}, .help = "print the version", .set = command(Command::version),
       .line_only = true},
  };
}

// clang-format on

std::vector<OptionSpec> whole_table() {
  std::vector<OptionSpec> table;
  for (const auto& part : {program_options(), rank_options(), node_options(), supervision_options(),
                           output_options(), other_options()})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

}  // namespace

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> table = whole_table();
  return table;
}

const OptionSpec* find_option(std::string_view name) {
  const auto dashed = with_dashes(name);
  for (const auto& spec : option_table())
    for (const auto& known : spec.names)
      if (known == dashed) return &spec;
  return nullptr;
}

const OptionSpec* find_option(char letter) {
  for (const auto& spec : option_table())
    if (letter != 0 && spec.letter == letter) return &spec;
  return nullptr;
}

std::string with_dashes(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

std::string with_underscores(std::string_view name) {
  std::string underscored(name);
  std::replace(underscored.begin(), underscored.end(), '-', '_');
  return underscored;
}

}  // namespace mgpu::launcher
