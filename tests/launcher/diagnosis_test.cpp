#include "launcher/lifecycle/diagnosis.hpp"

#include <csignal>

#include "launcher/lifecycle/xid.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;

namespace {

const ExitReport kExitedWith1{.code = 1};

Cause from_stderr(std::string_view text, ExitReport report = kExitedWith1) {
  return diagnose({.report = report, .stderr_tail = text});
}

}  // namespace

TEST_CASE("a successful rank has no cause", "[diagnosis]") {
  CHECK(diagnose({}).kind == Cause::Kind::none);
}

TEST_CASE("the last exception on stderr is the cause", "[diagnosis]") {
  struct Case {
    const char* text;
    Cause::Kind kind;
    const char* words;
  };
  const auto c = GENERATE(values<Case>({
      {"noise\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\n"
       "ValueError: boom\n",
       Cause::Kind::python_exception, "ValueError: boom"},
      {"[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 3\n"
       "[rank1]: pkg.errors.Odd: x\n[rank1]:W1121 NCCL noise\n",
       Cause::Kind::python_exception, "pkg.errors.Odd: x"},
      {"Traceback (most recent call last):\n  File \"a.py\", line 1\n    import x\n"
       "ModuleNotFoundError: No module named 'x'\n",
       Cause::Kind::import_error, "ModuleNotFoundError: No module named 'x'"},
      {"  File \"a.py\", line 1\n    def\n       ^\nSyntaxError: invalid syntax\n",
       Cause::Kind::syntax_error, "SyntaxError: invalid syntax"},
      {"Traceback (most recent call last):\n  File \"a\", line 1\nKeyError: 'a'\n\nDuring handling "
       "of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
       "  File \"a\", line 2\nTypeError: second\n",
       Cause::Kind::python_exception, "TypeError: second"},
      {"Traceback (most recent call last):\n  File \"a\", line 2\ntorch.OutOfMemoryError: CUDA out "
       "of memory. Tried to allocate 2 GiB\n",
       Cause::Kind::gpu_oom, "CUDA out of memory. Tried to allocate 2 GiB"},
      {"usage: a.py [-h]\na.py: error: unrecognized arguments: --x\n", Cause::Kind::exit_status,
       "exited with status 1: a.py: error"},
      {"some last line\n", Cause::Kind::exit_status, "exited with status 1: some last line"},
      {"", Cause::Kind::exit_status, "exited with status 1"},
  }));
  const auto cause = from_stderr(c.text);
  CAPTURE(c.text, cause.text);
  CHECK(cause.kind == c.kind);
  CHECK_THAT(cause.text, Contains(c.words));
}

TEST_CASE("status 2 with a usage text is a usage error of the program", "[diagnosis]") {
  const auto cause =
      from_stderr("usage: a.py [-h]\na.py: error: unrecognized arguments: --x\n", {.code = 2});
  CHECK(cause.kind == Cause::Kind::usage);
  CHECK(cause.text == "a.py: error: unrecognized arguments: --x");
}

TEST_CASE("SIGKILL is out of memory if the kernel counted it, else a guess", "[diagnosis]") {
  FailureEvidence words{.report = {.signal = SIGKILL}};
  words.memory = {.limit_bytes = 4ull << 30, .rank_peak_bytes = 3ull << 30};
  SECTION("counted") {
    words.memory.oom_kills = 1;
    words.memory.cgroup = "/the/cgroup";
    const auto cause = diagnose(words);
    CHECK(cause.kind == Cause::Kind::host_oom);
    CHECK_THAT(cause.text, Contains("/the/cgroup"));
    CHECK_THAT(cause.text, Contains("3.0 GiB"));
    CHECK_THAT(cause.text, Contains("of 4.0 GiB"));
    CHECK_FALSE(cause.advice.empty());
  }
  SECTION("not counted") {
    const auto cause = diagnose(words);
    CHECK(cause.kind == Cause::Kind::host_oom_guess);
    CHECK_THAT(cause.text, Contains("mgpu-run did not send"));
    words.memory.peak_bytes = 9ull << 30;  // of a cgroup that other processes share
    CHECK_THAT(diagnose(words).text, !Contains("9.0 GiB"));
  }
}

TEST_CASE("the limit of CPU time is the cause only of a rank that has used it", "[diagnosis]") {
  const int signo = GENERATE(SIGKILL, SIGXCPU);
  FailureEvidence words{.report = {.signal = Signal::numbered(signo)}};
  words.soft_cpu_limit = words.hard_cpu_limit = 3600;
  const std::string limit = "CPU time, the limit that ranks inherit (ulimit -t 3600)";
  for (const auto used : {std::chrono::seconds(3598), std::chrono::seconds(3601)}) {
    words.cpu_time = used;
    CHECK_THAT(diagnose(words).text, Contains(limit));
  }
  words.cpu_time = std::chrono::seconds(3597);
  CHECK_THAT(diagnose(words).text, !Contains("limit that ranks inherit"));
}

