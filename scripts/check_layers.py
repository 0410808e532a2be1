#!/usr/bin/env python3
"""Checks the architecture: which folder may include which, and which file may use which package.

Prints "file:line: rule" per finding and exits with status 1 if there is any. The rules are the
tables below. Changing a table changes the design: the commit message has to say why.
"""

import fnmatch
import os
import pathlib
import re
import subprocess
import sys

TOP_FOLDERS = ["launcher", "runtime", "rendezvous", "tests", "docs", "scripts"]
TOP_FILES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "CMakeLists.txt", "CMakePresets.json"]
# Dotfiles and folders whose names begin with a dot are also allowed.

LONGEST_FILE = 600

# Which of our files a file may include: the first matching pattern decides.
ARROWS = [
    ("rendezvous/base/*", ["rendezvous/base/*"]),
    ("rendezvous/processes/*", ["rendezvous/base/*", "rendezvous/processes/*"]),
    ("rendezvous/yaml/*", ["rendezvous/base/*", "rendezvous/yaml/*"]),
    ("rendezvous/store/*", ["rendezvous/base/*", "rendezvous/store/*", "rendezvous/contract.hpp"]),
    ("rendezvous/tls/*", ["rendezvous/base/*", "rendezvous/tls/*"]),
    ("rendezvous/http/*", ["rendezvous/base/*", "rendezvous/http/*", "rendezvous/tls/*",
                           "rendezvous/resolver.hpp"]),
    ("rendezvous/etcd/*", ["rendezvous/base/*", "rendezvous/etcd/*", "rendezvous/http/*",
                           "rendezvous/tls/*", "rendezvous/auth.hpp", "rendezvous/resolver.hpp"]),
    ("rendezvous/*", ["rendezvous/*"]),
    ("launcher/options/*", ["launcher/options/*", "launcher/lifecycle/failure_policy.hpp",
                            "rendezvous/*"]),
    ("launcher/lifecycle/*", ["launcher/lifecycle/*", "rendezvous/*"]),
    ("launcher/devices/*", ["launcher/devices/*", "launcher/options/*", "rendezvous/*"]),
    ("launcher/output/*", ["launcher/output/*", "launcher/options/*", "rendezvous/*"]),
    ("launcher/nodes/*", ["launcher/nodes/*", "launcher/lifecycle/*", "launcher/options/*",
                          "rendezvous/*"]),
    ("launcher/plan/*", ["launcher/plan/*", "launcher/nodes/*", "launcher/devices/*",
                         "launcher/options/*", "rendezvous/*"]),
    ("launcher/ranks/*", ["launcher/ranks/*", "launcher/plan/*", "launcher/nodes/*",
                          "launcher/output/*", "launcher/lifecycle/*", "launcher/options/*",
                          "rendezvous/*"]),
    ("launcher/hang_evidence/*", ["launcher/hang_evidence/*", "launcher/ranks/*",
                                  "launcher/lifecycle/*", "launcher/options/*", "rendezvous/*"]),
    ("launcher/memory/*", ["launcher/memory/*", "launcher/ranks/*", "launcher/output/*",
                           "launcher/devices/*", "launcher/lifecycle/*", "launcher/options/*",
                           "rendezvous/*"]),
    ("launcher/doctor/*", ["launcher/doctor/*", "launcher/ranks/*", "launcher/plan/*",
                           "launcher/devices/*", "launcher/lifecycle/*", "launcher/options/*",
                           "rendezvous/*"]),
    ("launcher/ssh_launch/*", ["launcher/ssh_launch/*", "launcher/ranks/*", "launcher/plan/*",
                            "launcher/nodes/*", "launcher/output/*", "launcher/lifecycle/*",
                            "launcher/options/*", "rendezvous/*"]),
    ("launcher/*", ["launcher/*", "rendezvous/*"]),
    # The worker's side of the rendezvous: its environment variables, and a client of the store.
    ("runtime/text/*", ["runtime/text/*", "rendezvous/base/*"]),
    ("runtime/kernels/*", ["runtime/kernels/*"]),
    ("runtime/profiling/*", ["runtime/profiling/*"]),
    ("runtime/comm/*", ["runtime/comm/*", "runtime/profiling/*", "rendezvous/contract.hpp"]),
    ("runtime/telemetry/*", ["runtime/telemetry/*", "rendezvous/base/*"]),
    ("runtime/model/*", ["runtime/model/*", "runtime/kernels/*", "runtime/checkpoint/*",
                         "runtime/profiling/*", "rendezvous/base/*"]),
    # Models that are evaluated but not trained: they know nothing of ranks, rewards or training.
    ("runtime/encoder/*", ["runtime/encoder/*", "runtime/checkpoint/*", "rendezvous/base/*"]),
    # The tables of the model and of the optimizers: linear layers and state for the memory model,
    # families, sizes and chat templates for keys. The memory model also computes with the sizes of buckets.
    ("runtime/config/*", ["runtime/config/*", "runtime/model/families.hpp",
                          "runtime/model/linear_layers.hpp", "runtime/model/model_config.hpp",
                          "runtime/model/presets.hpp", "runtime/optim/state_tensors.hpp",
                          "runtime/parallel/bucket_size.hpp", "runtime/text/named_templates.hpp",
                          "rendezvous/base/*", "rendezvous/yaml/*"]),
    # Starts the programs of hubs. The list of a dataset's files is YAML.
    ("runtime/hub/*", ["runtime/hub/*", "runtime/checkpoint/*", "rendezvous/base/*",
                       "rendezvous/processes/*", "rendezvous/yaml/yaml.hpp"]),
    ("runtime/http/*", ["runtime/http/*", "rendezvous/base/*", "rendezvous/http/*",
                        "rendezvous/tls/context.hpp", "rendezvous/resolver.hpp"]),
    # The workers of a vLLM server read the NCCL id from a store of c10d's protocol: it is served by
    # our store, because c10d's own admits everybody and lets every client overwrite the id.
    ("runtime/servers/*", ["runtime/servers/*", "runtime/http/*", "rendezvous/base/*",
                           "rendezvous/store/local_peers.hpp", "rendezvous/store/server.hpp"]),
    ("runtime/rewards/*", ["runtime/rewards/*", "runtime/http/*", "runtime/text/jinja/text.hpp",
                           "runtime/text/compiled_pattern.hpp", "rendezvous/base/*",
                           "rendezvous/processes/*"]),
    # The plug-in for Parquet and Arrow knows nothing of the trainer but its interface.
    ("runtime/columnar/*", ["runtime/columnar/*", "runtime/data/columnar_plugin.h"]),
    ("runtime/data/*", ["runtime/data/*", "runtime/text/*", "rendezvous/base/*"]),
    ("runtime/*", ["runtime/*", "rendezvous/base/*", "rendezvous/contract.hpp",
                   "rendezvous/frame.hpp", "rendezvous/protocol.hpp",
                   "rendezvous/store/background_server.hpp", "rendezvous/store/client.hpp",
                   "rendezvous/store/wire.hpp"]),
    # Programs that use the trainer as a library.
    ("docs/examples/*", ["runtime/train/*", "runtime/config/*", "rendezvous/contract.hpp"]),
    ("tests/*", ["*"]),
]

