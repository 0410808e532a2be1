#include "launcher/doctor/look_up.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "launcher/doctor/elf_runpath.hpp"
#include "launcher/doctor/torch_files.hpp"
#include "launcher/options/help.hpp"
#include "launcher/options/variables.hpp"
#include "launcher/plan/target.hpp"
#include "launcher/ranks/run_briefly.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/worker_program.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {
namespace {

namespace fs = std::filesystem;

constexpr Milliseconds kLimit{10'000};

std::string set_variable(const char* name) {
  return own_variable(name).value_or("");
}

// The result of `query`, or nullopt when it takes longer than the limit. Its thread is then
// abandoned: a call that hangs in the kernel cannot be cancelled.
template <class Query>
auto within(Milliseconds limit, Query query) -> std::optional<decltype(query())> {
  const auto task = std::make_shared<std::packaged_task<decltype(query())()>>(std::move(query));
  auto answer = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (answer.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

struct Gpus {
  DeviceReport devices;
  std::vector<Nvml::Health> health;
  int driver_cuda = 0;
};

Gpus query_gpus(const Roots& roots, const std::optional<std::string>& visible) {
  Gpus gpus;
  gpus.devices = report_devices(roots, visible);
  if (!gpus.devices.shortfall.empty()) return gpus;
  try {
    const Nvml nvml;
    gpus.driver_cuda = nvml.cuda_version();
    for (int i = 0; i < nvml.count(); ++i) gpus.health.push_back(nvml.health(i));
  } catch (const std::exception& failure) {
    gpus.devices.shortfall = failure.what();
  }
  return gpus;
}

void look_at_gpus(DoctorFacts& facts, const Roots& roots) {
  facts.cuda_visible_devices = own_variable(rendezvous::variable::kCudaVisibleDevices);
  facts.device_files = !names_in(roots.proc + "/driver/nvidia/gpus").empty() ||
                       ::access((roots.dev + "/nvidiactl").c_str(), F_OK) == 0;
  auto gpus = within(
      kLimit, [roots, visible = facts.cuda_visible_devices] { return query_gpus(roots, visible); });
  facts.nvml_timed_out = !gpus;
  if (!gpus) return;
  facts.devices = std::move(gpus->devices);
  facts.health = std::move(gpus->health);
  facts.driver_cuda = gpus->driver_cuda;
}

DiskFacts disk_in_time(const std::string& what, const std::string& path) {
  auto disk = within(kLimit, [=] { return look_at_disk(what, path); });
  return disk ? std::move(*disk) : DiskFacts{.what = what, .path = path, .timed_out = true};
}

// The same choice as huggingface_hub.
std::string hub_folder() {
  if (auto chosen = set_variable("HF_HUB_CACHE"); !chosen.empty()) return chosen;
  if (auto home = set_variable("HF_HOME"); !home.empty()) return home;
  if (auto cache = set_variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/huggingface";
  return set_variable("HOME") + "/.cache/huggingface";
}

void look_at_disks(DoctorFacts& facts) {
  auto temporary = set_variable("TMPDIR");
  if (temporary.empty()) temporary = "/tmp";
  std::error_code error;
  const auto here = fs::current_path(error);
  facts.disks = {disk_in_time("current folder", error ? "." : here.string()),
                 disk_in_time("Hub cache", hub_folder()),
                 disk_in_time("temporary files", temporary)};
  facts.shared_memory = disk_in_time("shared memory", "/dev/shm");
}

std::optional<std::uint64_t> limit_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(limit);
}

LimitFacts look_at_limits(const Inherited& inherited) {
  LimitFacts limits;
  limits.open_files = limit_of(inherited.nofile.rlim_cur);
  limits.open_files_hard = limit_of(inherited.nofile.rlim_max);
  rlimit locked{};
  if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0) limits.locked_memory = limit_of(locked.rlim_cur);
  return limits;
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto whole = fs::absolute(path, error);
  return error ? path : whole.string();
}

// The folder of Python's torch, or empty. It is located without importing it, which takes seconds.
std::string torch_of_python(const Inherited& inherited, Milliseconds limit) {
  auto python = set_variable("PYTHON_EXEC");
  python = find_on_path(python.empty() ? "python3" : python);
  if (python.empty()) return {};
  const auto run = run_briefly({absolute(python), "-c",
                                "import importlib.util as u; s = u.find_spec('torch'); "
                                "print(s.submodule_search_locations[0] if s else '')"},
                               inherited, limit);
  if (run.timed_out || run.status != 0) return {};
  return run.output.substr(0, run.output.find('\n'));
}

}  // namespace

ProgramFacts try_trainer(const Inherited& inherited, Milliseconds limit) {
  ProgramFacts facts;
  try {
    facts.path = trainer_program();
    if (facts.path.empty()) return facts;
    facts.path = absolute(facts.path);
    auto run = run_briefly({facts.path, "version", "--worker"}, inherited, limit);
    facts.timed_out = run.timed_out;
    facts.status = run.status;
    facts.output = std::move(run.output);
  } catch (const std::exception&
               failure) {  // MGPU_TRAIN is not a program, or the process could not be created
    if (facts.path.empty()) facts.path = set_variable("MGPU_TRAIN");
    facts.status = exit_status::kCannotExecute;
    facts.output = failure.what();
  }
  return facts;
}

TorchFacts find_torch(const std::string& trainer, const Inherited& inherited, Milliseconds limit) {
  if (!trainer.empty()) {
    std::error_code missing;
    const auto real = fs::canonical(trainer, missing);
    auto worker = rendezvous::worker_program(real.parent_path(), version_number());
    if (missing || worker.empty()) worker = trainer;
    auto folders = runpath_of(worker);
    const auto beside = fs::path(worker).parent_path().string();
    for (const char* below : {"", "/lib", "/../lib", "/libtorch/lib"})
      folders.push_back(beside + below);
    if (auto torch = read_torch(folders, folders); !torch.folder.empty()) {
      torch.by = "mgpu-train";
      return torch;
    }
  }
  if (const auto root = set_variable("LIBTORCH_ROOT"); !root.empty())
    if (auto torch = read_torch({absolute(root) + "/lib"}); !torch.folder.empty()) {
      torch.by = "LIBTORCH_ROOT";
      return torch;
    }
  const auto root = torch_of_python(inherited, limit);
  auto torch = root.empty() ? TorchFacts{} : read_torch({root + "/lib"});
  torch.by = "python3";
  return torch;
}

DoctorFacts look_up_doctor_facts(const Options& options, const Inherited& inherited,
                                 const Roots& roots) {
  DoctorFacts facts;
  facts.our_version = version_number();
  look_at_gpus(facts, roots);
  facts.trainer = try_trainer(inherited, kLimit);
  const auto torch = within(kLimit + kLimit, [&, trainer = facts.trainer.path] {
    return find_torch(trainer, inherited, kLimit);
  });
  if (torch) facts.torch = *torch;
  facts.any_port = try_port(0);
  if (options.doctor_port) facts.wanted_port = try_port(*options.doctor_port);
  facts.interfaces = find_interfaces();
  facts.fabric = find_fabric(roots);
  look_at_disks(facts);
  facts.memory = look_at_memory(roots);
  facts.limits = look_at_limits(inherited);
  for (const char* name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_P2P_DISABLE",
                           "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "CUDA_LAUNCH_BLOCKING"})
    if (auto value = set_variable(name); !value.empty()) facts.variables[name] = value;
  return facts;
}

}  // namespace mgpu::launcher
