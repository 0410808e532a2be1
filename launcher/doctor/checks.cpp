#include "launcher/doctor/checks.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "launcher/lifecycle/text_lines.hpp"

namespace mgpu::launcher {
namespace {

bool has_visible_gpu(const DoctorFacts& facts) {
  const auto& gpus = facts.devices.gpus;
  return std::any_of(gpus.begin(), gpus.end(), [](const auto& gpu) { return gpu.visible; });
}

// 13000 for "13.0"; 0 when it is not a version.
int cuda_number(std::string_view text) {
  int major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, major);
  if (error != std::errc() || major > 1000) return 0;
  if (dot != end) std::from_chars(dot + 1, end, minor);
  return 1000 * major + 10 * std::clamp(minor, 0, 99);
}

Finding torch_finding(const DoctorFacts& facts) {
  const auto& torch = facts.torch;
  if (torch.folder.empty())
    return {"libtorch", Verdict::warn,
            "not found beside mgpu-train, in LIBTORCH_ROOT or in python3",
            "mgpu-train needs it: run the command that mgpu-train version --worker prints (in the "
            "source tree: scripts/setup.sh --torch), or set LIBTORCH_ROOT"};
  const auto text = fmt::format("{} in {} (found by {})",
                                torch.version.empty() ? "unknown version" : torch.version,
                                torch.folder, torch.by);
  if (has_visible_gpu(facts) && !torch.has_cuda_library)
    return {"libtorch", Verdict::warn, text + ": CPU-only build",
            "use a build with CUDA, or the GPUs stay idle"};
  return {"libtorch", Verdict::pass, text};
}

// Whether the driver is new enough; minor versions are compatible.
Finding cuda_finding(const DoctorFacts& facts) {
  const auto& torch = facts.torch;
  const int built_for = cuda_number(torch.cuda);
  const auto text = fmt::format(
      "LibTorch is built for {}, {}", torch.cuda,
      torch.cudart.empty() ? "its run-time library was not found" : "run-time " + torch.cudart);
  if (facts.driver_cuda == 0 || built_for == 0) return {"cuda", Verdict::pass, text};
  if (built_for / 1000 > facts.driver_cuda / 1000)
    return {"cuda", Verdict::fail,
            fmt::format("{}; driver {} supports CUDA up to {}", text, facts.devices.driver,
                        cuda_text(facts.driver_cuda)),
            fmt::format("install a driver for CUDA {} or newer, or a LibTorch for CUDA {}",
                        built_for / 1000, facts.driver_cuda / 1000)};
  return {"cuda", Verdict::pass, text};
}

Finding nccl_finding(const DoctorFacts& facts) {
  if (!facts.torch.nccl.empty()) return {"nccl", Verdict::pass, facts.torch.nccl};
  return {"nccl", Verdict::warn, "no libnccl.so.2 beside this LibTorch",
          "NCCL may be linked in; if ranks cannot find it, install the nvidia-nccl package for its "
          "CUDA version"};
}

Finding trainer_finding(const DoctorFacts& facts) {
  const auto& trainer = facts.trainer;
  if (trainer.path.empty())
    return {"mgpu-train", Verdict::warn,
            "not found beside mgpu-run or on PATH: recipes (.yaml) cannot run",
            "install or build it, or set MGPU_TRAIN; scripts and programs run without it"};
  if (trainer.timed_out)
    return {"mgpu-train", Verdict::fail, trainer.path + " version --worker did not exit in time",
            "its libraries may be on a file system that does not respond: run it by hand"};
  const std::string last_output(
      last_line(trainer.output.substr(0, trainer.output.find_last_not_of(" \t\r\n") + 1)));
  if (trainer.status != 0)
    return {"mgpu-train", Verdict::fail,
            fmt::format("{} version --worker exited with status {}{}{}", trainer.path,
                        trainer.status, last_output.empty() ? "" : ": ", last_output),
            last_output.find("shared libraries") != last_output.npos
                ? "a library that it needs has moved: install torch again, or rebuild it"
                : "do what its message says, or install or build it again"};
  if (last_output.find(facts.our_version) == last_output.npos)
    return {"mgpu-train", Verdict::warn,
            fmt::format("{} is {}, mgpu-run is {}", trainer.path, last_output, facts.our_version),
            "build both from the same source tree"};
  return {"mgpu-train", Verdict::pass, fmt::format("{} in {}", last_output, trainer.path)};
}

}  // namespace

std::vector<Finding> examine_programs(const DoctorFacts& facts) {
  std::vector<Finding> findings{trainer_finding(facts), torch_finding(facts)};
  if (facts.torch.has_cuda_library) {
    findings.push_back(cuda_finding(facts));
    findings.push_back(nccl_finding(facts));
  }
  return findings;
}

std::vector<Finding> examine(const DoctorFacts& facts) {
  std::vector<Finding> all;
  for (const auto part : {examine_gpus, examine_programs, examine_network, examine_host}) {
    auto findings = part(facts);
    std::move(findings.begin(), findings.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace mgpu::launcher
