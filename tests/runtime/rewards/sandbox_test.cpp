#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "rendezvous/base/unique_fd.hpp"
#include "tests/runtime/rewards/sandbox_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using rendezvous::UniqueFd;

namespace {

// Listens at an address; connections wait in its queue.
UniqueFd listening(const sockaddr* address, socklen_t size, int type) {
  UniqueFd fd(::socket(address->sa_family, type | SOCK_CLOEXEC, 0));
  if (!fd || ::bind(fd.get(), address, size) != 0 ||
      (type == SOCK_STREAM && ::listen(fd.get(), 64) != 0))
    throw std::runtime_error(std::string("cannot listen: ") + std::strerror(errno));
  return fd;
}

UniqueFd listening_on_loopback(int& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto fd = listening(reinterpret_cast<sockaddr*>(&address), sizeof address, SOCK_STREAM);
  socklen_t size = sizeof address;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
  return fd;
}

UniqueFd listening_at(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  auto fd = listening(reinterpret_cast<sockaddr*>(&address), sizeof address, type);
  std::filesystem::permissions(path, std::filesystem::perms::all);
  return fd;
}

bool within(std::chrono::seconds limit, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

}  // namespace

TEST_CASE("what a reward program can do outside, it cannot do in a sandbox", "[rewards][sandbox]") {
  const OpenFile file(std::string(R"(
import ctypes, os, signal, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)

def tried(action):
    try:
        action()
        return 1
    except (OSError, KeyError) as error:
        print(error, file=sys.stderr)
        return 0

def connect(row):
    return tried(lambda: socket.create_connection(("127.0.0.1", row["port"]), 5))

def connect_unix(row):
    return tried(lambda: socket.socket(socket.AF_UNIX).connect(row["stream"]))

def send_unix(row):
    def send():
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        pair[0].sendto(b"x", row["datagram"])
    return tried(send)

def write_beside(row):
    return tried(lambda: open(os.path.join(os.path.dirname(__file__), "new"), "w").close())

def write_own_file(row):
    return tried(lambda: open(__file__, "a").close())

def change_own_file(row):
    return tried(lambda: os.chmod(__file__, 0o666))

def write_home(row):
    return tried(lambda: open(os.path.join(os.environ["HOME"], "new"), "w").close())

def delete_home(row):
    return tried(lambda: os.rmdir(os.path.join(os.environ["HOME"], "folder")))

def read_other_tmp(row):
    return tried(lambda: open(row["other"]).close())

def read_secrets(row):
    return tried(lambda: os.environ["HF_TOKEN"] + os.environ["MGPU_RDZV_TOKEN"])

def signal_trainer(row):
    return tried(lambda: os.kill(row["trainer"], 0))

def see_trainer(row):
    names = [f"/proc/{pid}/comm" for pid in os.listdir("/proc") if pid.isdigit()]
    return any(row["name"] == open(name).read() for name in names if os.path.exists(name))

def in_child(action):
    child = os.fork()
    if child == 0:
        os._exit(0 if action() == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def debug(row):
    child = os.fork()
    if child == 0:
        signal.pause()
    PTRACE_SEIZE = 0x4206
    done = libc.ptrace(PTRACE_SEIZE, child, None, None) == 0
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return done

def new_namespace(row):
    CLONE_NEWUSER = 0x10000000
    return in_child(lambda: libc.unshare(CLONE_NEWUSER))

def write_device(row):
    return tried(lambda: open(row["device"], "w").close())
)") + kDispatch);
  const TempDir home("/var/tmp"), other("/tmp");
  std::filesystem::permissions(home.root(), std::filesystem::perms::all);
  std::filesystem::permissions(other.root(), std::filesystem::perms::all);
  std::ofstream(other.path("file")) << "x";
  int port = 0;
  const auto tcp = listening_on_loopback(port);
  const auto stream = listening_at(home.path("stream"), SOCK_STREAM);
  const auto datagram = listening_at(home.path("datagram"), SOCK_DGRAM);
  std::ifstream comm("/proc/self/comm");
  const std::string name{std::istreambuf_iterator<char>(comm), {}};
  std::vector<std::string> attacks = {
      "connect",     "connect_unix", "send_unix",      "write_beside", "write_own_file",
      "write_home",  "delete_home",  "read_other_tmp", "read_secrets", "signal_trainer",
      "see_trainer", "debug",        "new_namespace"};
  const auto device = home.path("null");
  if (::mknod(device.c_str(), S_IFCHR | 0666, ::makedev(1, 3)) == 0) {
    ::chmod(device.c_str(), 0666);
    attacks.emplace_back("write_device");
  } else {
    WARN("device nodes cannot be made here");
  }
  const auto successes = [&](uid_t user, const json& settings) {
    std::filesystem::create_directory(home.path("folder"));
    for (const auto* folder : {&home, &file.dir}) std::filesystem::remove(folder->path("new"));
    const auto ended = run_as(user, [&] {
      ::setenv("HOME", home.root().c_str(), 1);
      ::setenv("HF_TOKEN", "secret", 1);
      ::setenv("MGPU_RDZV_TOKEN", "secret", 1);
      const Batch batch(attacks, {{"prompt", "q"},
                                  {"port", port},
                                  {"stream", home.path("stream")},
                                  {"datagram", home.path("datagram")},
                                  {"other", other.path("file")},
                                  {"device", device},
                                  {"trainer", ::getpid()},
                                  {"name", name}});
      const auto scores = batch.scored_by(file.function("each"), settings);
      std::string list;
      for (std::size_t i = 0; i < attacks.size(); ++i)
        if (scores[i] != Score(0)) list += (list.empty() ? "" : " ") + attacks[i];
      return list;
    });
    std::filesystem::remove(home.path("folder"));
    return ended.text;
  };
  std::string all;
  for (const auto& attack : attacks) all += (all.empty() ? "" : " ") + attack;
  if (sandbox_users().empty()) WARN("this machine allows no namespaces: sandboxes are not tested");
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    CHECK(successes(user, kOut) == all);  // else the next line proves nothing
    CHECK(successes(user, kIn).empty());
  }
}

// A socket belongs to the network namespace in which it was made, wherever it is used: a program
// could bind it to a name that everybody sees.
TEST_CASE("a reward program has no socket of its trainer", "[rewards][sandbox]") {
  const OpenFile file(std::string(R"(
import os, stat

def sockets(row):
    return sum(stat.S_ISSOCK(os.fstat(fd).st_mode) for fd in (0, 1, 2))
)") + kDispatch);
  for (const uid_t user : sandbox_users())
    for (const auto& settings : {kOut, kIn}) {
      const auto ended = run_as(user, [&] {
        const Batch batch({"sockets"}, {{"prompt", "q"}});
        const auto scores = batch.scored_by(file.function("each"), settings);
        return std::string(scores[0] == Score(0) ? "none" : "some");
      });
      CAPTURE(user);
      CHECK(ended.text == "none");
    }
}

TEST_CASE("a fork bomb in a sandbox is limited", "[rewards][sandbox]") {
  // It tries 2,000 processes and no more, should the limit not exist.
  const OpenFile file(
      "import os, signal\n"
      "def bomb(completions, **columns):\n"
      "    started = 0\n"
      "    try:\n"
      "        for _ in range(2000):\n"
      "            if os.fork() == 0:\n"
      "                signal.alarm(300)\n"
      "                signal.pause()\n"
      "                os._exit(0)\n"
      "            started += 1\n"
      "    except BlockingIOError:\n"
      "        pass\n"
      "    return [float(started)] * len(completions)\n");
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto ended = run_as(user, [&] {
      const auto scores = Batch({"a"}, {{"prompt", "q"}}).scored_by(file.function("bomb"), kIn);
      return text_of(scores) + (processes_with(file.path).empty() ? "" : " and some are left");
    });
    CAPTURE(ended.text);
    CHECK(ended.text.find("left") == ended.text.npos);
    const double started = std::strtod(ended.text.c_str(), nullptr);
    CHECK(started > 50);
    CHECK(started < 1024);
  }
}

TEST_CASE("a reward program in a sandbox cannot kill its parent", "[rewards][sandbox]") {
  const OpenFile file(
      "import os, signal\n"
      "def kill(completions, **columns):\n"
      "    os.kill(os.getppid(), signal.SIGKILL)\n"
      "    os.kill(os.getppid(), signal.SIGSTOP)\n"
      "    return [1.0] * len(completions)\n");
  const auto kill = [&](uid_t user, const json& settings) {
    return run_as(user, [&] {
      return text_of(Batch({"a"}, {{"prompt", "q"}}).scored_by(file.function("kill"), settings));
    });
  };
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    CHECK(kill(user, kOut).signal == SIGKILL);
    CHECK(kill(user, kIn).text == "1");
  }
}