TEST_CASE("a rank that fails after the kernel killed its child is out of memory", "[diagnosis]") {
  FailureEvidence words{.report = kExitedWith1,
                        .stderr_tail =
                            "Traceback (most recent call last):\n  File \"a.py\", line 1\n"
                            "RuntimeError: DataLoader worker (pid 7) is killed\n"};
  CHECK(diagnose(words).kind == Cause::Kind::python_exception);

  words.memory = {.oom_kills = 1, .cgroup = "/sys/fs/cgroup/job"};
  const auto cause = diagnose(words);
  CHECK(cause.kind == Cause::Kind::host_oom);
  CHECK_THAT(cause.text, Contains("killed a process of this attempt (cgroup /sys/fs/cgroup/job)"));
  CHECK_THAT(cause.text, Contains("RuntimeError: DataLoader worker (pid 7) is killed"));

  SECTION("but a failure that is not retryable has its own cause") {
    words.stderr_tail =
        "Traceback (most recent call last):\n  File \"a.py\", line 1\n"
        "ModuleNotFoundError: No module named 'x'\n";
    CHECK(diagnose(words).kind == Cause::Kind::import_error);
  }
}

TEST_CASE("an error of the GPU itself is not an exception of the program", "[diagnosis]") {
  const std::string traceback = "Traceback (most recent call last):\n  File \"a.py\", line 3\n";
  const std::string line =
      GENERATE("RuntimeError: CUDA error: uncorrectable ECC error encountered",
               "torch.AcceleratorError: CUDA error: unknown error",
               "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
               "RuntimeError: No CUDA GPUs: GPU is lost");
  const auto cause = from_stderr(traceback + line + "\n");
  CHECK(cause.kind == Cause::Kind::gpu_error);
  CHECK(cause.text == "GPU error: " + line);
  CHECK_THAT(cause.advice, Contains("mgpu-run doctor"));
  CHECK(belongs_to_node(cause.kind));
  CHECK(is_retryable(cause.kind));

  SECTION("also in the error file") {
    FailureEvidence words{.report = kExitedWith1};
    words.error_file = ErrorFile{.message = line + "\nCUDA kernel errors might be reported later"};
    CHECK(diagnose(words).text == "GPU error: " + line);
  }
  SECTION("but one that the program survived is not why it failed") {
    CHECK(from_stderr(line + "\n" + traceback + "ValueError: boom\n").kind ==
          Cause::Kind::python_exception);
  }
}

TEST_CASE("errors that a program can cause on a GPU do not belong to the node", "[diagnosis]") {
  const std::string line =
      GENERATE("RuntimeError: CUDA error: device-side assert triggered",
               "RuntimeError: CUDA error: an illegal memory access was encountered",
               "RuntimeError: CUDA error: invalid device ordinal",
               "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB");
  const auto cause =
      from_stderr("Traceback (most recent call last):\n  File \"a.py\", line 3\n" + line + "\n");
  CHECK_FALSE(belongs_to_node(cause.kind));
}

TEST_CASE("a program without exceptions that reports a GPU error failed because of it",
          "[diagnosis]") {
  const auto cause = from_stderr("step 3\nXid (PCI:0000:17:00): 79, GPU has fallen off the bus\n",
                                 {.signal = SIGABRT});
  CHECK(cause.text == "GPU error: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus");
}

TEST_CASE("a CUDA error after an Xid of the hardware is an error of the GPU", "[diagnosis]") {
  FailureEvidence words{.report = kExitedWith1,
                        .gpu_fault = "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus"};
  const std::string traceback = "Traceback (most recent call last):\n  File \"a.py\", line 3\n";

  SECTION("as an exception") {
    const std::string text = traceback + "RuntimeError: CUDA error: unspecified launch failure\n";
    words.stderr_tail = text;
    const auto cause = diagnose(words);
    CHECK(cause.kind == Cause::Kind::gpu_error);
    CHECK(cause.text ==
          "GPU error: NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus; after that this "
          "rank failed: RuntimeError: CUDA error: unspecified launch failure");
  }
  SECTION("as an abort") {
    words.report = {.signal = SIGABRT};
    words.stderr_tail = "[rank1]:[E] ProcessGroupNCCL: watchdog got stuck\n";
    CHECK(diagnose(words).kind == Cause::Kind::gpu_error);
  }
  SECTION("but an exception that does not mention it may be unrelated") {
    const std::string text = traceback + "ValueError: boom\n";
    words.stderr_tail = text;
    CHECK(diagnose(words).kind == Cause::Kind::python_exception);
  }
  SECTION("but the program's GPU memory may run out as well") {
    const std::string text = traceback + "torch.OutOfMemoryError: CUDA out of memory.\n";
    words.stderr_tail = text;
    CHECK(diagnose(words).kind == Cause::Kind::gpu_oom);
  }
}

