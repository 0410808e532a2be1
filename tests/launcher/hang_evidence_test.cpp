#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/hang_evidence/collect.hpp"
#include "launcher/hang_evidence/evidence_folder.hpp"
#include "launcher/hang_evidence/line_table.hpp"
#include "launcher/hang_evidence/process_memory.hpp"
#include "launcher/hang_evidence/process_snapshot.hpp"
#include "launcher/hang_evidence/python_stacks.hpp"
#include "launcher/hang_evidence/stack_tools.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using mgpu::tests::TempDir;

namespace {

std::string evidence_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A child that does nothing until it is destroyed.
class IdleChild {
 public:
  IdleChild() : pid_(::fork()) {
    if (pid_ == 0)
      for (;;) ::pause();
  }
  ~IdleChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;

  pid_t pid() const { return pid_; }
  void suspend() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }

 private:
  pid_t pid_;
};

Inherited nothing_inherited() {
  Inherited inherited;
  ::getrlimit(RLIMIT_NOFILE, &inherited.nofile);
  sigemptyset(&inherited.mask);
  return inherited;
}

}  // namespace

TEST_CASE("the line of an instruction follows from the table of its function", "[hang]") {
  // Of `def f():` in line 4 and `pass` in the next one: resume, load a constant, return.
  const std::string table("\x80\x00\xd8\x02\x06\x80\x24", 7);
  CHECK(line_of_instruction(table, 4, 0) == 4);
  CHECK(line_of_instruction(table, 4, 1) == 5);
  CHECK_FALSE(line_of_instruction(table, 4, 5));
  CHECK_FALSE(line_of_instruction("", 4, 0));
  SECTION("an entry without a line has none") {
    CHECK_FALSE(line_of_instruction("\xf8", 4, 0));
  }
  SECTION("a change may be negative and longer than a byte") {
    CHECK(line_of_instruction("\xe8\x03", 4, 0) == 3);
    CHECK(line_of_instruction("\xe8\x48\x01", 4, 0) == 40);
  }
}

TEST_CASE("the memory of another process is read, and its symbols are found", "[hang][fork]") {
  const std::string ours = "text in the memory of both processes";
  const IdleChild child;
  const ProcessMemory memory(child.pid());
  CHECK(memory.bytes(reinterpret_cast<Address>(ours.data()), ours.size()) == ours);
  CHECK_THROWS_AS(memory.pointer(8), std::runtime_error);
  CHECK_THROWS_AS(ProcessMemory(0).pointer(8), std::runtime_error);
  const auto found = find_symbols(child.pid(), "libc.so", {"getpid", "getppid"});
  REQUIRE(found.size() == 2);
  CHECK(found[1] == reinterpret_cast<Address>(::dlsym(RTLD_DEFAULT, "getppid")));
  CHECK(find_symbols(child.pid(), "libc.so", {"getpid", "no_such_symbol"}).empty());
}

TEST_CASE("a process that does not run Python has no Python stacks", "[hang][fork]") {
  const IdleChild child;
  const auto stacks = read_python_stacks(child.pid());
  CHECK(stacks.threads.empty());
  CHECK(stacks.problem.empty());
}

TEST_CASE("a process is described by the kernel's files", "[hang][fork]") {
  const IdleChild child;
  child.suspend();
  const auto found = snapshot_of(child.pid());
  CHECK(found.state == 'T');
  CHECK(found.text.find("State:\tT") == std::string::npos);  // tabs become spaces
  CHECK(found.text.find("State: T (stopped)") != std::string::npos);
  CHECK(found.text.find("thread " + std::to_string(child.pid())) != std::string::npos);
  CHECK(snapshot_of(0).state == 0);
  CHECK(process_and_descendants(child.pid()) == std::vector<pid_t>{child.pid()});
}

TEST_CASE("the state of a process follows its name, which may contain anything", "[hang]") {
  CHECK(state_in("12 (sleep) S 1 2") == 'S');
  CHECK(state_in("12 (a) R ) D 1 2") == 'D');
  CHECK(state_in("") == 0);
  CHECK(state_in("12 (sleep)") == 0);
}

TEST_CASE("eu-stack is preferred to gdb, and relative folders are not searched", "[hang]") {
  const TempDir first, second;
  const auto add = [](const TempDir& folder, const std::string& name) {
    std::ofstream(folder.path(name)) << "#!/bin/sh\n";
    std::filesystem::permissions(folder.path(name), std::filesystem::perms::owner_all);
  };
  const auto path = ":relative:" + first.root().string() + ":" + second.root().string();
  CHECK_FALSE(native_stack_tool(path));
  add(first, "gdb");
  CHECK(native_stack_tool(path)->path == first.path("gdb"));
  add(second, "eu-stack");
  CHECK(native_stack_tool(path)->command(7) ==
        std::vector<std::string>{second.path("eu-stack"), "-p", "7"});
  CHECK_FALSE(python_stack_tool(path));
  add(second, "py-spy");
  CHECK(python_stack_tool(path)->command(7) ==
        std::vector<std::string>{second.path("py-spy"), "dump", "--pid", "7"});
}

