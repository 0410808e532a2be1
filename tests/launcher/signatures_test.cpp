#include "launcher/lifecycle/signatures.hpp"

#include <csignal>
#include <set>
#include <string>

#include "launcher/lifecycle/diagnosis.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Kind = FailureKind;

namespace {

// What Python prints before an exception that a script raises.
const std::string kTraceback =
    "Traceback (most recent call last):\n  File \"train.py\", line 40, in <module>\n    main()\n";

Cause of_exception(const std::string& lines) {
  const std::string tail = kTraceback + lines + "\n";
  return diagnose({.report = {.code = 1}, .stderr_tail = tail});
}

Cause of_output(const std::string& lines, const ExitReport& report = {.code = 1}) {
  const std::string tail = "step 41: loss 2.1\n" + lines + "\n";
  return diagnose({.report = report, .stderr_tail = tail});
}

struct Text {
  const char* lines;
  Kind kind;
};

}  // namespace

// The texts below are what real programs printed: PyTorch, NCCL, gloo, CUDA, NumPy, safetensors,
// Slurm, the shell, mgpu-train.

TEST_CASE("real exceptions have the kind of their cause", "[signatures]") {
  const auto text = GENERATE(values<Text>({
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
       "capacity of 79.11 GiB of which 1.10 GiB is free.",
       Kind::gpu_oom},
      {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
       Kind::gpu_oom},
      {"torch.distributed.DistBackendError: NCCL error in: "
       "../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run with "
       "NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n"
       "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
       "Cuda failure 2 'out of memory'",
       Kind::gpu_oom},

      {"RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
       "CUDA kernel errors might be asynchronously reported at some other API call, so the "
       "stacktrace below might be incorrect.",
       Kind::gpu_error},
      {"RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at "
       "/pytorch/aten/src/THC/THCCachingHostAllocator.cpp:265",
       Kind::gpu_error},
      {"RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA "
       "GPU and installed a driver from http://www.nvidia.com/Download/index.aspx",
       Kind::gpu_error},

      {"OSError: [Errno 28] No space left on device", Kind::disk_full},
      {"OSError: [Errno 122] Disk quota exceeded: '/home/u/checkpoint-100'", Kind::disk_full},
      {"OSError: 1000000 requested and 131056 written", Kind::disk_full},
      {"RuntimeError: basic_ios::clear: iostream error", Kind::disk_full},  // torch.save
      {"RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534",
       Kind::disk_full},
      {"safetensors._safetensors_rust.SafetensorError: Error while serializing: I/O error: No "
       "space "
       "left on device (os error 28)",
       Kind::disk_full},
      {"RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible "
       "that dataloader's workers are out of shared memory. Please try to raise your shared memory "
       "limit.",
       Kind::disk_full},

      {"RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
       "allocate memory: you tried to allocate 4000000000000000 bytes. Error code 12 (Cannot "
       "allocate memory)",
       Kind::host_oom},
      {"MemoryError", Kind::host_oom},
      {"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.11 PiB for an array with "
       "shape (1000000000000000,) and data type float64",
       Kind::host_oom},
      {"OSError: [Errno 12] Cannot allocate memory", Kind::host_oom},
      {"RuntimeError: DataLoader worker (pid 32105) is killed by signal: Killed. ",
       Kind::host_oom_guess},

      {"RuntimeError: CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA` "
       "to enable device-side assertions.",
       Kind::cuda_error},
      {"torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
       Kind::cuda_error},
      {"RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
       Kind::cuda_error},
      {"RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", Kind::cuda_error},
      {"RuntimeError: CUDA error: invalid device ordinal", Kind::cuda_error},

      {"torch.distributed.DistBackendError: NCCL error in: "
       "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, invalid usage (run with "
       "NCCL_DEBUG=WARN for details), NCCL version 2.19.3\n"
       "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
       "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000",
       Kind::nccl_error},
      {"RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:825, unhandled "
       "system error, NCCL version 2.7.8\n"
       "ncclSystemError: System call (socket, malloc, munmap, etc) failed.",
       Kind::nccl_error},
      {"torch.distributed.DistBackendError: NCCL error in: "
       "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, internal error, NCCL version "
       "2.14.3\nncclInternalError: Internal check failed.\nLast error:\n"
       "Cuda failure 'peer access is not supported between these two devices'",
       Kind::nccl_error},

      {"torch.distributed.DistBackendError: NCCL error in: "
       "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was "
       "a network error, NCCL version 2.21.5\n"
       "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
       "prematurely.\nLast error:\n"
       "socketProgressOpt: Call to recv from 172.16.0.7<33759> failed : Connection reset by peer",
       Kind::peer_failure},
      {"torch.distributed.DistBackendError: NCCL error in: "
       "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, internal error, NCCL version "
       "2.14.3\nncclInternalError: Internal check failed.\nLast error:\n"
       "Net : Connection closed by remote peer user<50260>",
       Kind::peer_failure},
      {"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed "
       "by peer [127.0.0.1]:4244",
       Kind::peer_failure},
      {"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error "
       "[127.0.0.1]:37771: Connection reset by peer",
       Kind::peer_failure},
      {"torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely "
       "closed. Did the remote server shutdown or crash?",
       Kind::peer_failure},

      {"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed "
       "out "
       "waiting 4000ms for recv operation to complete",
       Kind::hang},

      {"json.decoder.JSONDecodeError: Unterminated string starting at: line 1 column 10 (char 9)",
       Kind::data_error},
      {"train.jsonl:2: invalid JSON: the line ends; expected ',' or '}' in an object",
       Kind::data_error},
      {"train.jsonl: cannot detect the dataset format from the columns question, answer; the "
       "formats are tokens (input_ids, labels), text",
       Kind::data_error},
      {"UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 3: invalid start byte",
       Kind::data_error},
      {"RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0 and [4] "
       "at "
       "entry 1",
       Kind::data_error},
      {"safetensors._safetensors_rust.SafetensorError: Error while deserializing header: invalid "
       "header length",
       Kind::data_error},
      {"_pickle.UnpicklingError: Weights only load failed. Re-running `torch.load` with "
       "`weights_only` set to `False` will likely succeed.",
       Kind::data_error},

      {"RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.", Kind::nan},
      {"RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, "
       "so "
       "it cannot be clipped.",
       Kind::nan},
      {"FloatingPointError: loss is nan at step 7", Kind::nan},
      {"RuntimeError: probability tensor contains either `inf`, `nan` or element < 0", Kind::nan},

      {"ModuleNotFoundError: No module named 'flash_attn'", Kind::import_error},
      {"ImportError: cannot import name 'nothing_here' from 'json' "
       "(/usr/lib/python3.11/json/__init__.py)",
       Kind::import_error},
      {"OSError: libcudnn.so.9: cannot open shared object file: No such file or directory",
       Kind::import_error},
      {"ValueError: Some specified arguments are not used by the HfArgumentParser: ['--nope', '3']",
       Kind::usage},

      {"KeyboardInterrupt", Kind::killed},
      {"torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15",
       Kind::killed},

      {"AssertionError", Kind::python_exception},
      {"TypeError: must be real number, not str", Kind::python_exception},
      {"RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)",
       Kind::python_exception},
      {"RuntimeError: DataLoader worker (pid(s) 32105) exited unexpectedly",
       Kind::python_exception},
  }));
  const auto cause = of_exception(text.lines);
  CAPTURE(text.lines, cause.text, cause.signature);
  CHECK(name_of(cause.kind) == name_of(text.kind));
  CHECK_FALSE(cause.evidence.empty());

  SECTION("also if torch has put the rank before each line") {
    std::string tail = kTraceback + text.lines + "\n", prefixed;
    for (std::size_t at = 0; at < tail.size();) {
      const auto end = tail.find('\n', at);
      prefixed += "[rank3]: " + tail.substr(at, end + 1 - at);
      at = end + 1;
    }
    // What torch logs while the interpreter exits.
    prefixed +=
        "[rank3]:[W625 23:35:35.311127584 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID "
        "0(default_pg) Rank 3] Failed to check the \"should dump\" flag on TCPStore, (maybe "
        "TCPStore server has shut down too early), with error: failed to recv, got 0 bytes\n";
    CHECK(name_of(diagnose({.report = {.code = 1}, .stderr_tail = prefixed}).kind) ==
          name_of(text.kind));
  }
  SECTION("also in the error file of torch's @record") {
    FailureEvidence evidence{.report = {.code = 1}};
    evidence.error_file = ErrorFile{.message = text.lines, .callstack = kTraceback};
    CHECK(name_of(diagnose(evidence).kind) == name_of(text.kind));
  }
}