# Package: its headers, and the files that may include them. Tests may use all packages.
PACKAGES = {
    "fmt": (["fmt/*"], ["*"]),
    "CLI11": (["CLI/*"], ["launcher/options/cli.cpp", "runtime/config/command_line.cpp"]),
    # Asio: the event loop itself and everything that waits in it.
    "Boost": (["boost/*"], [
        "launcher/event_loop/event_loop*", "launcher/event_loop/cluster_session.*",
        "launcher/event_loop/hang_collector.hpp", "launcher/event_loop/progress_watch.hpp",
        "launcher/event_loop/signal_watch.*", "launcher/ssh_launch/ssh_launch.*",
        "launcher/nodes/leader_connection*", "launcher/nodes/leader.*", "launcher/nodes/leader_call.*",
        "launcher/nodes/rendezvous_endpoint.*", "launcher/nodes/status_command.cpp",
        "launcher/memory/monitor.*", "launcher/nodes/cluster_member*", "launcher/output/file_thread.*",
        "launcher/output/output.*",
        "launcher/output/rank_stream.*", "launcher/output/sink.*",
        "launcher/ranks/pausable_timer.hpp", "launcher/ranks/rank_group.*",
        "launcher/ranks/worker.*", "launcher/ranks/worker_socket.*",
        "rendezvous/etcd/call.*", "rendezvous/etcd/client.*", "rendezvous/etcd/election*",
        "rendezvous/etcd/members.*", "rendezvous/etcd/watch.*", "rendezvous/http/exchange.*",
        "rendezvous/resolver.*", "rendezvous/tls/session.cpp",
        # Beast's parser and serializer.
        "rendezvous/http/message.cpp",
        # Numbers of any size; an io_context for each request.
        "runtime/rewards/math/rational.*", "runtime/http/client.cpp"]),
    "yaml-cpp": (["yaml-cpp/*"], ["rendezvous/yaml/*"]),
    "nlohmann_json": (["nlohmann/*"], [
        "launcher/devices/devices*.cpp", "launcher/doctor/command.cpp",
        "launcher/event_loop/status_note.cpp",
        "launcher/lifecycle/error_file.cpp", "launcher/lifecycle/report.cpp",
        "launcher/nodes/attempt_json.cpp", "launcher/nodes/leader_status.cpp",
        "launcher/nodes/status_command.cpp", "launcher/nodes/job_state.cpp",
        "launcher/nodes/progress_json.*",
        "launcher/plan/dry_run.cpp",
        "rendezvous/base/json_field.hpp", "rendezvous/base/untrusted_json.*", "rendezvous/protocol.cpp",
        "rendezvous/etcd/answers.cpp", "rendezvous/etcd/requests.cpp",
        "runtime/*"]),
    "OpenSSL": (["openssl/*"], ["rendezvous/auth.cpp", "runtime/checkpoint/digest.cpp",
                                "runtime/data/digest.cpp"]),
    "PCRE2": (["pcre2.h"], ["runtime/text/compiled_pattern.cpp"]),
    "utf8proc": (["utf8proc.h"], ["runtime/text/*"]),
    # A plug-in: nothing else is linked with Arrow's libraries.
    "Arrow": (["arrow/*", "parquet/*"], ["runtime/columnar/*"]),
    "zlib": (["zlib.h"], ["runtime/data/byte_stream.cpp"]),
    "zstd": (["zstd.h"], ["runtime/data/byte_stream.cpp"]),
    "xxHash": (["xxhash.h"], ["runtime/checkpoint/digest.cpp"]),
    "gloo": (["gloo/*"], ["runtime/comm/*"]),
    "LibTorch": (["torch/*", "ATen/*", "c10/*", "caffe2/*"], ["runtime/*"]),
    "cudnn-frontend": (["cudnn_frontend*"], ["runtime/kernels/packed_plan.cpp"]),
    "CUDA": (["cuda*.h", "cublasLt.h", "cub/*", "cudnn.h", "nccl.h", "nvml.h", "cooperative_groups*"],
             ["runtime/*"]),
    "NVTX": (["nvtx3/*"], ["runtime/profiling/range.cpp"]),
    "Catch2": (["catch2/*"], []),
}
# Folders of system headers. <x/y.h> from any other folder is a package without a rule.
SYSTEM_FOLDERS = ["sys", "linux", "netinet", "net", "arpa", "asm", "asm-generic", "bits"]