TEST_CASE("processes that a reward program leaves behind end with its sandbox",
          "[rewards][sandbox]") {
  const auto mark = "1000." + std::to_string(::getpid());
  const OpenFile file(
      "import subprocess\n"
      "def leave(completions, **columns):\n"
      "    subprocess.Popen(['sh', '-c', 'sleep " +
      mark + " & sleep " + mark +
      "'], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,\n"
      "                     stderr=subprocess.DEVNULL)\n"
      "    return [1.0] * len(completions)\n");
  const Batch batch({"a"}, {{"prompt", "q"}});
  const auto sleepers = "sleep" + std::string(1, '\0') + mark;
  const auto none = [&] { return processes_with(sleepers).empty(); };
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    SECTION("when the reward is stopped, user " + std::to_string(user)) {
      const auto left_by = [&](const json& settings) {
        return run_as(user,
                      [&] {
                        auto reward = rewards::make_reward(file.function("leave"),
                                                           rewards::read_settings(settings));
                        batch.scored_by(*reward);
                        if (!within(30s, [&] { return processes_with(sleepers).size() == 2; }))
                          return std::string("they have not started");
                        reward.reset();
                        return std::to_string(processes_with(sleepers).size());
                      })
            .text;
      };
      CHECK(left_by(kOut) == "2");
      for (const pid_t pid : processes_with(sleepers)) ::kill(pid, SIGKILL);
      REQUIRE(within(30s, none));
      CHECK(left_by(kIn) == "0");
    }
    SECTION("when the trainer is killed, user " + std::to_string(user)) {
      // It does not end when its stdin does.
      const auto name = "cmd: sh -c 'sleep " + mark + R"( & read q; echo "{\"scores\":[1]}"; )" +
                        "exec sleep " + mark + "'";
      const auto ended = run_as(user, [&]() -> std::string {
        const auto reward = rewards::make_reward(name, rewards::read_settings(kIn));
        batch.scored_by(*reward);
        if (!within(30s, [&] { return processes_with(sleepers).size() == 2; }))
          return "they have not started";
        ::kill(::getpid(), SIGKILL);
        return "";
      });
      CHECK(ended.text.empty());
      CHECK(ended.signal == SIGKILL);
      CHECK(within(30s, none));
    }
    SECTION("when the program exits, user " + std::to_string(user)) {
      const auto ended = run_as(user, [&] {
        const auto problem = message_of([&] {
          batch.scored_by("cmd: sh -c 'setsid sleep " + mark + " >&- 2>&- & exit 5'", kIn);
        });
        return problem + (none() ? "" : " and some are left");
      });
      CHECK_THAT(ended.text, Contains("exited with status 5 before it answered"));
      CHECK(ended.text.find("left") == ended.text.npos);
    }
  }
}

