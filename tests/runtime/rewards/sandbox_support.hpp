#pragma once

#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/temp_dir.hpp"

namespace mgpu::tests {

constexpr uid_t kNobodyUser = 65534;

// How a process of a test ended, and what it returned or threw.
struct Ended {
  std::string text{};
  int signal = 0;
};

// Runs `work` as a user in its own process, whose limits, namespaces and filters it may change.
inline Ended run_as(uid_t user, const std::function<std::string()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    std::string text;
    try {
      if (user != ::geteuid()) {
        if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0)
          throw std::runtime_error("setuid");
        ::prctl(PR_SET_DUMPABLE, 1);  // as after an exec; else its files in /proc belong to root
        if (::chdir("/") != 0) throw std::runtime_error("chdir");
      }
      text = work();
    } catch (const std::exception& e) {
      text = std::string("threw: ") + e.what();
    }
    ::_exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0
                                                                                            : 1);
  }
  ::close(ends[1]);
  Ended ended;
  char piece[512];
  for (ssize_t got; (got = ::read(ends[0], piece, sizeof piece)) > 0;)
    ended.text.append(piece, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

// The users that sandboxes are tested as: ours, and for root also one without privileges. Users
// that cannot make namespaces on this machine at all are left out.
inline std::vector<uid_t> sandbox_users() {
  std::vector<uid_t> users;
  for (const uid_t user : {::geteuid(), kNobodyUser}) {
    if (user != ::geteuid() && ::geteuid() != 0) continue;
    const auto tried = run_as(user, [] {  // not unshare: ThreadSanitizer's own thread forbids it
      constexpr int kSome = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID;
      const auto pid = ::syscall(SYS_clone, SIGCHLD | kSome, nullptr, nullptr, nullptr, nullptr);
      if (pid == 0) ::_exit(0);
      return pid > 0 ? "" : "no";
    });
    if (tried.text.empty()) users.push_back(user);
  }
  return users;
}

inline const json kIn = {{"reward_sandbox", true}, {"reward_timeout", 120}};
inline const json kOut = {{"reward_timeout", 120}};

// A Python reward file in a folder that all users can read and write.
struct OpenFile {
  TempDir dir;
  std::string path = dir.path("my_rewards.py");

  explicit OpenFile(const std::string& text, const std::string& parent = "/tmp") : dir(parent) {
    std::ofstream(path) << text;
    std::filesystem::permissions(dir.root(), std::filesystem::perms::all);
    std::filesystem::permissions(path, static_cast<std::filesystem::perms>(0666));
  }
  std::string function(const std::string& name) const { return path + ":" + name; }
};

// One score per text; texts are the names of Python functions that return a number.
inline const char* const kDispatch =
    "def each(completions, **columns):\n"
    "    row = {name: values[0] for name, values in columns.items() if isinstance(values, list)}\n"
    "    return [float(globals()[name](row)) for name in completions]\n";

inline std::string text_of(const std::vector<Score>& scores) {
  std::ostringstream text;
  text.precision(12);
  for (const auto& score : scores) text << (text.tellp() > 0 ? " " : "") << score.value_or(-99);
  return text.str();
}

// From now on a system call fails in this process and in those that it starts; with `flags` only
// calls whose first argument has one of these bits.
inline void forbid(long call, int error, unsigned flags = 0) {
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0,
               static_cast<unsigned char>(flags ? 3 : 1)),
  };
  if (flags != 0) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    throw std::runtime_error("cannot install a filter");
}

// The processes whose command line contains a text.
inline std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    if (line.find(text) != line.npos && std::stoi(name) != ::getpid())
      found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace mgpu::tests