TEST_CASE("an Xid of the hardware is distinguished from one of a program", "[diagnosis][xid]") {
  CHECK(reports_gpu_fault("NVRM: Xid (PCI:0000:17:00): 48, pid=7, name=python3, DBE"));
  CHECK(reports_gpu_fault("[  12.5] NVRM: Xid (PCI:0000:17:00): 94, Contained: SM"));
  CHECK_FALSE(reports_gpu_fault("NVRM: Xid (PCI:0000:17:00): 13, Graphics Exception"));
  CHECK_FALSE(reports_gpu_fault("NVRM: Xid (PCI:0000:17:00): 31, MMU Fault"));
  const auto numbered = [](int number) {
    return reports_gpu_fault("NVRM: Xid (PCI:0000:17:00): " + std::to_string(number) + ", pid=7");
  };
  // Those for which NVIDIA's catalog asks for a reset of the GPU, or a restart of the machine.
  for (const int fault :
       {46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158})
    CHECK(numbered(fault));
  for (const int link : {74, 144, 145, 146, 149, 150}) CHECK(numbered(link));
  CHECK(numbered(171));  // uncorrectable error of the memory
  // Of a program, or to be ignored.
  for (const int other : {8, 11, 13, 31, 32, 43, 45, 63, 69, 92, 121, 137, 147, 148, 154, 157, 160})
    CHECK_FALSE(numbered(other));
  for (const char* broken : {"", "Xid (", "Xid (PCI:0000:17:00): ", "Xid (PCI:0000:17:00): x",
                             "Xid (PCI:0000:17:00): 99999999999999999999", "48"})
    CHECK_FALSE(reports_gpu_fault(broken));
}

TEST_CASE("less than a GiB is shown in MiB", "[diagnosis]") {
  FailureEvidence words{.report = {.signal = SIGKILL}};
  words.memory = {.limit_bytes = 128ull << 20, .rank_peak_bytes = (64ull << 20) + (1 << 19)};
  CHECK_THAT(diagnose(words).text, Contains("this rank used up to 64.5 MiB of 128.0 MiB"));
}

TEST_CASE("an exec failure is described by its errno", "[diagnosis]") {
  const auto cause = diagnose({.report = {.code = 127, .exec_error = EACCES}});
  CHECK(cause.kind == Cause::Kind::exec_failure);
  CHECK(cause.text == "could not be started: Permission denied");
}

TEST_CASE("the error file takes precedence over stderr", "[diagnosis]") {
  FailureEvidence words{.report = kExitedWith1, .stderr_tail = "something else\n"};
  words.error_file = ErrorFile{.message = "RuntimeError: in the file\nsecond line"};
  CHECK(diagnose(words).text == "RuntimeError: in the file");
}

TEST_CASE("what a rank wrote cannot change the terminal", "[diagnosis]") {
  const std::string hostile = "x\x1b]0;t\x07\x1b[2K\rmgpu-run: all ranks succeeded";
  ErrorFile file{.message = "RuntimeError: " + hostile};
  const std::string stderr_tail = "Traceback (most recent call last):\n  File \"a\"\nE: " + hostile;
  for (const auto& cause : {diagnose({.report = {.code = 1}, .error_file = file}),
                            diagnose({.report = {.code = 1}, .stderr_tail = stderr_tail}),
                            diagnose({.report = {.code = 1}, .stderr_tail = hostile})}) {
    CAPTURE(cause.text);
    CHECK(cause.text.find_first_of("\x1b\x07\r") == std::string::npos);
    CHECK_THAT(cause.text, Contains("all ranks succeeded"));
  }
}

TEST_CASE("after another signal the last line of output is kept", "[diagnosis]") {
  const auto cause = from_stderr("terminate called\n  what():  bad\n", {.signal = SIGABRT});
  CHECK(cause.kind == Cause::Kind::signal);
  CHECK(cause.text == "was killed by SIGABRT (signal 6):   what():  bad");
}

TEST_CASE("a data loader that loses its rank does not hide the signal that ended the rank",
          "[diagnosis]") {
  const auto* const last = GENERATE("ConnectionResetError: [Errno 104] Connection reset by peer",
                                    "EOFError", "BrokenPipeError: [Errno 32] Broken pipe");
  const auto text =
      std::string("Traceback (most recent call last):\n  File \"a.py\", line 3\n") + last + "\n";
  CHECK(from_stderr(text, {.signal = SIGTERM}).kind == Cause::Kind::killed);
  CHECK(from_stderr(text, {.signal = SIGSEGV}).kind == Cause::Kind::signal);
  CHECK(from_stderr(text).kind == Cause::Kind::python_exception);
}
