#include "runtime/commands/start_worker.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/worker_program.hpp"
#include "rendezvous/contract.hpp"
#include "runtime/commands/needed_torch.hpp"
#include "runtime/config/command_line.hpp"

namespace mgpu::recipes {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestBuildFile = 1 << 16;
// The folder of torch where it is not beside the worker; set but empty: Python has none.
constexpr const char* kTorchFolder = "LIBTORCH_ROOT";

// Finds torch as Python does, in other folders of packages too, and starts this program again.
constexpr const char* kFindTorch = R"(import importlib.util, os, sys
sys.path = [folder for folder in sys.path if folder]
found = importlib.util.find_spec("torch")
os.environ["LIBTORCH_ROOT"] = found.submodule_search_locations[0] if found and found.submodule_search_locations else ""
os.execv(sys.argv[1], sys.argv[1:])
)";

// The kernel's NVIDIA module is loaded, and GPUs are not hidden.
bool gpus_are_visible() {
  const char* list = getenv(rendezvous::variable::kCudaVisibleDevices);
  const std::string hidden = list == nullptr ? "0" : list;
  return !hidden.empty() && !hidden.starts_with("-1") && ::access("/dev/nvidiactl", F_OK) == 0;
}

// The Python of the environment that this program is installed in.
std::string python_beside(const fs::path& own) {
  const auto beside = own.parent_path() / "python3";
  return ::access(beside.c_str(), X_OK) == 0 ? beside.string() : "python3";
}

void search_with_python(const std::string& python, const fs::path& own, char** argv) {
  std::string program = own;
  std::string option = "-c", code = kFindTorch;
  std::string name = python;
  std::vector<char*> words{name.data(), option.data(), code.data(), program.data()};
  for (char** word = argv + 1; *word != nullptr; ++word) words.push_back(*word);
  words.push_back(nullptr);
  ::execvp(name.c_str(), words.data());  // without this Python, torch counts as missing
}

// The loader finds the libraries of a torch that is not beside the worker.
void add_library_folders(const fs::path& torch) {
  std::string folders = torch / "lib";
  std::error_code missing;
  for (const auto& package : fs::directory_iterator(torch.parent_path() / "nvidia", missing))
    folders += ":" + (package.path() / "lib").string();
  if (const char* before = getenv("LD_LIBRARY_PATH"); before != nullptr && *before != '\0')
    folders += ":" + std::string(before);
  ::setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
}

// A worker from source knows the folder of its LibTorch; one from a wheel finds torch among the
// packages.
void prepare_torch(const fs::path& worker, const fs::path& own, char** argv) {
  const auto build =
      rendezvous::read_small_file(worker.parent_path() / "build.json", kLongestBuildFile);
  if (!build.complete()) return;
  const auto needed = read_needed_torch(build.text);
  const auto python = python_beside(own);
  const auto packages = worker.parent_path().parent_path();
  auto found = read_torch_package(packages / "torch");
  if (!found) {
    const char* elsewhere = getenv(kTorchFolder);
    if (elsewhere == nullptr) search_with_python(python, own, argv);
    if (elsewhere != nullptr && *elsewhere != '\0') found = read_torch_package(elsewhere);
    if (found) add_library_folders(found->folder);
  }
  if (const auto problem = torch_problem(needed, found, gpus_are_visible(), python);
      !problem.empty())
    throw train::UsageError(problem);
}

}  // namespace

void start_worker(char** argv) {
  std::error_code unknown;
  const fs::path own = fs::read_symlink("/proc/self/exe", unknown);
  const auto worker = rendezvous::worker_program(own.parent_path(), MGPU_VERSION);
  if (worker.empty())
    throw std::runtime_error(fmt::format(
        "the worker of {} is missing: neither {} nor a site-packages/mgpu_train below {} has it; "
        "install mgpu-train again, or build the target mgpu-train-worker",
        own.string(), (own.parent_path().parent_path() / "libexec/mgpu/mgpu-train").string(),
        (own.parent_path().parent_path() / "lib").string()));
  prepare_torch(worker, own, argv);
  ::execv(worker.c_str(), argv);
  throw std::runtime_error(
      fmt::format("cannot start {}: {}", worker, rendezvous::error_text(errno)));
}

}  // namespace mgpu::recipes
