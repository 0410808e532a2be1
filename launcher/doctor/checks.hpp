#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/facts.hpp"

namespace mgpu::launcher {

enum class Verdict { pass, warn, fail };

// What a check came to, and what a person can do about it; advice is empty when all is well.
struct Finding {
  std::string check;
  Verdict verdict = Verdict::pass;
  std::string text;
  std::string advice;
  friend bool operator==(const Finding&, const Finding&) = default;
};

// Judges the facts; looks nothing up. What does not concern this machine (links between GPUs where
// there is one) has no finding. Fail means that jobs cannot run, warn that they may run badly.
std::vector<Finding> examine(const DoctorFacts& facts);

// Parts of it, each with findings of its own.
std::vector<Finding> examine_gpus(const DoctorFacts& facts);
std::vector<Finding> examine_programs(const DoctorFacts& facts);
std::vector<Finding> examine_network(const DoctorFacts& facts);
std::vector<Finding> examine_host(const DoctorFacts& facts);

// "13.0" of 13000.
std::string cuda_text(int version);
// "61.2 GiB", "64.0 MiB".
std::string size_text(std::uint64_t bytes);

}  // namespace mgpu::launcher