# Calls that start a process, and the only files that may contain them.
STARTS_PROCESSES = re.compile(
    r"(?<![.>])\b(v?fork|_Fork|clone3?|SYS_clone3?|SYS_v?fork|execv|execve|execvp|execvpe|fexecve|execveat"
    r"|execl|execle|execlp|posix_spawnp?|popen|system)\b\s*[(,)]")
PROCESS_STARTERS = ["rendezvous/processes/spawn.cpp", "runtime/rewards/sandbox/enter.cpp",
                    # The front end of mgpu-train becomes its worker.
                    "runtime/commands/start_worker.cpp"]

SOURCE_ENDINGS = (".cpp", ".hpp", ".h", ".cu", ".cuh")
TEXT_ENDINGS = SOURCE_ENDINGS + (".py", ".sh", ".cmake", "CMakeLists.txt")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|R"([^()\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\'', re.S)


def fits(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def files_of(root):
    """The files of the tree: those git tracks or would add; without git, all except build folders."""
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        names = listed.stdout.decode().split("\0")[:-1]
        return sorted(name for name in set(names) if os.path.exists(os.path.join(root, name)))
    except (FileNotFoundError, subprocess.CalledProcessError):
        found = []
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith((".", "build"))
                          or os.path.relpath(folder, root) != "."]
            found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
        return sorted(found)