TEST_CASE("the functions of the main thread are found in the output of a debugger", "[hang]") {
  const std::vector<std::string> expected{"__poll", "gloo::wait", "main"};
  CHECK(main_thread_functions("[New LWP 8]\n0x1 in __poll () from /lib/libc.so.6\n\n"
                              "Thread 1 (Thread 0x7f (LWP 7) \"python3\"):\n"
                              "#0  0x00007f in __poll (fds=0x1) from /lib/libc.so.6\n"
                              "#1  0x00007f in gloo::wait (this=0x2) at gloo.cc:3\n"
                              "#2  main () at main.cc:1\n\n"
                              "Thread 2 (Thread 0x7f (LWP 8)):\n#0  other ()\n") == expected);
  CHECK(main_thread_functions("PID 7 - process\nTID 7:\n#0  0x00007f6a __poll\n"
                              "#1  0x00007f6b gloo::wait\n#2  0x00007f6c main\n"
                              "TID 8:\n#0  0x00007f other\n") == expected);
  CHECK(main_thread_functions("ptrace: Operation not permitted.\n").empty());
}

TEST_CASE("a full disk ends the writing of evidence with one line", "[hang]") {
  EvidenceFolder folder("/dev");  // where "full" is a disk without space
  folder.write("full", "text\n");
  folder.write("never-written", "text\n");
  CHECK(folder.problem() ==
        "cannot write to /dev: No space left on device; the evidence of the hang is incomplete");
  CHECK(folder.path() == "/dev");
  CHECK_FALSE(std::filesystem::exists("/dev/never-written"));
}

TEST_CASE("evidence is written to no file that a link names", "[hang]") {
  const TempDir parent;
  const auto path = parent.path("hang"), other = parent.path("other");
  EvidenceFolder folder(path);
  folder.write("a", "text\n");
  CHECK(folder.problem().empty());
  CHECK(evidence_text(path + "/a") == "text\n");
  ::symlink(other.c_str(), (path + "/b").c_str());
  folder.write("b", "text\n");
  CHECK(folder.problem() == "cannot write to " + path +
                                ": Too many levels of symbolic links; the evidence of the hang is "
                                "incomplete");
  CHECK_FALSE(std::filesystem::exists(other));

  SECTION("a folder that cannot be created is none") {
    const EvidenceFolder none(path + "/a/hang");
    CHECK(none.path().empty());
    CHECK(none.problem() == "cannot create " + path +
                                "/a/hang: Not a directory; the evidence of the hang is "
                                "incomplete");
  }
}

TEST_CASE("the evidence names the suspended rank and describes every rank", "[hang][fork]") {
  const TempDir parent;
  const IdleChild idle, suspended;
  suspended.suspend();
  const auto folder = parent.path("hang");
  const EvidenceRequest request{
      .ranks = {{4, idle.pid()}, {5, suspended.pid()}}, .folder = folder, .path = "/nowhere"};
  const auto found = collect_evidence(request, nothing_inherited());
  CHECK(found.odd.rank == 5);
  CHECK(found.folder == folder);
  CHECK(found.problem.empty());
  const auto summary = evidence_text(folder + "/summary.txt");
  CHECK(summary.starts_with(found.odd.reason));
  CHECK(summary.find("rank 4 (pid " + std::to_string(idle.pid())) != std::string::npos);
  CHECK(summary.find("no native stacks: install eu-stack (elfutils) or gdb") != std::string::npos);
  CHECK(evidence_text(folder + "/rank_5.txt").find("State: T (stopped)") != std::string::npos);
}

TEST_CASE("PyTorch's record of NCCL is requested and becomes part of the evidence",
          "[hang][fork]") {
  const TempDir parent;
  const IdleChild idle;
  REQUIRE(::mkfifo(parent.path("rank_0.pipe").c_str(), 0600) == 0);
  const mgpu::rendezvous::UniqueFd pipe(
      ::open(parent.path("rank_0.pipe").c_str(), O_RDONLY | O_NONBLOCK));
  REQUIRE(::mkfifo(parent.path("rank_1.pipe").c_str(), 0600) == 0);  // that nobody reads
  std::ofstream(parent.path("nccl_trace_rank_0")) << "record";
  const EvidenceRequest request{.ranks = {{0, idle.pid()}, {1, idle.pid()}},
                                .folder = parent.path("hang"),
                                .nccl_dir = parent.root().string(),
                                .path = "/nowhere"};
  collect_evidence(request, nothing_inherited());
  char byte = 0;
  CHECK(::read(pipe.get(), &byte, 1) == 1);
  CHECK(byte == '1');
  CHECK(evidence_text(parent.path("hang/nccl_trace_rank_0")) == "record");
  CHECK_FALSE(std::filesystem::exists(parent.path("nccl_trace_rank_0")));
}

TEST_CASE("a rank that cannot be dumped gives one line", "[hang][fork]") {
  const TempDir parent, tools;
  const auto debugger = tools.path("eu-stack");
  const auto [script, line] = GENERATE(values<std::pair<const char*, const char*>>(
      {{"echo 'ptrace: Operation not permitted.'; exit 1",
        "    eu-stack cannot read its stacks: ptrace: Operation not permitted.\n"},
       {"exec /bin/sleep 60", "    eu-stack did not finish in time\n"}}));
  std::ofstream(debugger) << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(debugger, std::filesystem::perms::owner_all);
  const IdleChild idle;
  const EvidenceRequest request{.ranks = {{0, idle.pid()}, {1, 0}},
                                .folder = parent.path("hang"),
                                .path = tools.root().string(),
                                .limit = std::chrono::milliseconds(600)};
  const auto found = collect_evidence(request, nothing_inherited());
  CHECK(found.odd.rank == 1);
  const auto summary = evidence_text(request.folder + "/summary.txt");
  CHECK(summary.find(line) != std::string::npos);
  CHECK(evidence_text(request.folder + "/rank_1.txt") == "its process no longer exists\n");
}
