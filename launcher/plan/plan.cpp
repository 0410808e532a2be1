#include "launcher/plan/plan.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/nccl_record.hpp"
#include "rendezvous/base/signal_names.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {
namespace {

namespace variable = rendezvous::variable;
using rendezvous::Contract;
using Environment = decltype(RankSpec::env);

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// A macro without its dollar signs, at the start of a text.
struct Macro {
  std::string_view spelled;
  int value = 0;
};

std::optional<Macro> macro_at(std::string_view text, const Placement& placement, int local_rank) {
  const Macro macros[] = {
      {"{local_rank}", local_rank},
      {"{rank}", placement.base_rank + local_rank},
      {"{node_rank}", placement.node_rank},
      {"{world_size}", placement.world_size},
  };
  for (const auto& macro : macros)
    if (text.starts_with(macro.spelled)) return macro;
  constexpr std::string_view kBare = "local_rank";
  if (text.starts_with(kBare) &&
      (text.size() == kBare.size() || !is_word_character(text[kBare.size()])))
    return Macro{kBare, local_rank};
  return std::nullopt;
}

std::vector<std::string> split_at_commas(std::string_view list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void set(Environment& env, const std::string& name, std::string value) {
  for (auto& [known, current] : env)
    if (known == name) {
      current = std::move(value);
      return;
    }
  env.emplace_back(name, std::move(value));
}

// The GPU that is visible to a rank under --virtual-local-rank; nullopt: there is none.
std::optional<std::string> own_gpu(const PlanFacts& facts, int local_rank) {
  if (!facts.gpus.empty()) return facts.gpus[local_rank % facts.gpus.size()];
  const auto inherited = split_at_commas(facts.cuda_visible_devices.value_or(""));
  if (static_cast<size_t>(local_rank) < inherited.size()) return inherited[local_rank];
  return std::nullopt;
}

std::string device_of(const Options& options, const PlanFacts& facts, int local_rank) {
  if (facts.gpus.empty() || options.nproc.kind == RankCount::Kind::cpu) return "cpu";
  return "GPU " + facts.gpus[local_rank % facts.gpus.size()];
}

Contract contract_of(const Options& options, const Placement& placement, const Attempt& attempt,
                     const PlanFacts& facts, const RankSpec& spec) {
  Contract c;
  c.rank = spec.rank;
  c.local_rank = options.virtual_local_rank ? 0 : spec.local_rank;
  c.group_rank = placement.node_rank;
  c.role_rank = spec.rank;  // a job has one role
  c.role_name = options.role;
  c.world_size = placement.world_size;
  c.local_world_size = placement.nproc;
  c.group_world_size = placement.nodes;
  c.role_world_size = placement.world_size;
  c.master_addr = attempt.master_addr;
  c.master_port = attempt.master_port;
  c.restart_count = attempt.number;
  c.max_restarts = options.max_restarts;
  c.run_id = facts.run_id;
  c.agent_store = !options.rank0_store;
  c.error_file = spec.log_dir.empty() ? "" : spec.log_dir + "/error.json";
  c.oom_count = attempt.oom_count;
  c.leader_addr = attempt.leader_addr;
  c.worker_socket = facts.worker_socket;
  c.replacement = attempt.replacement;
  return c;
}

// After GPU memory ran out: segments that can grow leave fewer gaps in it. Not if the user has
// configured the allocator with either variable.
bool sets_allocator(const Options& options, const PlanFacts& facts, int oom_count) {
  if (oom_count == 0 || facts.allocator_set) return false;
  return std::none_of(options.env.begin(), options.env.end(), [](const auto& set) {
    return set.first == variable::kAllocator || set.first == variable::kCudaAllocator;
  });
}

Environment rank_environment(const Options& options, const Placement& placement,
                             const Attempt& attempt, const PlanFacts& facts,
                             const Contract& contract, int local_rank) {
  Environment env;
  for (auto& [name, value] : contract.to_environment()) env.emplace_back(name, std::move(value));

  std::vector<std::string> signals;
  for (const int signo : options.signals_to_handle)
    signals.push_back(rendezvous::signal_name(signo));
  set(env, variable::kSignalsToHandle, fmt::format("{}", fmt::join(signals, ",")));
  if (!facts.nccl_async_error_handling_set) set(env, variable::kNcclAsyncErrorHandling, "1");
  if (sets_allocator(options, facts, contract.oom_count)) {
    for (const char* name : {variable::kAllocator, variable::kCudaAllocator})
      set(env, name, "expandable_segments:True");
  }
  if (!facts.socket_interface.empty()) set(env, variable::kGlooInterface, facts.socket_interface);
  if (!facts.omp_num_threads_set && placement.nproc > 1) set(env, variable::kOmpNumThreads, "1");

  if (options.virtual_local_rank) {
    if (auto gpu = own_gpu(facts, local_rank)) set(env, variable::kCudaVisibleDevices, *gpu);
  } else if (options.gpus) {
    set(env, variable::kCudaVisibleDevices, fmt::format("{}", fmt::join(facts.gpus, ",")));
  }

  if (!facts.nccl_record_set && !attempt.nccl_dir.empty()) {
    set(env, nccl_record::kPipeVariable, attempt.nccl_dir + nccl_record::kPipe);
    set(env, nccl_record::kFileVariable, attempt.nccl_dir + nccl_record::kFile);
  }
  for (const auto& [name, value] : options.env) set(env, name, value);
  // After --env, so that it cannot be overridden: it identifies orphan processes of the job.
  if (!facts.job_cookie.empty()) set(env, variable::kJobCookie, facts.job_cookie);
  return env;
}

}  // namespace

std::string expand_macros(std::string_view text, const Placement& placement, int local_rank) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '$') {
      out += text[at++];
      continue;
    }
    const size_t end = std::min(text.find_first_not_of('$', at), text.size());
    const size_t dollars = end - at;
    at = end;
    const auto macro = macro_at(text.substr(end), placement, local_rank);
    if (!macro) {
      out.append(dollars, '$');
      continue;
    }
    out.append(dollars / 2, '$');
    if (dollars % 2 == 0) continue;  // an even number of dollar signs: the name is literal text
    out += std::to_string(macro->value);
    at += macro->spelled.size();
  }
  return out;
}

