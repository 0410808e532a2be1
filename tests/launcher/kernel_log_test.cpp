#include "launcher/ranks/kernel_log.hpp"

#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using mgpu::launcher::KernelLog;

TEST_CASE("an Xid of the hardware is found in the kernel's log", "[kernel_log]") {
  const mgpu::tests::TempDir dir;
  const std::string path = dir.path("kmsg");
  std::ofstream file(path);
  const auto write = [&](const char* record) { file << record << '\n' << std::flush; };
  const char* const fault = "4,7,98,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus";
  write(fault);
  KernelLog log(path);
  log.begin_attempt();

  SECTION("but not one from before the attempt") {
    CHECK(log.gpu_fault().empty());
  }
  SECTION("but not one that a program has caused") {
    write("4,8,99,-;NVRM: Xid (PCI:0000:17:00): 31, pid=7, MMU Fault");
    CHECK(log.gpu_fault().empty());
  }
  SECTION("without the fields before its text") {
    write("6,8,99,-;usb 1-1: new device");
    write(fault);
    write(" SUBSYSTEM=pci");
    CHECK(log.gpu_fault() == "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus");
  }
}

TEST_CASE("a kernel log that cannot be read has no faults", "[kernel_log]") {
  KernelLog log("/nonexistent/kmsg");
  log.begin_attempt();
  CHECK(log.gpu_fault().empty());
}
