#pragma once

#include <sys/resource.h>

// The limits of a sandbox. docs/rewards.md lists them.
namespace mgpu::rewards {

constexpr rlim_t kSandboxProcesses = 1024;  // and threads, of all programs of one sandbox together
constexpr rlim_t kSandboxMemory = rlim_t{32} << 30;  // address space of a process
constexpr rlim_t kSandboxFile = rlim_t{256} << 20;   // size of a file
constexpr rlim_t kSandboxDescriptors = 1024;         // of a process
constexpr const char* kSandboxTmp = "size=256m,nr_inodes=65536,mode=1777";
constexpr const char* kSandboxShm = "size=256m,nr_inodes=4096,mode=1777";

}  // namespace mgpu::rewards