def top_findings(names):
    seen = set()
    for name in names:
        first, slash, _ = name.partition("/")
        if first.startswith(".") or first in seen:
            continue
        seen.add(first)
        if slash and first not in TOP_FOLDERS:
            yield f"{name}:1: top-level folders are {' '.join(TOP_FOLDERS)}, not {first}"
        if not slash and first not in TOP_FILES:
            yield f"{name}:1: top-level files are {' '.join(TOP_FILES)} and dotfiles"


def our_include_finding(name, header, names):
    if header not in names:
        return f'"{header}" is not one of our files; write paths from the root, headers of packages in <>'
    allowed = next((targets for source, targets in ARROWS if fits(name, [source])), [])
    if not fits(header, allowed):
        return f"{os.path.dirname(name)}/ may not include {header}"
    return None


def package_finding(name, header):
    for package, (headers, users) in PACKAGES.items():
        if fits(header, headers):
            if name.startswith("tests/") or fits(name, users):
                return None
            return f"{package} ({header}) may be used by {' '.join(users) or 'tests'} only"
    folder, slash, _ = header.partition("/")
    if slash and folder not in SYSTEM_FOLDERS:
        return f"<{header}> belongs to a package without a rule in scripts/check_layers.py"
    return None


def code_only(text):
    """The text with comments and strings replaced by blanks; lines keep their places."""
    return COMMENT_OR_STRING.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def source_findings(name, text, names):
    for number, (line, code) in enumerate(zip(text.split("\n"), code_only(text).split("\n")), 1):
        include = INCLUDE.match(line) if code.lstrip().startswith("#") else None
        if include:
            kind, header = include.groups()
            finding = (our_include_finding(name, header, names) if kind == '"'
                       else package_finding(name, header))
            if finding:
                yield f"{name}:{number}: {finding}"
        started = STARTS_PROCESSES.search(code)
        if started and not name.startswith("tests/") and not fits(name, PROCESS_STARTERS):
            yield f"{name}:{number}: {started[1]}: only {' '.join(PROCESS_STARTERS)} start processes"


def findings(root):
    names = files_of(root)
    known = set(names)
    found = list(top_findings(names))
    for name in names:
        if not name.endswith(TEXT_ENDINGS) or name.startswith("."):
            continue
        text = pathlib.Path(root, name).read_text(encoding="utf-8", errors="replace")
        length = text.count("\n")
        if length > LONGEST_FILE:
            found.append(f"{name}:{length}: longer than {LONGEST_FILE} lines; split it by responsibility")
        if name.endswith(SOURCE_ENDINGS):
            found += source_findings(name, text, known)
    return found


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1]
    found = findings(root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
