#include <fcntl.h>
#include <linux/capability.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "rendezvous/base/passing_error.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "runtime/rewards/sandbox.hpp"
#include "tests/runtime/rewards/sandbox_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

void write_text(const std::string& path, const std::string& text) {
  const rendezvous::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
}

// A program that notes that it has run.
std::string noting(const std::string& note) {
  return "cmd: touch " + note;
}

}  // namespace

TEST_CASE("a sandbox that cannot be made is refused in one line, and no program runs",
          "[rewards][sandbox]") {
  struct Case {
    const char* failed;
    long call;
    int error;
    unsigned flags = 0;
  };
  const Case tried = GENERATE(values<Case>({
      {"creating namespaces: Operation not permitted", SYS_clone, EPERM, CLONE_NEWUSER},
      {"making mounts private: Operation not permitted", SYS_mount, EPERM},
      {"creating a session: Operation not permitted", SYS_setsid, EPERM},
      {"dropping capabilities: Operation not permitted", SYS_capset, EPERM},
      {"entering the working folder: Permission denied", SYS_chdir, EACCES},
      {"limiting its resources: Operation not permitted", SYS_prlimit64, EPERM},
      {"running /bin/sh: Permission denied", SYS_execve, EACCES},
  }));
  const TempDir dir("/var/tmp");
  std::filesystem::permissions(dir.root(), std::filesystem::perms::all);
  const auto note = dir.path("note");
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user, tried.failed);
    const auto message = run_as(user, [&] {
      forbid(tried.call, tried.error, tried.flags);
      auto settings = kIn;
      settings["reward_on_error"] = "none";
      const auto refused = message_of([&] { Batch({"a"}).scored_by(noting(note), settings); });
      // Rewards that start no process are not affected.
      rewards::make_reward("http://127.0.0.1:9/score", rewards::read_settings(settings));
      rewards::make_reward("format", rewards::read_settings(settings));
      return refused;
    });
    CHECK_THAT(message.text, Contains("reward_sandbox: cannot start a sandbox on "));
    CHECK_THAT(message.text, Contains(tried.failed));
    CHECK_THAT(message.text, Contains("set reward_sandbox: false if you trust"));
    CHECK(message.text.find('\n') == message.text.npos);
    CHECK_FALSE(std::filesystem::exists(note));
  }
}

TEST_CASE("a machine that has too many processes for a sandbox may have fewer later",
          "[rewards][sandbox]") {
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto message = run_as(user, [] {
      forbid(SYS_clone, EAGAIN, CLONE_NEWUSER);
      try {
        rewards::make_reward("cmd: true", rewards::read_settings(kIn));
      } catch (const std::exception& e) {
        return (rendezvous::is_passing(e) ? "passing: " : "refused: ") + std::string(e.what());
      }
      return std::string();
    });
    CHECK_THAT(message.text, Contains("passing: reward_sandbox: cannot start a sandbox on "));
    CHECK_THAT(message.text, Contains("raise the limit of processes (ulimit -u)"));
  }
}

TEST_CASE("the limit of user namespaces is named if it does not allow a sandbox",
          "[rewards][sandbox]") {
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto message = run_as(user, [&] {
      const auto gid = ::getegid();
      if (::unshare(CLONE_NEWUSER) != 0)
        return std::string("not here");  // ThreadSanitizer's thread
      const auto only = [](unsigned id) {
        return std::to_string(id) + " " + std::to_string(id) + " 1";
      };
      write_text("/proc/self/setgroups", "deny");
      write_text("/proc/self/uid_map", only(user));
      write_text("/proc/self/gid_map", only(gid));
      const char* const limit = "/proc/sys/user/max_user_namespaces";
      if (!rendezvous::UniqueFd(::open(limit, O_WRONLY | O_CLOEXEC)))
        return std::string("not here");
      write_text(limit, "0");
      return message_of([&] { rewards::make_reward("cmd: true", rewards::read_settings(kIn)); });
    });
    if (message.text == "not here") continue;  // or /proc/sys is read-only
    CHECK_THAT(message.text, Contains("creating namespaces: No space left on device; run sysctl "
                                      "user.max_user_namespaces=10000 as root, or set"));
  }
}

TEST_CASE("root that cannot change its user is refused: its processes have no limit",
          "[rewards][sandbox]") {
  if (::geteuid() != 0 || sandbox_users().empty()) return;
  const auto message = run_as(0, [] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2]{};
    if (::syscall(SYS_capget, &header, sets) != 0) throw std::runtime_error("capget");
    for (auto* set : {&sets[0].effective, &sets[0].permitted}) *set &= ~(1U << CAP_SETUID);
    sets[0].inheritable = sets[1].inheritable = 0;
    if (::syscall(SYS_capset, &header, sets) != 0) throw std::runtime_error("capset");
    return message_of([&] { rewards::make_reward("cmd: true", rewards::read_settings(kIn)); });
  });
  CHECK_THAT(message.text, Contains("limiting its number of processes") && Contains("SETUID"));
}

TEST_CASE("a sandbox that cannot be made later ends the run, also with reward_on_error none",
          "[rewards][sandbox]") {
  const TempDir dir("/var/tmp");
  std::filesystem::permissions(dir.root(), std::filesystem::perms::all);
  const auto note = dir.path("note");
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto message = run_as(user, [&] {
      auto settings = kIn;
      settings["reward_on_error"] = "none";
      const auto reward = rewards::make_reward(noting(note), rewards::read_settings(settings));
      forbid(SYS_mount, EPERM);
      return message_of([&] { Batch({"a"}).scored_by(*reward); });
    });
    CHECK_THAT(message.text, Contains("reward cmd: touch ") &&
                                 Contains("reward_sandbox: cannot start a sandbox on "));
    CHECK_FALSE(std::filesystem::exists(note));
  }
}

TEST_CASE("only listed variables reach a sandbox", "[rewards][sandbox]") {
  const std::vector<std::string> given = {
      "LC_TIME=C",       "PYTHONHASHSEED=0",  "OMP_NUM_THREADS=3", "AWS_SECRET_ACCESS_KEY=s",
      "WANDB_API_KEY=s", "MGPU_RDZV_TOKEN=s", "SSH_AUTH_SOCK=/s",  "PATHS=s"};
  const auto ended = run_as(::geteuid(), [&] {
    ::clearenv();
    std::vector<std::string> copies = given;
    for (auto& one : copies) ::putenv(one.data());
    std::string list;
    for (const auto& one : rewards::sandbox_environment()) list += one + " ";
    return list;
  });
  CHECK(ended.text == "LC_TIME=C PYTHONHASHSEED=0 OMP_NUM_THREADS=3 ");
}

TEST_CASE("reward_sandbox is true or false", "[rewards][sandbox]") {
  CHECK_FALSE(rewards::read_settings(json::object()).reward_sandbox);
  CHECK(rewards::read_settings({{"reward_sandbox", true}}).reward_sandbox);
  CHECK_THAT(message_of([] { rewards::read_settings({{"reward_sandbox", "maybe"}}); }),
             Contains("reward_sandbox must be true or false"));
}