int number_of_ranks(const Options& options, int visible_gpus, int cpus) {
  using enum RankCount::Kind;
  switch (options.nproc.kind) {
    case cpu:
      return cpus;
    case automatic:
      return visible_gpus > 0 ? visible_gpus : cpus;
    case unset: {
      const auto scheduler_gpus = options.gpus ? std::nullopt : options.scheduler.gpus_per_node;
      if (visible_gpus == 0) return scheduler_gpus.value_or(1);
      return std::min(visible_gpus, scheduler_gpus.value_or(visible_gpus));
    }
    case gpu:
      if (visible_gpus > 0) return visible_gpus;
      throw UsageError(
          fmt::format("{} found no visible GPU; use --nproc N to run on CPUs, or check "
                      "CUDA_VISIBLE_DEVICES and `mgpu-run devices`",
                      options.origin("nproc", "gpu").text()));
    case number:
      break;
  }
  const int wanted = options.nproc.number;
  if (visible_gpus > 0 && wanted > visible_gpus && !options.oversubscribe)
    throw UsageError(
        fmt::format("{} needs {} GPUs, found {}; use --nproc {}, --oversubscribe to share GPUs, or "
                    "CUDA_VISIBLE_DEVICES= to run on CPUs",
                    options.origin("nproc", std::to_string(wanted)).text(), wanted, visible_gpus,
                    visible_gpus));
  return wanted;
}

std::vector<RankSpec> make_rank_specs(const Options& options, const CommandLine& command,
                                      const Placement& placement, const Attempt& attempt,
                                      const PlanFacts& facts) {
  std::vector<RankSpec> specs;
  specs.reserve(placement.nproc);
  for (int local_rank = 0; local_rank < placement.nproc; ++local_rank) {
    RankSpec spec;
    spec.local_rank = local_rank;
    spec.rank = placement.base_rank + local_rank;
    for (const auto& word : command.argv)  // the program's name (the first word) is not expanded
      spec.argv.push_back(spec.argv.empty() ? word : expand_macros(word, placement, local_rank));
    spec.takes_a_place = attempt.replacement.value_or(0) > 0;
    spec.device = device_of(options, facts, local_rank);
    if (static_cast<size_t>(local_rank) < facts.bindings.size())
      spec.binding = facts.bindings[local_rank];
    if (!attempt.log_dir.empty()) spec.log_dir = fmt::format("{}/{}", attempt.log_dir, local_rank);
    const auto contract = contract_of(options, placement, attempt, facts, spec);
    spec.env = rank_environment(options, placement, attempt, facts, contract, local_rank);
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace mgpu::launcher
