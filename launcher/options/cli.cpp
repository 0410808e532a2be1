#include "launcher/options/cli.hpp"

#include <signal.h>

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "launcher/options/apply_scheduler.hpp"
#include "launcher/options/arguments.hpp"
#include "launcher/options/launch_file.hpp"
#include "launcher/options/parse_values.hpp"
#include "rendezvous/auth.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

using Settings = std::vector<Setting>;

std::string variable_name(const std::string& option) {
  auto name = "MGPU_" + with_underscores(option);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

// Adds the value of a variable; for a repeatable option each line is one value.
void add_variable(Settings& all, const OptionSpec& spec, Source source, const std::string& name,
                  const std::string& text) {
  if (!spec.repeats) {
    all.push_back({&spec, source, name, text});
    return;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (end > begin) all.push_back({&spec, source, name, text.substr(begin, end - begin)});
    begin = end + 1;
  }
}

// An empty variable counts as not set: compose files and pod specs leave one out that way.
bool add_first_set(Settings& all, const OptionSpec& spec, Source source,
                   const std::vector<std::string>& names, const Variables& variables) {
  for (const auto& name : names) {
    const auto text = variables(name);
    if (!text || text->empty()) continue;
    add_variable(all, spec, source, name, *text);
    return true;
  }
  return false;
}

void add_variables(Settings& all, const Variables& variables) {
  for (const auto& spec : option_table()) {
    if (spec.line_only) continue;
    std::vector<std::string> ours;
    for (const auto& name : spec.names) ours.push_back(variable_name(name));
    if (!add_first_set(all, spec, Source::mgpu, ours, variables))
      add_first_set(all, spec, Source::pet, spec.variables, variables);
  }
}

void apply(Options& options, const Setting& setting) {
  try {
    setting.spec->set(options, setting.value);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", setting.origin().text(), e.what()));
  }
}

// The setting that applies to an option: the last one of the strongest source; null: not set.
const Setting* strongest(const Settings& all, const OptionSpec& spec) {
  const Setting* best = nullptr;
  for (const auto& setting : all)
    if (setting.spec == &spec && (!best || setting.source >= best->source)) best = &setting;
  return best;
}

void apply_all(Options& options, Settings all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Setting& a, const Setting& b) { return a.source < b.source; });
  for (const auto& spec : option_table()) {
    if (const auto* best = strongest(all, spec); best && !spec.repeats) apply(options, *best);
    for (const auto& setting : all)
      if (spec.repeats && setting.spec == &spec) apply(options, setting);
  }
}

void record_given(Options& options, const Settings& all) {
  for (const auto& setting : all) {
    options.given[setting.spec->name()] = strongest(all, *setting.spec)->origin();
    if (setting.source != Source::line) continue;
    const auto word = "--" + setting.spec->name();
    options.line_options.push_back(
        setting.spec->is_flag() && setting.value == "1" ? word : word + "=" + setting.value);
  }
}

Options defaults_for(const std::string& program) {
  const auto name = program.substr(program.rfind('/') + 1);
  Options options;
  options.signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  options.append_local_rank = name == "torch-distributed-launch";
  if (options.append_local_rank || name == "torchrun")
    options.nproc = {.kind = RankCount::Kind::number, .number = 1};
  return options;
}

void append_settings(LaunchFile&& file, Settings& all, std::vector<std::string>& notes) {
  std::move(file.settings.begin(), file.settings.end(), std::back_inserter(all));
  std::move(file.notes.begin(), file.notes.end(), std::back_inserter(notes));
}

// --num-processes counts the ranks of all nodes, as in accelerate; converts it to one node's.
void divide_processes_by_nodes(Options& options, const Settings& all) {
  const auto* count = strongest(all, *find_option("nproc"));
  const auto name = count ? with_dashes(count->name) : std::string();
  const bool total = name.ends_with("num-processes") || name.ends_with("world-size");
  if (!total || options.nproc.kind != RankCount::Kind::number || options.max_nodes == 1) return;
  if (options.nproc.number % options.max_nodes != 0)
    throw UsageError(
        fmt::format("{}: not divisible by the {} nodes (it counts the ranks of all nodes); use "
                    "--nproc for the ranks of one node",
                    count->origin().text(), options.max_nodes));
  options.nproc.number /= options.max_nodes;
}

void read_devices_arguments(Options& options) {
  options.command = Command::devices;
  for (const auto& word : options.args) {
    if (word == "--json")
      options.json = true;
    else if (word == "--help" || word == "-h")
      options.command = Command::help;
    else
      throw UsageError(fmt::format("devices {}: devices accepts only --json", shown(word)));
  }
}

// Options are accepted before and after the job's name.
void read_status_arguments(Options& options) {
  options.command = Command::status;
  std::vector<std::string> words = options.args;
  while (!words.empty()) {
    auto more = read_arguments(words);
    for (const auto& setting : more.settings) apply(options, setting);
    if (options.command == Command::help) return;
    if (more.target && !options.status_job.empty())
      throw UsageError(fmt::format("status {}: status accepts only one job", shown(*more.target)));
    if (more.target) options.status_job = *more.target;
    words = more.target ? std::move(more.rest) : std::vector<std::string>();
  }
}

int doctor_port(const std::string& text) {
  try {
    return parse_whole(text, 1, kLastPort);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("doctor --port {}: {}", shown(text), e.what()));
  }
}

