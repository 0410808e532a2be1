#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <cstddef>

namespace mgpu::rewards {

// What a process does to become a sandbox, in order.
enum class SandboxStep : int {
  make_namespaces,
  map_users,
  descriptors,
  session,
  private_mounts,
  open_readable,
  read_only,
  empty_tmp,
  small_dev,
  show_readable,
  own_proc,
  hide_kernel,
  working_folder,
  unprivileged_user,
  drop_capabilities,
  die_with_trainer,
  limits,
  process_limit,
  filter,
  run_shell,
};

// What the new process reports if a step fails; it then exits. It reports nothing if all succeed.
struct SandboxFailure {
  SandboxStep step{};
  int error = 0;  // errno
  int item = -1;  // index in SandboxEntry::readable, if the step is about one of them
};

constexpr std::size_t kMostReadable = 64;
constexpr uid_t kNobody = 65534;

// Everything that the new process needs. It is complete before the process is made: afterwards no
// memory may be allocated, because another thread may have held the allocator's lock.
struct SandboxEntry {
  char* const* argv = nullptr;            // a shell's, with its path
  char* const* environment = nullptr;     // all of it
  const char* folder = nullptr;           // the working folder, an absolute path
  const char* const* readable = nullptr;  // absolute paths in /tmp and /dev/shm that stay visible
  std::size_t readable_count = 0;
  sock_fprog filter{};
  bool maps_all_users = false;  // we are root: the program becomes nobody and can read all files
  char* scratch = nullptr;      // for the list of mounts
  std::size_t scratch_size = 0;
  int in = -1, out = -1, err = -1;  // its stdin, stdout, stderr
  int go = -1;      // has a byte when its users are mapped; ends when the trainer has ended
  int report = -1;  // gets a SandboxFailure; ends without one when the shell runs
};

// Runs in the new process, the first one in its namespaces. Only async-signal-safe calls.
[[noreturn]] void enter_sandbox(const SandboxEntry& entry);

}  // namespace mgpu::rewards