TEST_CASE("a sandbox has no capabilities, and as root it is nobody and reads root's files",
          "[rewards][sandbox]") {
  const OpenFile file(std::string(R"(
import ctypes, os
libc = ctypes.CDLL(None)

def user(row):
    return os.getuid()

def groups(row):
    return len(os.getgroups())

def capabilities(row):
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    return sets[0] | sets[1] | sets[2] | (sets[3] | sets[4] | sets[5]) << 32

def no_new_privileges(row):
    PR_GET_NO_NEW_PRIVS = 39
    return libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)

def core(row):
    import resource
    return resource.getrlimit(resource.RLIMIT_CORE)[1]

def files(row):
    import resource
    return resource.getrlimit(resource.RLIMIT_FSIZE)[1]
)") + kDispatch,
                      "/var/tmp");
  const Batch batch({"user", "capabilities", "no_new_privileges", "core", "files"},
                    {{"prompt", "q"}});
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const bool root = user == 0;
    std::filesystem::permissions(
        file.dir.root(), root ? std::filesystem::perms::owner_all : std::filesystem::perms::all);
    const auto ended =
        run_as(user, [&] { return text_of(batch.scored_by(file.function("each"), kIn)); });
    const auto inside = std::to_string(root ? kNobodyUser : user);
    const auto read_all = std::to_string(root ? 1 << CAP_DAC_READ_SEARCH : 0);
    CHECK(ended.text == inside + " " + read_all + " 1 0 268435456");
  }
}

