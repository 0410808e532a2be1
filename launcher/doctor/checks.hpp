#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/doctor/facts.hpp"

namespace mgpu::launcher {

enum class Verdict { pass, warn, fail };

// The result of a check and what to do about it; advice is empty when the check passed.
struct Finding {
  std::string check;
  Verdict verdict = Verdict::pass;
  std::string text;
  std::string advice;
  friend bool operator==(const Finding&, const Finding&) = default;
};

// Evaluates the facts; reads nothing else. Checks that do not apply to this machine (such as links
// when there is one GPU) have no finding. Fail: jobs cannot run; warn: they may run badly.
std::vector<Finding> examine(const DoctorFacts& facts);

// The parts of examine.
std::vector<Finding> examine_gpus(const DoctorFacts& facts);
std::vector<Finding> examine_programs(const DoctorFacts& facts);
std::vector<Finding> examine_network(const DoctorFacts& facts);
std::vector<Finding> examine_host(const DoctorFacts& facts);

inline constexpr std::uint64_t kMiB = 1ull << 20, kGiB = 1ull << 30;

// "13.0" of 13000.
std::string cuda_text(int version);

}  // namespace mgpu::launcher