void read_doctor_arguments(Options& options) {
  options.command = Command::doctor;
  if (options.master_port.value_or(0) > 0) options.doctor_port = options.master_port;
  for (std::size_t i = 0; i < options.args.size(); ++i) {
    const auto& word = options.args[i];
    if (word == "--json") {
      options.json = true;
    } else if (word == "--help" || word == "-h") {
      options.command = Command::help;
    } else if (word.starts_with("--port=")) {
      options.doctor_port = doctor_port(word.substr(7));
    } else if (word == "--port" && i + 1 < options.args.size()) {
      options.doctor_port = doctor_port(options.args[++i]);
    } else if (word == "--port") {
      throw UsageError("doctor --port: needs a value, N");
    } else {
      throw UsageError(
          fmt::format("doctor {}: doctor accepts only --port N and --json", shown(word)));
    }
  }
}

// Whether TARGET may be a command word; with a slash, -m or --no-python it never is.
bool is_command_word(const Options& options) {
  return !options.module && !options.no_python && options.target.find('/') == std::string::npos;
}

// The option that an argument such as --nproc=2 or -n names; null: mgpu-run has none of this name.
const OptionSpec* named_option(const std::string& name) {
  if (name.starts_with("--")) return find_option(std::string_view(name).substr(2));
  return name.size() == 2 && name[0] == '-' ? find_option(name[1]) : nullptr;
}

// Arguments after a recipe are those of mgpu-train. An option that only mgpu-run has is refused
// before any rank starts.
void refuse_misplaced_options(const Options& options) {
  std::vector<std::string> theirs{"--set", "--help", "-h"};
  if (std::ranges::find(options.args, "--check") != options.args.end())
    theirs.insert(theirs.end(), {"--gpus", "--nproc"});
  for (const auto& word : options.args) {
    const auto name = word.substr(0, word.find('='));
    const auto* spec = named_option(name);
    if (spec == nullptr || std::ranges::find(theirs, name) != theirs.end()) continue;
    throw UsageError(
        fmt::format("{0} is an option of mgpu-run; write it before the recipe: "
                    "mgpu-run {0}{1} {2}",
                    name, spec->is_flag() ? "" : " " + spec->value, shown(options.target)));
  }
}

void finish(Options& options) {
  if (options.target.empty())
    throw UsageError(
        "nothing to run; name a recipe (.yaml), a script, -m MODULE or a program, "
        "or see --help");
  if (is_command_word(options)) {
    if (options.target == "top")
      throw UsageError("top is reserved for a future command; write ./top for a file of that name");
    if (options.target == "status") return read_status_arguments(options);
    if (options.target == "devices") return read_devices_arguments(options);
    if (options.target == "doctor") return read_doctor_arguments(options);
  }
  if (options.module && options.no_python && !options.run_path)
    throw UsageError(
        "--module and --no-python cannot be combined: a module needs Python; drop one");
  if (options.is_recipe() && !options.only_set) refuse_misplaced_options(options);
  // As in torchrun: a unique id, which overrides --rdzv-id.
  if (options.standalone)
    options.rdzv_id = rendezvous::auth::to_hex(rendezvous::auth::random_bytes(16));
  if (options.failure_grace && *options.failure_grace > options.grace)
    throw UsageError(fmt::format(
        "--failure-grace {:g}: must be at most --grace, which is {:g}; raise --grace too",
        std::chrono::duration<double>(*options.failure_grace).count(),
        std::chrono::duration<double>(options.grace).count()));
  if (options.replace_ranks && options.max_restarts == 0)
    throw UsageError(
        "--replace-ranks: each replacement counts as a restart and none is allowed; add "
        "--max-restarts N");
  if (!options.hang_activity.empty() && options.hang_timeout.value_or(Milliseconds(0)).count() == 0)
    throw UsageError(
        fmt::format("{}: a limit for activity cannot be learned; add --hang-timeout SECONDS, for "
                    "example --hang-timeout 1800",
                    options.origin("hang-activity").text()));
  if (options.json && !options.dry_run)
    options.notes.push_back(
        "--json has no effect without --dry-run; use --report FILE for a JSON report");
}

}  // namespace

Options parse_options(const std::vector<std::string>& argv, const Variables& variables) {
  const auto program = argv.empty() ? std::string() : argv.front();
  auto arguments = read_arguments({argv.begin() + (argv.empty() ? 0 : 1), argv.end()});
  Settings all = std::move(arguments.settings);

  Options first = defaults_for(program);
  for (const auto& setting : all)
    if (setting.spec->line_only) apply(first, setting);
  if (first.command != Command::run) return first;

  add_variables(all, variables);
  apply_all(first, all);  // decides which files to read; files cannot change that
  first.target = arguments.target.value_or("");
  first.only_set = first.target.empty() && !first.set.empty() && !first.module && !first.no_python;
  if (first.only_set) first.target = "mgpu-train";

  Options options = defaults_for(program);
  if (const auto* config = strongest(all, *find_option("config")))
    append_settings(read_config(config->value, first.is_recipe(), config->origin()), all,
                    options.notes);
  if (first.is_recipe() && !first.only_set)
    append_settings(read_recipe(first.target), all, options.notes);
  apply_all(options, all);
  options.target = std::move(first.target);
  options.only_set = first.only_set;
  options.args = std::move(arguments.rest);
  record_given(options, all);
  finish(options);
  if (options.command == Command::run) {
    options.scheduler = read_scheduler(variables);
    apply_scheduler(options);
    divide_processes_by_nodes(options, all);
  }
  return options;
}

Options parse_options(int argc, char* argv[]) {
  return parse_options(std::vector<std::string>(argv, argv + argc), own_variable);
}

}  // namespace mgpu::launcher