TEST_CASE("real last lines of programs without exceptions have the kind of their cause",
          "[signatures]") {
  const auto text = GENERATE(values<Text>({
      {"NVRM: Xid (PCI:0000:17:00): 79, pid=1101234, name=nvc:[driver], GPU has fallen off the "
       "bus.",
       Kind::gpu_error},
      {"F tensorflow/stream_executor/lib/statusor.cc:34] Internal: failed call to "
       "cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error "
       "encountered",
       Kind::gpu_error},
      {"dd: error writing 'tm/dd': No space left on device", Kind::disk_full},
      {"cat: write error: No space left on device", Kind::disk_full},
      {"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
       "shared memory (shm).",
       Kind::disk_full},
      {"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
       Kind::host_oom},
      {"[rank0]:[E504 23:32:59.338859795 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) "
       "Rank 0] Process group watchdog thread terminated with exception: CUDA error: an illegal "
       "memory access was encountered",
       Kind::cuda_error},
      {"terminate called after throwing an instance of 'std::runtime_error'\n"
       "  what():  NCCL Error 1: unhandled cuda error",
       Kind::nccl_error},
      {"terminate called after throwing an instance of 'std::runtime_error' what(): NCCL error: "
       "remote process exited or there was a network error, NCCL version 2.14.3\nncclRemoteError: "
       "A "
       "call failed possibly due to a network error or a remote process exiting prematurely.\nLast "
       "error:\nNET/IB : Got completion from peer 11.214.147.122<39138> with error 12, opcode 0, "
       "len 0, vendor err 129",
       Kind::peer_failure},
      {"mgpu-train: rank 0: all-reduce failed: "
       "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
       "[127.0.0.1]:4244; if gloo uses the wrong address, set GLOO_SOCKET_IFNAME to the network "
       "interface",
       Kind::peer_failure},
      {"[rank4]:[E321 02:07:08.414640780 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught "
       "collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, "
       "NumelOut=466119168, Timeout(ms)=600000) ran for 600067 milliseconds before timing out.\n"
       "terminate called after throwing an instance of 'c10::DistBackendError'",
       Kind::hang},
      {"[rank0]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 0] [PG 0 Rank 0] ProcessGroupNCCL's "
       "watchdog got stuck for 600 seconds without making progress in monitoring enqueued "
       "collectives.",
       Kind::hang},
      {"mgpu-train: rank 1: all-reduce did not finish within 600 s; another rank is stuck, too "
       "slow, "
       "or has exited; set NCCL_DEBUG=INFO to see what NCCL does",
       Kind::hang},
      {"mgpu-train: step 3: the gradient is not finite (loss nan), so the weights were not "
       "updated; "
       "lower learning_rate, check the data, or set on_non_finite: skip",
       Kind::nan},
      {"Loss is nan, stopping training", Kind::nan},
      {"mgpu-train: data/train.jsonl:17: invalid JSON at byte 6: expected a value, near \"}\"",
       Kind::data_error},
      {"/usr/bin/python3: No module named no_such_module", Kind::import_error},
      {"./trainer: error while loading shared libraries: libnccl.so.2: cannot open shared object "
       "file: No such file or directory",
       Kind::import_error},
      {"slurmstepd: error: *** JOB 32391783 ON cn119 CANCELLED AT 2021-06-18T13:05:36 DUE TO "
       "PREEMPTION ***",
       Kind::preempted},
      {"slurmstepd: error: *** STEP 608.0 ON gpu7 CANCELLED AT 2022-08-12T02:06:12 DUE TO JOB "
       "REQUEUE ***",
       Kind::preempted},
      {"slurmstepd: error: *** JOB 3884617 ON node023 CANCELLED AT 2018-08-19T16:30:21 DUE TO TIME "
       "LIMIT ***",
       Kind::preempted},
      {"slurmstepd: error: *** STEP 63532.0 ON cn106 CANCELLED AT 2020-12-14T09:43:55 ***",
       Kind::killed},
      {"no such thing", Kind::exit_status},
      {"", Kind::exit_status},
  }));
  const auto cause = of_output(text.lines);
  CAPTURE(text.lines, cause.text, cause.signature);
  CHECK(name_of(cause.kind) == name_of(text.kind));
}

