#include "runtime/rewards/sandbox/system_call_filter.hpp"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace mgpu::rewards {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif

constexpr std::uint32_t kX32 = 0x40000000;  // system calls of x86-64's ABI with 32-bit pointers
constexpr std::uint32_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                         CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
constexpr std::uint32_t kSocketType = 0xf;  // the type without SOCK_CLOEXEC and SOCK_NONBLOCK

constexpr long kClone = SYS_clone;
constexpr long kClone3 = SYS_clone3;
constexpr std::array<long, 13> kForbidden = {
    SYS_unshare,          SYS_setns,  SYS_keyctl,           SYS_add_key,
    SYS_request_key,      SYS_bpf,    SYS_perf_event_open,  SYS_userfaultfd,
    SYS_io_uring_setup,   SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
    SYS_open_by_handle_at};

sock_filter load_word(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}

// The lower half of an argument. The kernel ignores the upper half of those that are looked at.
sock_filter load_argument(std::size_t number) {
  return load_word(offsetof(seccomp_data, args) + number * sizeof(std::uint64_t));
}

// Runs the next instruction if the value is equal (has one of the bits), else skips `skipped`.
sock_filter if_equal(long value, std::uint8_t skipped = 1) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(value), 0, skipped);
}
sock_filter if_any_bit(std::uint32_t bits) {
  return BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
}

sock_filter end_with(std::uint32_t what) {
  return BPF_STMT(BPF_RET | BPF_K, what);
}
sock_filter fail_with(int error) {
  return end_with(SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error));
}
sock_filter allow_call() {
  return end_with(SECCOMP_RET_ALLOW);
}

}  // namespace

std::vector<sock_filter> system_call_filter() {
  if (kArchitecture == 0) return {};
  std::vector<sock_filter> filter;
  const auto add = [&](std::initializer_list<sock_filter> all) {
    filter.insert(filter.end(), all);
  };
  add({load_word(offsetof(seccomp_data, arch)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),  // else: 32-bit system calls
       end_with(SECCOMP_RET_KILL_PROCESS), load_word(offsetof(seccomp_data, nr))});
#if defined(__x86_64__)
  add({if_any_bit(kX32), fail_with(ENOSYS)});
#endif
  for (const auto call : kForbidden) add({if_equal(call), fail_with(EPERM)});
  add({if_equal(kClone3), fail_with(ENOSYS)});  // its flags are in memory; callers use clone then
  add({if_equal(kClone, 4), load_argument(0), if_any_bit(kNewNamespaces), fail_with(EPERM),
       allow_call()});
  add({if_equal(SYS_socket, 8), load_argument(0), if_equal(AF_INET), allow_call(),
       if_equal(AF_INET6), allow_call(), if_equal(AF_NETLINK), allow_call(), fail_with(EACCES)});
  // A pair of datagram sockets can be connected to another socket later.
  add({if_equal(SYS_socketpair, 7), load_argument(1),
       BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kSocketType), if_equal(SOCK_STREAM), allow_call(),
       if_equal(SOCK_SEQPACKET), allow_call(), fail_with(EACCES)});
  add({allow_call()});
  return filter;
}

}  // namespace mgpu::rewards
