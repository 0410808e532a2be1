#pragma once

#include "launcher/devices/system_tree.hpp"
#include "launcher/doctor/facts.hpp"
#include "launcher/options/options.hpp"
#include "launcher/ranks/inherited.hpp"

namespace mgpu::launcher {

// Collects all facts for the doctor. Everything that might hang (a driver, a file system that does
// not respond, a program) has a limit of ten seconds and is then marked as timed out. Changes
// nothing; starts `mgpu-train version --worker` and, if LibTorch is not found otherwise, python3.
DoctorFacts look_up_doctor_facts(const Options& options, const Inherited& inherited,
                                 const Roots& roots = {});

// Parts of look_up_doctor_facts.
DiskFacts look_at_disk(const std::string& what, const std::string& path);
PortFacts try_port(int port);
std::vector<InterfaceFacts> find_interfaces();
std::map<std::string, bool> find_fabric(const Roots& roots);
MemoryState look_at_memory(const Roots& roots);
ProgramFacts try_trainer(const Inherited& inherited, Milliseconds limit);
TorchFacts find_torch(const std::string& trainer, const Inherited& inherited, Milliseconds limit);

}  // namespace mgpu::launcher