TEST_CASE("texts that only resemble a known failure do not match", "[signatures]") {
  const auto text = GENERATE(values<Text>({
      // A server on the internet, not a rank.
      {"ConnectionResetError: [Errno 104] Connection reset by peer", Kind::python_exception},
      {"requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote "
       "end "
       "closed connection without response'))",
       Kind::python_exception},
      {"TimeoutError: [Errno 110] Connection timed out", Kind::python_exception},
      {"ValueError: timeout must be positive", Kind::python_exception},
      // Words about memory.
      {"ValueError: max_memory must be a dictionary", Kind::python_exception},
      {"RuntimeError: out of bounds access", Kind::python_exception},
      // Words about disks, links and numbers.
      {"FileNotFoundError: [Errno 2] No such file or directory: '/scratch/space left'",
       Kind::python_exception},
      {"ValueError: 3 requested and 2 available", Kind::python_exception},
      {"KeyError: 'nvlink'", Kind::python_exception},
      {"ValueError: nan_policy must be one of raise, omit", Kind::python_exception},
      {"NameError: name 'nan' is not defined", Kind::python_exception},
      {"FloatingPointError: overflow encountered in exp", Kind::python_exception},
      {"ValueError: the nccl backend needs GPUs", Kind::python_exception},
      {"ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
       Kind::python_exception},
      {"KeyError: 'usage: a'", Kind::python_exception},
      {"RuntimeError: Caught by the user's handler: ImportError", Kind::python_exception},
  }));
  const auto cause = of_exception(text.lines);
  CAPTURE(text.lines, cause.signature);
  CHECK(name_of(cause.kind) == name_of(text.kind));
}