TEST_CASE("what a sandbox writes to /tmp is not seen outside", "[rewards][sandbox]") {
  const auto name = "/tmp/mgpu-sandbox-" + std::to_string(::getpid());
  const OpenFile file(
      "import os\n"
      "def write(completions, **columns):\n"
      "    for path in ('" +
      name + "', '/dev/shm' + '" + name +
      "'[4:]):\n"
      "        with open(path, 'w') as file:\n"
      "            file.write('x')\n"
      "        assert os.path.exists(path)\n"
      "    return [1.0] * len(completions)\n");
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto ended = run_as(user, [&] {
      auto reward = rewards::make_reward(file.function("write"), rewards::read_settings(kIn));
      const auto text = text_of(Batch({"a"}, {{"prompt", "q"}}).scored_by(*reward));
      return text + (std::filesystem::exists(name) ? " and it exists" : "");
    });
    CHECK(ended.text == "1");
  }
}

TEST_CASE("a sandbox cannot overwrite the file that is the trainer's stderr",
          "[rewards][sandbox]") {
  const OpenFile file(
      "import sys\n"
      "def say(completions, **columns):\n"
      "    open('/proc/self/fd/2', 'w').close()\n"
      "    print('said', file=sys.stderr, flush=True)\n"
      "    return [1.0] * len(completions)\n");
  const auto log = file.dir.path("log");
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto log_of = [&](const json& settings) {
      std::ofstream(log) << "before\n";
      std::filesystem::permissions(log, std::filesystem::perms::all);
      run_as(user, [&] {
        const int fd = ::open(log.c_str(), O_WRONLY | O_APPEND);
        ::dup2(fd, STDERR_FILENO);
        return text_of(Batch({"a"}, {{"prompt", "q"}}).scored_by(file.function("say"), settings));
      });
      std::ifstream in(log);
      return std::string{std::istreambuf_iterator<char>(in), {}};
    };
    CHECK(log_of(kOut) == "said\n");
    CHECK(log_of(kIn) == "before\nsaid\n");
  }
}

TEST_CASE("what a sandbox writes to stderr cannot control the terminal or fill a disk",
          "[rewards][sandbox]") {
  const OpenFile file(
      "import sys\n"
      "def flood(completions, **columns):\n"
      "    print('\\x1b]0;title\\x07\\x1b[31mred', file=sys.stderr, flush=True)\n"
      "    for i in range(200):\n"
      "        sys.stderr.write('x' * 1000 + '\\n')\n"
      "    sys.stderr.flush()\n"
      "    return [1.0] * len(completions)\n");
  const auto log = file.dir.path("log");
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    std::ofstream(log) << "";
    std::filesystem::permissions(log, std::filesystem::perms::all);
    run_as(user, [&] {
      const int fd = ::open(log.c_str(), O_WRONLY | O_APPEND);
      ::dup2(fd, STDERR_FILENO);
      return text_of(Batch({"a"}, {{"prompt", "q"}}).scored_by(file.function("flood"), kIn));
    });
    std::ifstream in(log);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    CHECK(text.starts_with("?]0;title?red\n"));
    CHECK(text.size() < (65 << 10));
    const std::string note = "has written more than 64 KiB to stderr for one request";
    CHECK(text.find(note) != text.npos);
    CHECK(text.find(note) == text.rfind(note));
  }
}

TEST_CASE("on kernels before 5.12 the file systems of a sandbox are read-only, too",
          "[rewards][sandbox]") {
  const OpenFile file(
      "import os\n"
      "def write(completions, **columns):\n"
      "    done = 0\n"
      "    for folder in (os.path.dirname(__file__), os.environ['HOME'], '/tmp'):\n"
      "        try:\n"
      "            open(os.path.join(folder, 'new'), 'w').close()\n"
      "            done += 1\n"
      "        except OSError:\n"
      "            done += 10\n"
      "    return [float(done)] * len(completions)\n");
  const TempDir home("/var/tmp");
  std::filesystem::permissions(home.root(), std::filesystem::perms::all);
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto ended = run_as(user, [&] {
      ::setenv("HOME", home.root().c_str(), 1);
      forbid(SYS_mount_setattr, ENOSYS);
      return text_of(Batch({"a"}, {{"prompt", "q"}}).scored_by(file.function("write"), kIn));
    });
    CHECK(ended.text == "21");
  }
}
