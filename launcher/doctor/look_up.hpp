#pragma once

#include "launcher/devices/system_tree.hpp"
#include "launcher/doctor/facts.hpp"
#include "launcher/options/options.hpp"
#include "launcher/ranks/inherited.hpp"

namespace mgpu::launcher {

// Looks everything up that the doctor judges. Whatever might hang, a driver, a file system that is
// gone, a program, is given ten seconds and then told as late. Changes nothing; starts mgpu-train
// --version and, where no LibTorch is found without it, python3.
DoctorFacts look_up_doctor_facts(const Options& options, const Inherited& inherited,
                                 const Roots& roots = {});

// The parts that need more than a line.
DiskFacts look_at_disk(const std::string& what, const std::string& path);
PortFacts try_port(int port);
std::vector<InterfaceFacts> find_interfaces();
std::map<std::string, bool> find_fabric(const Roots& roots);
MemoryState look_at_memory(const Roots& roots);
ProgramFacts try_trainer(const Inherited& inherited, Milliseconds limit);
TorchFacts find_torch(const std::string& trainer, const Inherited& inherited, Milliseconds limit);

}  // namespace mgpu::launcher