TEST_CASE("what a program survived is not why it failed", "[signatures]") {
  const std::string earlier = GENERATE(
      "OSError: [Errno 28] No space left on device", "RuntimeError: CUDA error: unknown error",
      "step 3: the gradient is not finite; the step is skipped",
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.");
  const std::string tail = earlier + "\ncontinuing\n" + kTraceback + "ValueError: boom\n";
  CHECK(diagnose({.report = {.code = 1}, .stderr_tail = tail}).kind == Kind::python_exception);
}

TEST_CASE("an exception that was raised because GPU memory ran out is an OOM", "[signatures]") {
  const std::string tail = kTraceback +
                           "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
                           "\n\nThe above exception was the direct cause of the following "
                           "exception:\n\n" +
                           kTraceback + "RuntimeError: the training step failed\n";
  const auto cause = diagnose({.report = {.code = 1}, .stderr_tail = tail});
  CHECK(cause.kind == Kind::gpu_oom);
  CHECK(cause.text.find("Tried to allocate 2.00 GiB") != std::string::npos);
}

TEST_CASE("any exception in a data loader or a dataset is about the data", "[signatures]") {
  const std::string where =
      GENERATE("  File \"site-packages/torch/utils/data/_utils/fetch.py\", line 50, in fetch\n",
               "  File \"my_dataset.py\", line 4, in __getitem__\n");
  const std::string tail = "Traceback (most recent call last):\n" + where + "KeyError: 'text'\n";
  const auto cause = diagnose({.report = {.code = 1}, .stderr_tail = tail});
  CHECK(cause.kind == Kind::data_error);
  CHECK(cause.text == "KeyError: 'text'");

  SECTION("unless it is about memory, disks or GPUs") {
    const std::string full = "Traceback (most recent call last):\n" + where +
                             "OSError: [Errno 28] No space left on "
                             "device\n";
    CHECK(diagnose({.report = {.code = 1}, .stderr_tail = full}).kind == Kind::disk_full);
  }
}

TEST_CASE("an error of a network, a file server or a disk in a data loader is not about the data",
          "[signatures]") {
  const std::string where =
      "Traceback (most recent call last):\n"
      "  File \"site-packages/torch/utils/data/_utils/fetch.py\", line 54, in fetch\n"
      "    data = [self.dataset[idx] for idx in possibly_batched_index]\n";
  const std::string error = GENERATE(
      "OSError: [Errno 5] Input/output error", "OSError: [Errno 116] Stale file handle: '/nfs/a'",
      "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/s3/shard-3.tar'",
      "OSError: [Errno 121] Remote I/O error", "OSError: [Errno 24] Too many open files: 'a.bin'",
      "ConnectionResetError: [Errno 104] Connection reset by peer",
      "ConnectionError: Couldn't reach https://huggingface.co/datasets/x (ConnectTimeout)",
      "TimeoutError: [Errno 110] Connection timed out",
      "TimeoutError: The read operation timed out",
      "socket.gaierror: [Errno -3] Temporary failure in name resolution",
      "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
      "urllib.error.HTTPError: HTTP Error 503: Service Unavailable",
      "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): "
      "Max retries exceeded with url: /a (Caught NewConnectionError('[Errno 101] Network is "
      "unreachable'))",
      "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='a', port=443): Read timed out. "
      "(read timeout=10)",
      "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
      "botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: \"None\"");
  CAPTURE(error);
  CHECK(diagnose({.report = {.code = 1}, .stderr_tail = where + error + "\n"}).kind ==
        Kind::python_exception);

  SECTION("also in a worker process of the loader") {
    const auto type = error.substr(0, error.find(':'));
    const auto name = type.substr(type.rfind('.') + 1);
    // torch raises a RuntimeError if the type cannot be raised with only a message.
    const std::string raised =
        GENERATE("own", "RuntimeError") == std::string("own") ? type : std::string("RuntimeError");
    const std::string tail = kTraceback + raised + ": Caught " + name +
                             " in DataLoader worker process 0.\nOriginal " + where + error + "\n";
    CAPTURE(tail);
    CHECK(diagnose({.report = {.code = 1}, .stderr_tail = tail}).kind == Kind::python_exception);
  }
}

TEST_CASE("an OSError of a library about the contents of a file is about the data",
          "[signatures]") {
  const std::string error = GENERATE(
      "OSError: image file is truncated (12 bytes not processed)",
      "OSError: unrecognized data stream contents when reading image file",
      "OSError: Could not open Parquet input source 'a': Parquet magic bytes not found in footer.",
      "FileNotFoundError: [Errno 2] No such file or directory: '/data/17.jpg'");
  const std::string tail =
      "Traceback (most recent call last):\n  File \"d.py\", line 4, in "
      "__getitem__\n" +
      error + "\n";
  CHECK(diagnose({.report = {.code = 1}, .stderr_tail = tail}).kind == Kind::data_error);
}

TEST_CASE("a cascade is told from a root cause", "[signatures]") {
  CHECK(of_exception("RuntimeError: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
                     "[127.0.0.1]:4244")
            .cascade);
  CHECK(of_output("[Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)")
            .cascade);
  CHECK_FALSE(of_exception("ValueError: boom").cascade);
  CHECK_FALSE(of_exception("RuntimeError: CUDA error: device-side assert triggered").cascade);

  SECTION("and a rank that reports both has the root cause") {
    const auto cause = of_output(
        "[rank0]:[E] ProcessGroupNCCL.cpp: CUDA error: an illegal memory access was encountered\n"
        "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)",
        {.signal = SIGABRT});
    CHECK(cause.kind == Kind::cuda_error);
    CHECK_FALSE(cause.cascade);
    CHECK(cause.signature == "illegal_access");
  }
}

TEST_CASE("only a text with one reading is certain to repeat", "[signatures]") {
  CHECK(of_exception("ModuleNotFoundError: No module named 'x'").certain);
  CHECK(of_exception("ImportError: cannot import name 'a' from 'b' (b.py)").certain);
  CHECK(
      of_output("usage: a.py [-h]\na.py: error: unrecognized arguments: --x", {.code = 2}).certain);
  CHECK(of_output("mgpu-train: recipe.yaml:3: unknown key \"lr\"", {.code = 2}).certain);
  // Ranks that download code of a model at the same time see half of it; a file system may be slow.
  CHECK_FALSE(
      of_exception("ModuleNotFoundError: No module named 'transformers_modules.qwen'").certain);
  CHECK_FALSE(of_exception("ImportError: /opt/x.so: undefined symbol: foo").certain);
  CHECK_FALSE(of_output("python3: can't open file '/nfs/train.py': [Errno 2] No such file or "
                        "directory",
                        {.code = 2})
                  .certain);
  CHECK_FALSE(of_exception("ValueError: boom").certain);
}

TEST_CASE("a signal from outside is not a crash", "[signatures]") {
  const int crash = GENERATE(SIGSEGV, SIGABRT, SIGBUS, SIGFPE);
  CHECK(of_output("", {.signal = Signal::numbered(crash)}).kind == Kind::signal);
  const int request = GENERATE(SIGTERM, SIGINT, SIGHUP);
  const auto cause = of_output("", {.signal = Signal::numbered(request)});
  CHECK(cause.kind == Kind::killed);
  CHECK(cause.text.find("which mgpu-run did not send") != std::string::npos);

  SECTION("and in a scheduler's job that is being ended it is a preemption") {
    FailureEvidence evidence{.report = {.signal = SIGTERM}, .stopped_by = "Slurm job 42"};
    CHECK(diagnose(evidence).kind == Kind::preempted);
    CHECK(diagnose(evidence).text.find("Slurm job 42") != std::string::npos);
  }
}

TEST_CASE("a program that exits with the status of a signal was asked to end", "[signatures]") {
  const int code = GENERATE(129, 130, 143);
  const auto cause = of_output("saving before the end", {.code = code});
  CHECK(cause.kind == Kind::killed);
  CHECK(cause.text.find("which mgpu-run did not send") != std::string::npos);
  CHECK(of_output("", {.code = 139}).kind == Kind::exit_status);
}

TEST_CASE("a SIGKILL without any sign of exhausted memory was sent by somebody", "[signatures]") {
  FailureEvidence evidence{.report = {.signal = SIGKILL}};
  evidence.memory = {.oom_kills_known = true,
                     .limit_bytes = 64ull << 30,
                     .peak_bytes = 9ull << 30,
                     .rank_peak_bytes = 4ull << 30};
  CHECK(diagnose(evidence).kind == Kind::killed);
  CHECK(diagnose(evidence).text.find("which mgpu-run did not send") != std::string::npos);

  SECTION("but not if the kernel's counter cannot be read") {
    evidence.memory.oom_kills_known = false;
    CHECK(diagnose(evidence).kind == Kind::host_oom_guess);
  }
  SECTION("nor if the rank used half of the memory, or the cgroup nearly all") {
    evidence.memory.rank_peak_bytes = 40ull << 30;
    CHECK(diagnose(evidence).kind == Kind::host_oom_guess);
    evidence.memory.rank_peak_bytes = 4ull << 30;
    evidence.memory.peak_bytes = 63ull << 30;
    CHECK(diagnose(evidence).kind == Kind::host_oom_guess);
  }
}

TEST_CASE("every entry of the table has a name, words and a kind", "[signatures]") {
  for (const auto& signature : signatures()) {
    CAPTURE(signature.name);
    CHECK_FALSE(signature.name.empty());
    CHECK(signature.words.size() >= 6);
    CHECK(signature.kind != Kind::none);
    if (signature.cascade)
      CHECK((signature.kind == Kind::peer_failure || signature.kind == Kind::hang));
  }
}
